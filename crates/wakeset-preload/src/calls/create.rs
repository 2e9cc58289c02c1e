//! The calls that make eventfds, timerfds, pipes and pairs, and those of timerfds alone. What they
//! make is in process, or the kernel's where it cannot be; either way the call is answered here.
//! Once everything is left to the kernel for good, libc's functions make it, so that a preload
//! behind ours sees the call.

use super::instruction;
use super::room;
use super::row::Registers;
use core::ffi::{c_int, c_long, c_uint};
use libc::itimerspec;
use wakeset_fd::interpose::{answered_unit, returned, returned_unit};
use wakeset_fd::waits::is_refusal;
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
    instruction::before_object();
    if migrate::is_for_good() {
        return call(initial, flags);
    }
    returned_fd(room::answered(|| counter::eventfd(initial, flags)))
}

/// eventfd(2), the older system call, which takes no flags.
pub(super) fn raw_eventfd(registers: Registers, call: impl FnOnce(Registers) -> c_long) -> c_long {
    let [initial, ..] = registers;
    instruction::before_object();
    match room::answered(|| counter::eventfd(initial as c_uint, 0)) {
        // A filter may know this call and not its relative.
        Err(error) if is_refusal(error) => call(registers),
        result => returned_fd(result).into(),
    }
}

/// timerfd_create(2).
pub(super) fn timerfd_create(
    clock: c_int,
    flags: c_int,
    call: impl FnOnce(c_int, c_int) -> c_int,
) -> c_int {
    instruction::before_object();
    if migrate::is_for_good() {
        return call(clock, flags);
    }
    returned_fd(room::answered(|| timer::timerfd_create(clock, flags)))
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
    instruction::before_object();
    if migrate::is_for_good() {
        return call(fds);
    }
    // SAFETY: the caller's contract.
    match room::answered(|| unsafe { wakeset_fd::pipe::pipe2(fds, 0) }) {
        // libc makes pipe2(2), too. A program that makes pipe(2) by its number may do so where a
        // filter knows nothing else.
        Err(error) if is_refusal(error) => call(fds),
        result => returned_unit(result),
    }
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
    instruction::before_object();
    if migrate::is_for_good() {
        return call(fds, flags);
    }
    // SAFETY: the caller's contract.
    returned_unit(room::answered(|| unsafe { wakeset_fd::pipe::pipe2(fds, flags) }))
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
    instruction::before_object();
    if migrate::is_for_good() {
        return call(domain, kind, protocol, fds);
    }
    // SAFETY: the caller's contract.
    let make = || unsafe { wakeset_fd::pipe::socketpair(domain, kind, protocol, fds) };
    returned_unit(room::answered(make))
}
