//! The calls as complete functions, for whoever links this crate rather than preloading the
//! library: each asks the in-process side first and makes the system call if that does not answer.

pub mod deputy;
pub mod descriptor;
pub mod duplicate;
pub mod fork;
#[cfg(test)]
mod fork_tests;
pub mod interpose;
pub mod io;
pub mod poll;

use crate::objects::{pipe, timer};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::ptr;
use libc::itimerspec;

pub use self::poll::{ppoll, pselect};
pub use crate::objects::counter::eventfd;
pub use crate::objects::pipe::{pipe2, socketpair};
pub use crate::objects::timer::timerfd_create;
pub use crate::set::complete::{epoll_ctl, epoll_pwait2, epoll_wait};
pub use crate::set::epoll_create1;

/// read(2).
///
/// # Errors
/// As read(2).
///
/// # Safety
/// `buffer` is valid for `len` bytes.
pub unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    unsafe { io::read(fd, buffer, len) }.or_kernel(|| sys::read(fd, buffer, len))
}

/// write(2).
///
/// # Errors
/// As write(2).
///
/// # Safety
/// `buffer` is valid for `len` bytes.
pub unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    unsafe { io::write(fd, buffer, len) }.or_kernel(|| sys::write(fd, buffer, len))
}

/// timerfd_settime(2).
///
/// # Errors
/// As timerfd_settime(2).
///
/// # Safety
/// `new` is valid; `old` is valid or null.
pub unsafe fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_settime(fd, flags, new, old) };
    verdict.or_kernel(|| sys::timerfd_settime(fd, flags, new, old))
}

/// timerfd_gettime(2).
///
/// # Errors
/// As timerfd_gettime(2).
///
/// # Safety
/// `current` is valid.
pub unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { timer::timerfd_gettime(fd, current) }.or_kernel(|| sys::timerfd_gettime(fd, current))
}

/// send(2).
///
/// # Errors
/// As send(2).
///
/// # Safety
/// `buffer` is valid for `len` bytes.
pub unsafe fn send(fd: c_int, buffer: *const u8, len: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    unsafe { pipe::send(fd, buffer, len, flags) }
        .or_kernel(|| sys::raw!(sendto, fd, buffer, len, flags, ptr::null::<u8>(), 0))
}

/// recv(2).
///
/// # Errors
/// As recv(2).
///
/// # Safety
/// `buffer` is valid for `len` bytes.
pub unsafe fn recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    unsafe { pipe::recv(fd, buffer, len, flags) }.or_kernel(|| {
        sys::raw!(recvfrom, fd, buffer, len, flags, ptr::null::<u8>(), ptr::null::<u8>())
    })
}

/// shutdown(2).
///
/// # Errors
/// As shutdown(2).
pub fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno> {
    pipe::shutdown(fd, how).or_kernel(|| sys::raw!(shutdown, fd, how).map(drop))
}

/// ioctl(2) with `FIONREAD`: how many bytes can be read.
///
/// # Errors
/// As ioctl(2).
pub fn bytes_in(fd: c_int) -> Result<c_int, Errno> {
    if descriptor::is_hidden(fd) {
        return Err(Errno::EBADF);
    }
    match pipe::bytes_in(fd) {
        Some(bytes) => Ok(bytes),
        None => {
            let mut bytes = 0;
            sys::raw!(ioctl, fd, libc::FIONREAD, &raw mut bytes).map(|_| bytes)
        }
    }
}

/// close(2).
///
/// # Errors
/// As close(2).
pub fn close(fd: c_int) -> Result<(), Errno> {
    descriptor::close(fd).or_kernel(|| sys::close(fd))
}

/// dup(2).
///
/// # Errors
/// As dup(2).
pub fn dup(fd: c_int) -> Result<c_int, Errno> {
    duplicate::dup(fd).or_kernel(|| sys::dup(fd))
}

/// Turns `O_NONBLOCK` on or off, as fcntl(`F_SETFL`) does.
///
/// # Errors
/// As fcntl(2).
pub fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno> {
    if descriptor::is_hidden(fd) {
        return Err(Errno::EBADF);
    }
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)?;
    let flags = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    sys::fcntl(fd, libc::F_SETFL, flags as usize)?;
    io::note_nonblocking(fd, nonblocking);
    Ok(())
}
