//! The plugins that make calls, `c/road.c`, and how they are opened.

use super::FOLDER;
use libc::{c_char, c_int, c_long, c_void};
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

/// Finds a function by its name and version.
pub(super) type Finder = extern "C" fn(*const c_char, *const c_char) -> *mut c_void;

/// Makes a system call, or libc's function for it: the finder, the number, the arguments.
type Call = unsafe extern "C" fn(Option<Finder>, c_long, &[usize; 6]) -> c_long;

/// A plugin that is open for good.
#[derive(Debug)]
pub(super) struct Plugin {
    handle: usize,
    /// By libc's functions.
    pub call: Call,
    /// By syscall(2).
    pub number: Call,
    /// fork(2) of a child that ends at once, and the wait for it.
    pub fork: extern "C" fn(Option<Finder>),
    /// dlsym(3) with `RTLD_NEXT`, from the plugin.
    pub next: Finder,
    /// The same with `RTLD_DEFAULT`.
    pub default: Finder,
}

/// Where a plugin is.
fn path(name: &str) -> CString {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap_or_default());
    let path: OsString = folder.join(name).into();
    CString::new(path.into_vec()).expect("a path has no null in it")
}

impl Plugin {
    /// Opens a plugin by dlopen(3).
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open(name: &str, flags: c_int) -> Self {
        // SAFETY: a C string. Plugins have no constructors.
        Self::of(unsafe { libc::dlopen(path(name).as_ptr(), flags) })
    }

    /// Opens it in a name space of its own.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open_apart(name: &str) -> Self {
        let path = path(name);
        // SAFETY: as above.
        Self::of(unsafe { libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW) })
    }

    fn of(handle: *mut c_void) -> Self {
        if handle.is_null() {
            // SAFETY: the message of the call that has just failed.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            panic!("a plugin cannot be opened: {why:?}");
        }
        let find = |name: &CStr| {
            // SAFETY: an open handle, and a C string.
            let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert_ne!(function, ptr::null_mut(), "{name:?} is missing");
            function
        };
        // SAFETY: the types are those of the functions in `c/road.c`.
        unsafe {
            Self {
                handle: handle.expose_provenance(),
                call: std::mem::transmute::<*mut c_void, Call>(find(c"road_call")),
                number: std::mem::transmute::<*mut c_void, Call>(find(c"road_number")),
                fork: std::mem::transmute::<*mut c_void, extern "C" fn(Option<Finder>)>(find(
                    c"road_fork",
                )),
                next: std::mem::transmute::<*mut c_void, Finder>(find(c"road_next")),
                default: std::mem::transmute::<*mut c_void, Finder>(find(c"road_default")),
            }
        }
    }

    /// Its handle.
    pub fn handle(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.handle)
    }
}
