//! The end of the process: by exit(3), and by `_exit`, of which libraries do not hear.

use crate::{listeners, real};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use wakeset_fd::deputy;
use wakeset_fd::listeners::End;

/// libc's `_exit`.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

fn real_exit() -> *mut c_void {
    real::resolve(&EXIT, c"_exit")
}

/// Finds libc's `_exit`, before main. Otherwise each forked child would be the first to ask for it:
/// it would have to look, and to write down what it found on a page that it shares until then.
pub(super) fn find_exit() {
    real_exit();
}

/// Before the process ends: leaves to others what its threads were woken for, and to the kernel
/// what its children have.
pub(crate) fn before_end() {
    listeners::before_end(End::Exit);
    deputy::before_end();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = at_end;

/// At the end of the process, by exit(3).
extern "C" fn at_end() {
    deputy::before_end();
}

/// _exit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _exit(status: usize) -> c_int {
    type Exit = unsafe extern "C-unwind" fn(usize) -> c_int;
    before_end();
    // SAFETY: the caller's contract.
    unsafe { real::typed::<Exit>(real_exit())(status) }
}
