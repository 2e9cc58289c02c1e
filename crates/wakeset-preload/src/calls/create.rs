//! The calls that make eventfds, timerfds, pipes and pairs, and those of timerfds alone. What they
//! make is in process, or the kernel's where it cannot be; either way the call is answered here.
//! Once everything is left to the kernel for good, libc's functions make it, so that a preload
//! behind ours sees the call.

use super::row::Registers;
use crate::process::start;
use core::ffi::{c_int, c_long, c_uint};
use libc::itimerspec;
use wakeset_fd::interpose::{answered_unit, returned, returned_unit};
use wakeset_fd::{Errno, counter, migrate, timer};

fn returned_fd(result: Result<c_int, Errno>) -> c_int {
    returned(result.map(|fd| fd as isize)) as c_int
}

/// eventfd(2), the function, which is eventfd2(2), the system call.
pub(super) fn eventfd(
    initial: c_uint,
    flags: c_int,
    call: impl FnOnce(c_uint, c_int) -> c_int,
) -> c_int {
    start::ensure();
    if migrate::is_for_good() {
        return call(initial, flags);
    }
    returned_fd(counter::eventfd(initial, flags))
}

/// eventfd(2), the older system call, which takes no flags.
pub(super) fn raw_eventfd([initial, ..]: Registers, _: impl FnOnce(Registers) -> c_long) -> c_long {
    start::ensure();
    returned_fd(counter::eventfd(initial as c_uint, 0)).into()
}

/// timerfd_create(2).
pub(super) fn timerfd_create(
    clock: c_int,
    flags: c_int,
    call: impl FnOnce(c_int, c_int) -> c_int,
) -> c_int {
    start::ensure();
    if migrate::is_for_good() {
        return call(clock, flags);
    }
    returned_fd(timer::timerfd_create(clock, flags))
}

/// timerfd_settime(2).
///
/// # Safety
/// As timerfd_settime(2).
pub(super) unsafe fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
    call: impl FnOnce(c_int, c_int, *const itimerspec, *mut itimerspec) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_settime(fd, flags, new, old) };
    answered_unit(verdict, || call(fd, flags, new, old))
}

/// timerfd_gettime(2).
///
/// # Safety
/// As timerfd_gettime(2).
pub(super) unsafe fn timerfd_gettime(
    fd: c_int,
    current: *mut itimerspec,
    call: impl FnOnce(c_int, *mut itimerspec) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_gettime(fd, current) };
    answered_unit(verdict, || call(fd, current))
}

/// pipe(2).
///
/// # Safety
/// As pipe(2).
pub(super) unsafe fn pipe(fds: *mut c_int, call: impl FnOnce(*mut c_int) -> c_int) -> c_int {
    start::ensure();
    if migrate::is_for_good() {
        return call(fds);
    }
    // SAFETY: the caller's contract.
    returned_unit(unsafe { wakeset_fd::pipe::pipe2(fds, 0) })
}

/// pipe2(2).
///
/// # Safety
/// As pipe2(2).
pub(super) unsafe fn pipe2(
    fds: *mut c_int,
    flags: c_int,
    call: impl FnOnce(*mut c_int, c_int) -> c_int,
) -> c_int {
    start::ensure();
    if migrate::is_for_good() {
        return call(fds, flags);
    }
    // SAFETY: the caller's contract.
    returned_unit(unsafe { wakeset_fd::pipe::pipe2(fds, flags) })
}

/// socketpair(2).
///
/// # Safety
/// As socketpair(2).
pub(super) unsafe fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    fds: *mut c_int,
    call: impl FnOnce(c_int, c_int, c_int, *mut c_int) -> c_int,
) -> c_int {
    start::ensure();
    if migrate::is_for_good() {
        return call(domain, kind, protocol, fds);
    }
    // SAFETY: the caller's contract.
    returned_unit(unsafe { wakeset_fd::pipe::socketpair(domain, kind, protocol, fds) })
}
