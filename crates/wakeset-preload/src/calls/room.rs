//! Calls that make numbers, where the process has none left: Wakeset's own descriptors are not to
//! be why.

use crate::listeners;
use core::ffi::c_int;
use wakeset_fd::{Errno, doorbell};

/// Makes a call whose result is a number, and once more if it failed for lack of numbers and there
/// are some of ours to be given up.
#[inline]
pub(super) fn number<T: Copy>(call: impl Fn() -> T, as_number: impl Fn(T) -> c_int) -> T {
    let result = call();
    if as_number(result) == -1 && is_full() && has_made_room() { call() } else { result }
}

/// The same for one whose result is a stream or directory, null for none.
#[inline]
pub(super) fn stream(call: impl Fn() -> usize) -> usize {
    number(call, |stream| if stream == 0 { -1 } else { 0 })
}

/// The same for a call that is answered here.
#[inline]
pub(super) fn answered<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match call() {
        Err(Errno::EMFILE) if has_made_room() => call(),
        result => result,
    }
}

#[cold]
fn is_full() -> bool {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() == libc::EMFILE }
}

#[cold]
fn has_made_room() -> bool {
    doorbell::make_room() || listeners::give_up_set()
}
