//! The epoll calls.

use crate::argument::limit_of;
use crate::fork::watch_forks;
use crate::outcome::{answered_unit, fail, returned, whole};
use core::ffi::c_int;
use libc::{epoll_event, sigset_t, timespec};
use wakeset::{Deadline, Timeout};
use wakeset_fd::interpose::{mask_of, milliseconds_of, timespec_of};
use wakeset_fd::set::{self, Limit, Mask};
use wakeset_fd::{Verdict, descriptor};

mod real {
    use super::{c_int, epoll_event, sigset_t};
    unsafe extern "C-unwind" {
        pub(super) fn epoll_wait(
            epfd: c_int,
            events: *mut epoll_event,
            capacity: c_int,
            timeout: c_int,
        ) -> c_int;
        pub(super) fn epoll_pwait(
            epfd: c_int,
            events: *mut epoll_event,
            capacity: c_int,
            timeout: c_int,
            mask: *const sigset_t,
        ) -> c_int;
    }
}

/// epoll_create(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return fail(libc::EINVAL) as c_int;
    }
    ws_epoll_create1(0)
}

/// epoll_create1(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_epoll_create1(flags: c_int) -> c_int {
    watch_forks();
    returned(set::epoll_create1(flags).map(|fd| fd as isize)) as c_int
}

/// epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_ctl(epfd, op, fd, event) };
    // SAFETY: as above.
    answered_unit(verdict, || unsafe { libc::epoll_ctl(epfd, op, fd, event) })
}

/// epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let call = |timeout| unsafe { real::epoll_wait(epfd, events, capacity, timeout) };
    // SAFETY: as above.
    whole(|| unsafe { wait_milliseconds(epfd, events, capacity, timeout, Mask::NONE, call) })
}

/// epoll_pwait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let call = |timeout| unsafe { real::epoll_pwait(epfd, events, capacity, timeout, mask) };
    // SAFETY: as above.
    whole(|| unsafe { wait_milliseconds(epfd, events, capacity, timeout, mask_of(mask), call) })
}

/// # Safety
/// As epoll_pwait(2); `call` is that, or epoll_wait(2).
unsafe fn wait_milliseconds(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    mut timeout: c_int,
    mask: Mask,
    call: impl Fn(c_int) -> c_int,
) -> c_int {
    loop {
        // SAFETY: the caller's contract, here and below.
        let verdict =
            unsafe { set::epoll_wait(epfd, events, capacity, Limit::Milliseconds(timeout), mask) };
        if let Verdict::Done(result) = verdict {
            return returned(result.map(|n| n as isize)) as c_int;
        }
        let deadline = Deadline::of(Timeout::from_millis(timeout));
        // SAFETY: as above.
        if let Some(found) = unsafe { wait_in_kernel(epfd, events, || call(timeout)) } {
            return found;
        }
        timeout = milliseconds_of(deadline.map(Deadline::remaining));
    }
}

/// epoll_pwait2(2). Not through libc, which has it only since glibc 2.35.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    whole(|| {
        let mut timeout = timeout;
        let mut left;
        loop {
            // SAFETY: the caller's contract, here and below.
            let verdict = unsafe {
                set::epoll_wait(epfd, events, capacity, Limit::Timespec(timeout), mask_of(mask))
            };
            if let Verdict::Done(result) = verdict {
                return returned(result.map(|n| n as isize)) as c_int;
            }
            let (limit, bytes) = (timeout, mask_of(mask).bytes);
            // SAFETY: as above.
            let call = || unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, epfd, events, capacity, limit, mask, bytes)
            };
            // SAFETY: as above.
            let deadline = unsafe { limit_of(timeout) }
                .flatten()
                .and_then(|limit| Deadline::of(Timeout::After(limit)));
            // SAFETY: as above.
            if let Some(found) = unsafe { wait_in_kernel(epfd, events, || call() as c_int) } {
                return found;
            }
            if let Some(deadline) = deadline {
                left = timespec_of(deadline.remaining());
                timeout = &raw const left;
            }
        }
    })
}

/// A wait in a set of the kernel's. `None`: the number stands for a set of ours by now
/// ([`ws_epoll_ctl_source`](crate::source::ws_epoll_ctl_source)), and what woke the thread may be
/// there.
///
/// # Safety
/// As [`set::in_kernel`].
unsafe fn wait_in_kernel(
    epfd: c_int,
    events: *mut epoll_event,
    call: impl Fn() -> c_int,
) -> Option<c_int> {
    let mut slept = false;
    let mut is_ours = false;
    let call = || {
        is_ours = slept && descriptor::is_in_process(epfd);
        slept = true;
        if is_ours { 0 } else { call() }
    };
    // SAFETY: the caller's contract.
    let found = unsafe { set::in_kernel(epfd, events, call) };
    (!is_ours).then_some(found)
}

/// Makes a set's number one that another library's loop can poll; returns the number.
#[unsafe(no_mangle)]
pub extern "C" fn ws_epoll_pollfd(epfd: c_int) -> c_int {
    returned(set::export(epfd).map(|()| epfd as isize)) as c_int
}
