//! The system calls of this module, made without libc, whose functions an interposer may have replaced.

use core::ffi::{c_int, c_void};
use core::ptr;
use libc::{epoll_event, timespec};
use syscalls::{Errno, Sysno, syscall};

/// The size of the kernel's signal set.
pub(super) const SIGSET_BYTES: usize = 8;

pub(super) fn epoll_create() -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    unsafe { syscall!(Sysno::epoll_create1, libc::EPOLL_CLOEXEC) }.map(|fd| fd as c_int)
}

pub(super) fn epoll_ctl(set: c_int, op: c_int, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
    let event = epoll_event { events, u64: data };
    // SAFETY: a valid event.
    unsafe { syscall!(Sysno::epoll_ctl, set, op, fd, &raw const event) }.map(drop)
}

/// epoll_pwait2(2), or epoll_pwait(2) before Linux 5.11; no mask.
pub(super) fn epoll_wait(set: c_int, events: &mut [epoll_event], limit: timespec) -> Result<usize, Errno> {
    let (place, room) = (events.as_mut_ptr(), events.len());
    let mask = ptr::null::<c_void>();
    // SAFETY: room for that many events, and a valid limit.
    match unsafe { syscall!(Sysno::epoll_pwait2, set, place, room, &raw const limit, mask, SIGSET_BYTES) } {
        Err(Errno::ENOSYS) => {
            let milliseconds = limit.tv_sec * 1000 + (limit.tv_nsec + 999_999) / 1_000_000;
            // SAFETY: as above.
            unsafe { syscall!(Sysno::epoll_pwait, set, place, room, milliseconds, mask, SIGSET_BYTES) }
        }
        result => result,
    }
}

/// Whether poll(2) has anything to say of a descriptor now.
pub(super) fn is_ready(fd: c_int) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one entry, and a valid limit.
    let found =
        unsafe { syscall!(Sysno::ppoll, &raw mut entry, 1, &raw const now, ptr::null::<c_void>(), SIGSET_BYTES) };
    found.is_ok_and(|found| found > 0)
}

pub(super) fn is_listening(fd: c_int) -> Result<bool, Errno> {
    let mut listening: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    // SAFETY: a place for an int and its length.
    unsafe { syscall!(Sysno::getsockopt, fd, level, option, &raw mut listening, &raw mut len) }?;
    Ok(listening != 0)
}

pub(super) fn close(fd: c_int) {
    // SAFETY: the caller's own descriptor.
    let _ = unsafe { syscall!(Sysno::close, fd) };
}

pub(super) fn getpid() -> c_int {
    // SAFETY: no memory is involved.
    unsafe { syscall!(Sysno::getpid) }.map_or(0, |pid| pid as c_int)
}
