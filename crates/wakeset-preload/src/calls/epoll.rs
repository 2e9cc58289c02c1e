//! The epoll calls.

use super::instruction;
use super::room;
use super::row::Registers;
use crate::{listeners, signals};
use core::ffi::{c_int, c_long};
use core::ptr;
use libc::{epoll_event, sigset_t, timespec};
use wakeset_fd::interpose::{answered_int, answered_unit, mask_of, returned, wait_in_kernel};
use wakeset_fd::set::{self, Limit, Mask};
use wakeset_fd::{migrate, user};

/// epoll_create(2).
pub(super) fn epoll_create(size: c_int, call: impl FnOnce(c_int) -> c_int) -> c_int {
    instruction::before_object();
    if migrate::is_for_good() {
        return call(size);
    }
    returned(room::answered(|| set::epoll_create(size)).map(|fd| fd as isize)) as c_int
}

/// epoll_create1(2).
pub(super) fn epoll_create1(flags: c_int, call: impl FnOnce(c_int) -> c_int) -> c_int {
    instruction::before_object();
    if migrate::is_for_good() {
        return call(flags);
    }
    returned(room::answered(|| set::epoll_create1(flags)).map(|fd| fd as isize)) as c_int
}

/// epoll_ctl(2).
///
/// # Safety
/// As epoll_ctl(2).
pub(super) unsafe fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
    call: impl FnOnce(c_int, c_int, c_int, *mut epoll_event) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_ctl(epfd, op, fd, event) };
    let result = answered_unit(verdict, || call(epfd, op, fd, event));
    if result == 0 {
        // SAFETY: as above.
        unsafe { listeners::after_change(epfd, op, fd, event) };
    }
    result
}

/// What the calls of the epoll_wait family have in common.
///
/// # Safety
/// As epoll_pwait2(2).
#[inline]
unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    limit: Limit,
    mask: Mask,
    call: impl Fn(Limit) -> c_int,
) -> c_int {
    listeners::before_wait();
    let _uncounted = uncounted_in(mask);
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_wait(epfd, events, capacity, limit, mask) };
    answered_int(verdict, || {
        // SAFETY: as above.
        unsafe { wait_in_kernel(epfd, events, capacity, limit, mask, call) }
    })
}

/// What a mask blocks does not end the wait: see [`signals::Uncounted`].
fn uncounted_in(mask: Mask) -> Option<signals::Uncounted> {
    if mask.set.is_null() {
        return None;
    }
    // SAFETY: any bits are a mask.
    unsafe { user::load(mask.set.cast()) }.map(signals::Uncounted::begin)
}

/// A wait without a mask, if it is a quiet one. `call` is the program's, with another limit.
///
/// # Safety
/// As [`set::epoll_wait_quietly`].
#[inline(always)]
unsafe fn wait_quietly(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: c_int,
    call: impl Fn(c_int) -> c_int,
) -> Option<c_int> {
    let is_told = listeners::has_told();
    if is_told {
        listeners::before_wait();
        if listeners::has_told() {
            return None;
        }
    }
    // SAFETY: the caller's contract.
    unsafe { set::epoll_wait_quietly(epfd, events, capacity, timeout, is_told, call) }
}

/// epoll_wait(2).
///
/// # Safety
/// As epoll_wait(2).
pub(super) unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: c_int,
    call: impl Fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
) -> c_int {
    let quietly = |timeout| call(epfd, events, capacity, timeout);
    // SAFETY: the kernel returns how many it has written.
    if let Some(found) = unsafe { wait_quietly(epfd, events, capacity, timeout, quietly) } {
        return found;
    }
    let limit = Limit::Milliseconds(timeout);
    let call = |limit: Limit| call(epfd, events, capacity, limit.milliseconds());
    // SAFETY: the caller's contract.
    unsafe { wait(epfd, events, capacity, limit, Mask::NONE, call) }
}

/// epoll_pwait(2).
///
/// # Safety
/// As epoll_pwait(2).
pub(super) unsafe fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: c_int,
    mask: *const sigset_t,
    call: impl Fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int,
) -> c_int {
    if mask.is_null() {
        let quietly = |timeout| call(epfd, events, capacity, timeout, mask);
        // SAFETY: the kernel returns how many it has written.
        if let Some(found) = unsafe { wait_quietly(epfd, events, capacity, timeout, quietly) } {
            return found;
        }
    }
    // SAFETY: the caller's contract.
    let passed = unsafe { signals::PassedMask::of(mask) };
    let mask = passed.pointer();
    let limit = Limit::Milliseconds(timeout);
    let call = |limit: Limit| call(epfd, events, capacity, limit.milliseconds(), mask);
    // SAFETY: the caller's contract.
    unsafe { wait(epfd, events, capacity, limit, mask_of(mask), call) }
}

/// epoll_pwait2(2).
///
/// # Safety
/// As epoll_pwait2(2).
pub(super) unsafe fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let passed = unsafe { signals::PassedMask::of(mask) };
    let mask = passed.pointer();
    let limit = Limit::Timespec(timeout);
    let call = |limit: Limit| call(epfd, events, capacity, limit.timespec(), mask);
    // SAFETY: the caller's contract.
    unsafe { wait(epfd, events, capacity, limit, mask_of(mask), call) }
}

/// epoll_pwait(2), the system call, which has the size of the mask besides.
///
/// # Safety
/// As epoll_pwait(2).
pub(super) unsafe fn raw_epoll_pwait(
    registers: Registers,
    call: impl Fn(Registers) -> c_long,
) -> c_long {
    // SAFETY: the caller's contract.
    unsafe { raw_wait(registers, Limit::Milliseconds(registers[3] as c_int), call) }
}

/// epoll_pwait2(2), the system call, which has the size of the mask besides.
///
/// # Safety
/// As epoll_pwait2(2).
pub(super) unsafe fn raw_epoll_pwait2(
    registers: Registers,
    call: impl Fn(Registers) -> c_long,
) -> c_long {
    let limit = Limit::Timespec(ptr::with_exposed_provenance(registers[3]));
    // SAFETY: the caller's contract.
    unsafe { raw_wait(registers, limit, call) }
}

unsafe fn raw_wait(
    registers: Registers,
    limit: Limit,
    call: impl Fn(Registers) -> c_long,
) -> c_long {
    let [epfd, events, capacity, asked, mask, bytes] = registers;
    let (events_at, mask_at) = (events, mask);
    let events = ptr::with_exposed_provenance_mut(events);
    let mask = Mask { set: ptr::with_exposed_provenance(mask), bytes };
    let call = |limit| {
        let limit = match limit {
            // The register as it is, whose upper half may hold anything.
            Limit::Milliseconds(limit) if limit == asked as c_int => asked,
            Limit::Milliseconds(limit) => limit as usize,
            Limit::Timespec(limit) => limit.expose_provenance(),
        };
        call([epfd, events_at, capacity, limit, mask_at, bytes]) as c_int
    };
    // SAFETY: the caller's contract.
    unsafe { wait(epfd as c_int, events, capacity as c_int, limit, mask, call) }.into()
}
