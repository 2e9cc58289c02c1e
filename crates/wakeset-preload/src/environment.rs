//! The environment, also before libc knows it.

use core::ffi::{CStr, c_char};
use core::ptr;
use wakeset_fd::notice;

unsafe extern "C" {
    /// libc's; null until libc's constructor has run.
    static environ: *const *const c_char;
    /// The loader's: where the kernel has put the number of arguments, the arguments and the
    /// environment.
    static __libc_stack_end: *const usize;
}

/// The value of a variable.
pub(crate) fn get(name: &CStr) -> Option<&'static CStr> {
    let mut entries = entries();
    let name = name.to_bytes();
    // SAFETY: a list of C strings that ends with null. The program may change it at the same time
    // as it may with getenv(3): what is asked for is asked before it runs, or by its first call.
    unsafe {
        while !entries.is_null() && !(*entries).is_null() {
            let entry = CStr::from_ptr(*entries).to_bytes_with_nul();
            if let Some([b'=', value @ ..]) = entry.strip_prefix(name) {
                return CStr::from_bytes_with_nul(value).ok();
            }
            entries = entries.add(1);
        }
    }
    None
}

/// Turns notices on for a program whose user has asked for them. What finds something to say before
/// our start asks for itself.
pub(crate) fn turn_on_notices() {
    if get(c"WAKESET_VERBOSE").is_some() {
        notice::turn_on();
    }
}

fn entries() -> *const *const c_char {
    // SAFETY: libc's variable, and the loader's, which is set before anything of ours can run.
    unsafe {
        if !environ.is_null() {
            return environ;
        }
        match __libc_stack_end.as_ref() {
            // The arguments, and the null after them.
            Some(count) => ptr::from_ref(count).add(1 + count + 1).cast(),
            None => ptr::null(),
        }
    }
}
