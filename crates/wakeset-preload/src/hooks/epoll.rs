//! The epoll calls.

use super::{listener, signal};
use crate::outcome::{answered, answered_unit, fail, returned};
use crate::real::real;
use core::ffi::c_int;
use libc::{epoll_event, sigset_t, timespec};
use wakeset_fd::set::{self, Limit, Mask};
use wakeset_fd::user;

/// epoll_create(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return fail(libc::EINVAL) as c_int;
    }
    returned(set::epoll_create1(0).map(|fd| fd as isize)) as c_int
}

/// epoll_create1(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    returned(set::epoll_create1(flags).map(|fd| fd as isize)) as c_int
}

/// epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    type Ctl = unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_ctl(epfd, op, fd, event) };
    // SAFETY: as above.
    let call = || unsafe { real!(epoll_ctl: Ctl)(epfd, op, fd, event) } as isize;
    answered_unit(verdict, call) as c_int
}

/// epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    type Wait = unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_wait(epfd, events, room, Limit::Milliseconds(timeout), Mask::NONE) };
    // SAFETY: as above.
    let call =
        || unsafe { set::in_kernel(epfd, events, || real!(epoll_wait: Wait)(epfd, events, room, timeout)) } as isize;
    let found = answered(verdict.map(|n| n as isize), call) as c_int;
    if found > 0 {
        listener::note_events();
    }
    found
}

fn mask_of(mask: *const sigset_t) -> Mask {
    // The kernel's signal set is the first 8 bytes of glibc's.
    Mask { set: mask.cast(), bytes: Mask::NONE.bytes }
}

/// What a mask blocks does not end the wait: see [`signal::Uncounted`].
fn uncounted_in(mask: *const sigset_t) -> Option<signal::Uncounted> {
    if mask.is_null() {
        return None;
    }
    // SAFETY: any bits are a mask.
    unsafe { user::load(mask.cast()) }.map(signal::Uncounted::begin)
}

/// epoll_pwait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    type Wait = unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    let _uncounted = uncounted_in(mask);
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_wait(epfd, events, room, Limit::Milliseconds(timeout), mask_of(mask)) };
    // SAFETY: as above.
    let call =
        || unsafe { set::in_kernel(epfd, events, || real!(epoll_pwait: Wait)(epfd, events, room, timeout, mask)) }
            as isize;
    let found = answered(verdict.map(|n| n as isize), call) as c_int;
    if found > 0 {
        listener::note_events();
    }
    found
}

/// epoll_pwait2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Wait = unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
    let _uncounted = uncounted_in(mask);
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_wait(epfd, events, room, Limit::Timespec(timeout), mask_of(mask)) };
    // SAFETY: as above.
    let call =
        || unsafe { set::in_kernel(epfd, events, || real!(epoll_pwait2: Wait)(epfd, events, room, timeout, mask)) }
            as isize;
    let found = answered(verdict.map(|n| n as isize), call) as c_int;
    if found > 0 {
        listener::note_events();
    }
    found
}
