//! libc's own functions, which our hooks replace.

use crate::loader;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// libc's function of this name and type.
macro_rules! real {
    ($name:ident: $type:ty) => {{
        static FUNCTION: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
            core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes())
            {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
        $crate::real::typed::<$type>($crate::real::resolve(&FUNCTION, NAME))
    }};
}
pub(crate) use real;

/// The address of a function as the function. Only [`real!`] calls it, with the type that libc's
/// headers give the symbol.
#[inline]
pub(crate) fn typed<F: Copy>(function: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: `F` is a function pointer or an address, of the same size. Whether it is the right
    // type matters when the function is called, which is `unsafe`.
    unsafe { core::mem::transmute_copy(&function) }
}

/// The next definition of `name` after ours, remembered in `memory`.
#[inline]
pub(crate) fn resolve(memory: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let function = memory.load(Ordering::Relaxed);
    if function.is_null() { look_up(memory, name) } else { function }
}

/// The function that `memory` leads to, of this type, or `unknown` if none has been looked up.
#[inline(always)]
pub(crate) fn known_or<F: Copy>(memory: &AtomicPtr<c_void>, unknown: F) -> F {
    let function = memory.load(Ordering::Relaxed);
    if function.is_null() { unknown } else { typed(function) }
}

/// The next definition of `name` after ours, which `memory` leads to from now on.
#[cold]
pub(crate) fn look_up(memory: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut function = match loader::next(name).or_else(|| loader::in_late_part(name)) {
        Some(address) => ptr::with_exposed_provenance_mut(address),
        None => look_up_elsewhere(name),
    };
    if function.is_null() && name == c"dlsym" {
        function = find_without_libdl as *mut c_void;
    }
    if function.is_null() {
        // This libc does not have it. Only a program that found the symbol through us can call it.
        function = missing as *mut c_void;
    }
    memory.store(function, Ordering::Relaxed);
    function
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// dlsym(3) of a program that was started without it: before glibc 2.34 it is in libdl. Until a
/// plugin has brought that, nobody asks but our own code, for functions of libc.
unsafe extern "C" fn find_without_libdl(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's contract, that of dlsym(3).
    unsafe {
        match loader::in_late_part(c"dlsym") {
            Some(address) => {
                typed::<Dlsym>(ptr::with_exposed_provenance_mut(address))(handle, name)
            }
            None => loader::next(CStr::from_ptr(name))
                .map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut),
        }
    }
}

/// A function of neither libc nor a library before it, such as one of liburing's.
fn look_up_elsewhere(name: &CStr) -> *mut c_void {
    let Some(address) = loader::next(c"dlsym") else { return ptr::null_mut() };
    let dlsym = typed::<Dlsym>(ptr::with_exposed_provenance_mut(address));
    // SAFETY: a valid name; RTLD_NEXT is what it is for.
    unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

extern "C" fn missing() -> c_int {
    wakeset_fd::interpose::fail(libc::ENOSYS) as c_int
}
