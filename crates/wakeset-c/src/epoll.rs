//! The epoll calls.

use crate::fork::watch_forks;
use crate::outcome::{answered_unit, fail, returned, whole};
use core::ffi::c_int;
use libc::{epoll_event, sigset_t, timespec};
use wakeset_fd::interpose::{answered_int, mask_of, wait_in_kernel};
use wakeset_fd::set::{self, Limit, Mask};

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
    let call =
        |limit: Limit| unsafe { real::epoll_wait(epfd, events, capacity, limit.milliseconds()) };
    let limit = Limit::Milliseconds(timeout);
    // SAFETY: as above.
    whole(|| unsafe { wait(epfd, events, capacity, limit, Mask::NONE, call) })
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
    let call = |limit: Limit| unsafe {
        real::epoll_pwait(epfd, events, capacity, limit.milliseconds(), mask)
    };
    let limit = Limit::Milliseconds(timeout);
    // SAFETY: as above.
    whole(|| unsafe { wait(epfd, events, capacity, limit, mask_of(mask), call) })
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
    let limit = Limit::Timespec(timeout);
    let of_kernel = mask_of(mask);
    let call = |limit: Limit| {
        let (number, limit, bytes) = (libc::SYS_epoll_pwait2, limit.timespec(), of_kernel.bytes);
        // SAFETY: the caller's contract, here and below.
        unsafe { libc::syscall(number, epfd, events, capacity, limit, mask, bytes) as c_int }
    };
    // SAFETY: as above.
    whole(|| unsafe { wait(epfd, events, capacity, limit, of_kernel, call) })
}

/// A wait. After a sleep in a set of the kernel's that something of ours has ended, the number may
/// stand for a set of ours ([`ws_epoll_ctl_source`](crate::source::ws_epoll_ctl_source)).
///
/// # Safety
/// As epoll_pwait2(2); `call` is one of the family, with a limit of the same form.
unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    limit: Limit,
    mask: Mask,
    call: impl Fn(Limit) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let verdict = unsafe { set::epoll_wait(epfd, events, capacity, limit, mask) };
    // SAFETY: as above.
    answered_int(verdict, || unsafe { wait_in_kernel(epfd, events, capacity, limit, mask, call) })
}

/// Makes a set's number one that another library's loop can poll; returns the number.
#[unsafe(no_mangle)]
pub extern "C" fn ws_epoll_pollfd(epfd: c_int) -> c_int {
    returned(set::export(epfd).map(|()| epfd as isize)) as c_int
}
