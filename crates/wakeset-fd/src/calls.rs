//! The calls as complete functions, for whoever links this crate rather than preloading the library: each asks the in-process
//! side first and makes the system call if that does not answer.

use crate::stats::Stat;
use crate::sys::{self, Errno, SIGSET_BYTES};
use crate::verdict::Verdict;
use crate::{counter, descriptor, escape, pipe, set, timer};
use core::ffi::c_int;
use core::ptr;
use libc::{epoll_event, itimerspec, timespec};
use set::{Limit, Mask};
use wakeset::mutated;

pub use crate::counter::eventfd;
pub use crate::pipe::{pipe2, socketpair};
pub use crate::set::epoll_create1;
pub use crate::timer::timerfd_create;

/// read(2).
///
/// # Errors
/// As read(2).
///
/// # Safety
/// `buffer` is valid for `len` bytes.
pub unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    unsafe { counter::read(fd, buffer, len) }.or_kernel(|| sys::read(fd, buffer, len))
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
    unsafe { counter::write(fd, buffer, len) }.or_kernel(|| sys::write(fd, buffer, len))
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
    unsafe { pipe::recv(fd, buffer, len, flags) }
        .or_kernel(|| sys::raw!(recvfrom, fd, buffer, len, flags, ptr::null::<u8>(), ptr::null::<u8>()))
}

/// shutdown(2).
///
/// # Errors
/// As shutdown(2).
pub fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno> {
    if !mutated!("socket_shut_in_secret") {
        escape::fd(fd, Stat::MovedUnmodelled);
    }
    sys::raw!(shutdown, fd, how).map(drop)
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
    descriptor::before_dup(fd).or_kernel(|| sys::dup(fd))
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
    counter::note_nonblocking(fd, nonblocking);
    Ok(())
}

/// epoll_ctl(2).
///
/// # Errors
/// As epoll_ctl(2).
///
/// # Safety
/// `event` is valid, null, or not needed.
pub unsafe fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { set::epoll_ctl(epfd, op, fd, event) }.or_kernel(|| sys::epoll_ctl(epfd, op, fd, event))
}

/// epoll_wait(2).
///
/// # Errors
/// As epoll_wait(2).
///
/// # Safety
/// `events` has room for `room` events.
pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    milliseconds: c_int,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_wait(epfd, events, room, Limit::Milliseconds(milliseconds), Mask::NONE) };
    let call = || sys::epoll_pwait(epfd, events, room, milliseconds, ptr::null(), SIGSET_BYTES);
    // SAFETY: the kernel returns how many it has written.
    verdict.or_kernel(|| unsafe { wait_in_kernel(epfd, events, call) })
}

/// epoll_pwait2(2) with the kernel's signal set, 8 bytes.
///
/// # Errors
/// As epoll_pwait2(2).
///
/// # Safety
/// `events` has room for `room` events; `limit` and `mask` are valid or null.
pub unsafe fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: *const timespec,
    mask: *const u64,
) -> Result<c_int, Errno> {
    let mask = Mask { set: mask.cast(), bytes: SIGSET_BYTES };
    // SAFETY: the caller's contract.
    let verdict: Verdict<c_int> = unsafe { set::epoll_wait(epfd, events, room, Limit::Timespec(limit), mask) };
    verdict.or_kernel(|| {
        // SAFETY: valid or null by the caller's contract.
        let limit = unsafe { limit.as_ref() };
        let call = || sys::epoll_pwait2(epfd, events, room, limit, mask.set, mask.bytes);
        // SAFETY: the kernel returns how many it has written.
        unsafe { wait_in_kernel(epfd, events, call) }
    })
}

/// # Safety
/// As [`set::in_kernel`].
unsafe fn wait_in_kernel(
    epfd: c_int,
    events: *mut epoll_event,
    call: impl Fn() -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    let mut last = Ok(0);
    let again = || {
        last = call();
        last.unwrap_or(-1)
    };
    // SAFETY: the caller's contract.
    let found = unsafe { set::in_kernel(epfd, events, again) };
    last.map(|_| found)
}
