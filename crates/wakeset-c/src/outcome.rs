//! From results to what a C function returns.

use core::ffi::c_int;
use wakeset_fd::{Errno, Verdict};

/// Sets errno; -1.
#[cold]
pub(crate) fn fail(errno: c_int) -> isize {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What a function returns for a result. Leaves errno alone when there is no error.
pub(crate) fn returned<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(0),
        Err(error) => fail(error.into_raw()),
    }
}

/// The same for a call that returns nothing but success.
pub(crate) fn returned_unit(result: Result<(), Errno>) -> c_int {
    returned(result.map(|()| 0_isize)) as c_int
}

/// What a function returns for a verdict, `call` being libc's function.
pub(crate) fn answered<T: TryInto<isize>>(verdict: Verdict<T>, call: impl FnOnce() -> isize) -> isize {
    match verdict {
        Verdict::Done(result) => returned(result),
        Verdict::Kernel => call(),
    }
}

/// Runs the whole of a function that another unwinding may pass through (pthread_cancel(3)): a panic of ours does not, it ends the process.
pub fn whole<T>(f: impl FnOnce() -> T) -> T {
    struct End {
        panicked: bool,
    }
    impl Drop for End {
        fn drop(&mut self) {
            if !self.panicked && std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let _end = End { panicked: std::thread::panicking() };
    f()
}
