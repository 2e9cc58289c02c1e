//! The calls on sets as complete functions: each asks the in-process side first and makes the
//! system call if that does not answer. [`change`] and [`wait`] are the safe ones.

use crate::set::epoll_wait::wait_whole;
use crate::set::wait::timespec_of;
use crate::set::{self, Limit, Mask};
use crate::sys::{self, Errno, SIGSET_BYTES};
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{epoll_event, timespec};

/// epoll_ctl(2).
///
/// # Errors
/// As epoll_ctl(2).
///
/// # Safety
/// `event` is valid, null, or not needed.
pub unsafe fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { set::epoll_ctl(epfd, op, fd, event) }.or_kernel(|| sys::epoll_ctl(epfd, op, fd, event))
}

/// epoll_wait(2).
///
/// # Errors
/// As epoll_wait(2).
///
/// # Safety
/// `events` has room for `maxevents` events.
pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    milliseconds: c_int,
) -> Result<c_int, Errno> {
    let limit = Limit::Milliseconds(milliseconds);
    // SAFETY: the caller's contract.
    unsafe { wait_whole(None, epfd, events, maxevents, limit, Mask::NONE) }
}

/// epoll_pwait2(2) with the kernel's signal set, 8 bytes.
///
/// # Errors
/// As epoll_pwait2(2).
///
/// # Safety
/// `events` has room for `maxevents` events; `limit` and `mask` are valid or null.
pub unsafe fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: *const timespec,
    mask: *const u64,
) -> Result<c_int, Errno> {
    let mask = Mask { set: mask.cast(), bytes: SIGSET_BYTES };
    // SAFETY: the caller's contract.
    unsafe { wait_whole(None, epfd, events, maxevents, Limit::Timespec(limit), mask) }
}

/// epoll_ctl(2) with an event that is there. `EPOLL_CTL_DEL` does not look at it.
///
/// # Errors
/// As epoll_ctl(2).
pub fn change(epfd: c_int, op: c_int, fd: c_int, event: epoll_event) -> Result<(), Errno> {
    // SAFETY: a valid event.
    unsafe { epoll_ctl(epfd, op, fd, &raw const event) }
}

/// epoll_wait(2) into a slice: how many events have come. `None` for no limit. A limit that is not
/// whole milliseconds is epoll_pwait2(2)'s where the kernel has that, and rounded up elsewhere.
///
/// # Errors
/// As epoll_wait(2): EBADF, EINTR, EINVAL. EINVAL also for an empty slice.
pub fn wait(
    epfd: c_int,
    events: &mut [epoll_event],
    limit: Option<Duration>,
) -> Result<usize, Errno> {
    let capacity = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let events = events.as_mut_ptr();
    let milliseconds = limit.map_or(-1, |limit| {
        c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    });
    let exact = limit.filter(|limit| !limit.subsec_nanos().is_multiple_of(1_000_000));
    let found = exact.map_or(Err(Errno::ENOSYS), |limit| {
        let limit = timespec_of(limit);
        // SAFETY: room for as many as the slice has, and a valid time.
        unsafe { epoll_pwait2(epfd, events, capacity, &raw const limit, ptr::null()) }
    });
    let found = match found {
        // SAFETY: room for as many as the slice has.
        Err(Errno::ENOSYS) => unsafe { epoll_wait(epfd, events, capacity, milliseconds) },
        found => found,
    };
    found.map(|found| usize::try_from(found).unwrap_or(0))
}
