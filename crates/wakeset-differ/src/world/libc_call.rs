//! The conventions of libc's functions: -1 and errno for a failure.

use libc::{c_int, ssize_t};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// fork(2) of a child that ends when that has returned, and the wait for it. So a process of one
/// thread never has a child that was gone before, which decides whether objects migrate.
pub(super) fn fork_and_reap() {
    // SAFETY: the memory is there, or the child does not wait; the child makes no other call.
    unsafe {
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let memory = libc::mmap(std::ptr::null_mut(), size_of::<AtomicU32>(), all, kind, -1, 0);
        let returned = (memory != libc::MAP_FAILED).then(|| &*memory.cast::<AtomicU32>());
        let child = libc::fork();
        if child == 0 {
            while returned.is_some_and(|it| it.load(Ordering::SeqCst) == 0) {
                libc::usleep(50);
            }
            libc::_exit(0);
        }
        if let Some(returned) = returned {
            returned.store(1, Ordering::SeqCst);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        if memory != libc::MAP_FAILED {
            libc::munmap(memory, size_of::<AtomicU32>());
        }
    }
}
