//! The objects in the order in which the loader searches them.
//!
//! The list of link maps begins with the objects that the program was started with, in the order of
//! the global scope: the program, the preloads, then what these need. Those are never unloaded, so
//! the list is read without a lock as far as libc, which is one of them.

use super::object::{Dynamic, LinkMap, Object, is_direct};
use super::redirect::original;
use core::ffi::{CStr, c_int, c_void};
use core::iter;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::dl_phdr_info;

/// `struct r_debug`, and what glibc 2.35 has added to it.
#[repr(C)]
struct Debug {
    version: c_int,
    map: *const LinkMap,
    breakpoint: usize,
    state: c_int,
    loader: usize,
    /// That of the next name space. There from version 2 on.
    next: *const Debug,
}

unsafe extern "C" {
    /// The loader's, of the name space that the program is in.
    #[link_name = "_r_debug"]
    static DEBUG: Debug;
}

/// Our own dynamic section.
fn our_dynamic() -> *const Dynamic {
    let address: *const Dynamic;
    // SAFETY: takes an address; the linker defines the symbol in each object.
    unsafe {
        core::arch::asm!(
            ".hidden _DYNAMIC",
            "lea {}, [rip + _DYNAMIC]",
            out(reg) address,
            options(nomem, nostack, preserves_flags),
        );
    }
    address
}

/// The link map of every object, the program's first. Beyond libc there are objects that may be
/// unloaded.
fn maps() -> impl Iterator<Item = &'static LinkMap> {
    // SAFETY: the loader fills it in before any of our code runs, and changes it at any time.
    let first = unsafe { (&raw const DEBUG.map).read_volatile().as_ref() };
    // SAFETY: links lead to link maps; no consumer goes beyond libc.
    iter::successors(first, |map| unsafe { map.next.as_ref() })
}

/// The objects of [`maps`].
fn objects() -> impl Iterator<Item = Object> {
    // SAFETY: as in `maps`.
    maps().map(|map| unsafe { Object::of(map) })
}

/// This library, which is looked for once.
pub(super) fn ours() -> Option<Object> {
    static OURS: AtomicPtr<LinkMap> = AtomicPtr::new(ptr::null_mut());
    let mut map = OURS.load(Ordering::Relaxed).cast_const();
    if map.is_null() {
        map = ptr::from_ref(maps().find(|map| map.dynamic == our_dynamic())?);
        OURS.store(map.cast_mut(), Ordering::Relaxed);
    }
    // SAFETY: a link map of the loader's; this library is never unloaded.
    Some(unsafe { Object::of(&*map) })
}

/// Whether an object is a part of libc. Before glibc 2.34 there were several.
fn is_libc(object: &Object) -> bool {
    matches!(
        object.soname().to_bytes(),
        b"libc.so.6" | b"libpthread.so.0" | b"librt.so.1" | b"libdl.so.2"
    )
}

fn is_last_part(object: &Object) -> bool {
    object.soname() == c"libc.so.6"
}

/// The objects as far as libc itself, with that.
fn up_to_libc() -> impl Iterator<Item = Object> {
    let mut ended = false;
    objects().take_while(move |object| !core::mem::replace(&mut ended, is_last_part(object)))
}

/// The objects that are searched after this one, as far as libc.
fn after_ours() -> impl Iterator<Item = Object> {
    let ours = our_dynamic();
    up_to_libc().skip_while(move |object| object.dynamic() != ours).skip(1)
}

/// Those of them that are not parts of libc.
pub(super) fn between() -> impl Iterator<Item = Object> {
    after_ours().filter(|object| !is_libc(object))
}

/// The parts of libc, as far as they come after this library.
pub(super) fn libc() -> impl Iterator<Item = Object> {
    after_ours().filter(is_libc)
}

/// The next function of this name after ours: that of another preload, or libc's own.
pub(crate) fn next(name: &CStr) -> Option<usize> {
    first(name, after_ours())
}

/// libc's own function of this name.
pub(super) fn in_libc(name: &CStr) -> Option<usize> {
    first(name, libc())
}

/// What [`iterate`] calls.
pub(crate) type Visit = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

/// dl_iterate_phdr(3). libc's: a sanitizer's stands before it, and may not be ready yet.
///
/// # Safety
/// As dl_iterate_phdr(3).
pub(crate) unsafe fn iterate(visit: Visit, data: *mut c_void) {
    type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;
    match in_libc(c"dl_iterate_phdr") {
        // SAFETY: the function of that name and type; then the caller's contract.
        Some(address) => unsafe {
            core::mem::transmute::<usize, Iterate>(address)(visit, data);
        },
        // SAFETY: the caller's contract.
        None => unsafe {
            libc::dl_iterate_phdr(Some(visit), data);
        },
    }
}

/// A function of a part of libc that is none of the program's own: before glibc 2.34, a plugin may
/// bring libpthread or libdl into a program that was started without.
pub(crate) fn in_late_part(name: &CStr) -> Option<usize> {
    let mut search = Late { name, found: None };
    // SAFETY: `visit_late` gets `search` back, and the loader's descriptions of objects.
    unsafe { iterate(visit_late, (&raw mut search).cast()) };
    search.found
}

/// The name of a function, and its address.
struct Late<'a> {
    name: &'a CStr,
    found: Option<usize>,
}

/// Looks for the function in one object, which stays loaded meanwhile. The parts of libc that have
/// a function of ours are never unloaded.
unsafe extern "C" fn visit_late(info: *mut dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    const PT_DYNAMIC: u32 = 2;
    // SAFETY: by the contract of dl_iterate_phdr(3), and of the call above.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Late>()) };
    for index in 0..info.dlpi_phnum.into() {
        // SAFETY: there are so many.
        let header = unsafe { &*info.dlpi_phdr.wrapping_add(index) };
        if header.p_type != PT_DYNAMIC {
            continue;
        }
        let base = info.dlpi_addr as usize;
        let dynamic = ptr::with_exposed_provenance(base.wrapping_add(header.p_vaddr as usize));
        // SAFETY: the dynamic section of a loaded object.
        let object = unsafe { Object::at(base, c"", dynamic) };
        // The kernel's own object has no table of symbols that would be read here.
        if is_libc(&object) {
            search.found = first(search.name, iter::once(object));
        }
    }
    c_int::from(search.found.is_some())
}

fn first(name: &CStr, mut objects: impl Iterator<Item = Object>) -> Option<usize> {
    objects.find_map(|object| {
        let symbol = object.find(name)?;
        let address = object.base().wrapping_add(original(symbol));
        if is_direct(symbol) {
            return Some(address);
        }
        // SAFETY: the value of such a symbol is a function that chooses one.
        let choose: extern "C" fn() -> usize = unsafe { core::mem::transmute(address) };
        Some(choose())
    })
}

/// Whether there are name spaces beside the program's, as for the libraries of `LD_AUDIT`.
pub(crate) fn audited() -> bool {
    // SAFETY: as in `maps`; older versions of the structure end before `next`.
    unsafe {
        (&raw const DEBUG.version).read_volatile() >= 2
            && !(&raw const DEBUG.next).read_volatile().is_null()
    }
}
