//! The running kernel, by raw system calls: nothing in the process can be in the way.

use super::World;
use syscalls::Sysno;

/// The kernel.
#[derive(Debug, Default)]
pub struct Kernel;

/// One raw system call.
///
/// # Safety
/// As [`World::call`].
#[inline]
pub(super) unsafe fn raw(number: Sysno, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller's contract.
    match unsafe { syscalls::syscall!(number, a, b, c, d, e, f) } {
        Ok(value) => value as isize,
        Err(errno) => -(errno.into_raw() as isize),
    }
}

impl World for Kernel {
    #[inline]
    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize {
        // SAFETY: the caller's contract.
        unsafe { raw(number, arguments) }
    }
}
