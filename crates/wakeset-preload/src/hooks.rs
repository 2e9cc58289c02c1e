//! The hooks, by what they are about.

mod descriptor;
mod epoll;
mod io;
pub(crate) mod listener;
mod pipe;
mod poll;
mod process;
pub(crate) mod signal;
mod syscall;
pub(crate) mod uffd;
mod unmodelled;

use core::ffi::c_int;
use syscalls::{Sysno, syscall};

/// Whether `O_NONBLOCK` is set; `None` for a number that is not open.
fn is_nonblocking(fd: c_int) -> Option<bool> {
    // SAFETY: numbers only.
    let flags = unsafe { syscall!(Sysno::fcntl, fd, libc::F_GETFL, 0) }.ok()?;
    Some(flags as c_int & libc::O_NONBLOCK != 0)
}
