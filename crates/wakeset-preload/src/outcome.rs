//! From a verdict to what a libc function returns.

use wakeset_fd::{Errno, Verdict};

/// Sets errno; -1.
#[cold]
pub(crate) fn fail(errno: i32) -> isize {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What a libc function returns for a result. Leaves errno alone when there is no error.
pub(crate) fn returned<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(0),
        Err(error) => fail(error.into_raw()),
    }
}

/// What a libc function returns for a verdict, `call` being libc's own function.
pub(crate) fn answered<T: TryInto<isize>>(verdict: Verdict<T>, call: impl FnOnce() -> isize) -> isize {
    match verdict {
        Verdict::Done(result) => returned(result),
        Verdict::Kernel => call(),
    }
}

/// [`answered`] for calls that return nothing but success.
pub(crate) fn answered_unit(verdict: Verdict<()>, call: impl FnOnce() -> isize) -> isize {
    answered(verdict.map(|()| 0_isize), call)
}
