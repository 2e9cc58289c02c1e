//! libc's own functions, which our hooks replace.

use core::ffi::{CStr, c_int, c_void};
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

#[cold]
fn look_up(memory: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: valid names; RTLD_NEXT is what it is for. dlsym itself is hooked.
    let mut function = unsafe {
        match name == c"dlsym" {
            true => libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr()),
            false => libc::dlsym(libc::RTLD_NEXT, name.as_ptr()),
        }
    };
    if function.is_null() {
        // This libc does not have it. Only a program that found the symbol through us can call it.
        function = missing as *mut c_void;
    }
    memory.store(function, Ordering::Relaxed);
    function
}

extern "C" fn missing() -> c_int {
    wakeset_fd::interpose::fail(libc::ENOSYS) as c_int
}
