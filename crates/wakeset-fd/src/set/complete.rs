//! The calls on sets as complete functions: each asks the in-process side first and makes the
//! system call if that does not answer.

use crate::set::{self, Limit, Mask};
use crate::sys::verdict::Verdict;
use crate::sys::{self, Errno, SIGSET_BYTES};
use core::ffi::c_int;
use core::ptr;
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
    // SAFETY: the caller's contract.
    let verdict = unsafe {
        set::epoll_wait(epfd, events, maxevents, Limit::Milliseconds(milliseconds), Mask::NONE)
    };
    let call = || sys::epoll_pwait(epfd, events, maxevents, milliseconds, ptr::null(), 0);
    // SAFETY: the kernel returns how many it has written.
    verdict.or_kernel(|| unsafe { wait_in_kernel(epfd, events, call) })
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
    let verdict: Verdict<c_int> =
        unsafe { set::epoll_wait(epfd, events, maxevents, Limit::Timespec(limit), mask) };
    verdict.or_kernel(|| {
        // SAFETY: valid or null by the caller's contract.
        let limit = unsafe { limit.as_ref() };
        let call = || sys::epoll_pwait2(epfd, events, maxevents, limit, mask.set, mask.bytes);
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
