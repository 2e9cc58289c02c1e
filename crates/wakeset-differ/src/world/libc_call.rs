//! The conventions of libc's functions: -1 and errno for a failure.

use libc::{c_int, ssize_t};

pub(super) fn last_errno() -> isize {
    // SAFETY: the thread's own.
    -(unsafe { *libc::__errno_location() } as isize)
}

/// The result of a function that returns an int.
pub(super) fn int(result: c_int) -> isize {
    if result < 0 { last_errno() } else { result as isize }
}

/// The result of a function that returns a size.
pub(super) fn size(result: ssize_t) -> isize {
    if result < 0 { last_errno() } else { result }
}

/// fork(2) of a child that ends at once, and the wait for it.
pub(super) fn fork_and_reap() {
    // SAFETY: the child makes no call but _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
    }
}
