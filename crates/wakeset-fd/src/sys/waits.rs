//! Calls that wait. A filter (seccomp(2)) may know the one that the program makes and not its
//! relatives, so each goes on to a relative where it is refused.

use super::{Errno, SIGSET_BYTES, raw};
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{epoll_event, pollfd, timespec};

/// Whether an error may come from a filter, or from a kernel that does not know the call. No call
/// for which this is asked has such an error of its own.
pub fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::EPERM | Errno::ENOSYS | Errno::EACCES)
}

/// The result, or that of `other` if the call was refused. A relative that is refused as well is
/// none: the first result counts.
fn unless_refused<T>(
    result: Result<T, Errno>,
    other: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match result {
        Err(error) if is_refusal(error) => match other() {
            Err(other) if is_refusal(other) => Err(error),
            other => other,
        },
        result => result,
    }
}

/// epoll_wait(2) or epoll_pwait(2). Without a mask the first is made if `mask_bytes` is 0, and
/// either if the other is refused.
pub(crate) fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    milliseconds: c_int,
    mask: *const u8,
    mask_bytes: usize,
) -> Result<c_int, Errno> {
    let masked = || raw!(epoll_pwait, epfd, events, maxevents, milliseconds, mask, mask_bytes);
    #[cfg(target_arch = "x86_64")]
    let result = {
        let bare = || raw!(epoll_wait, epfd, events, maxevents, milliseconds);
        match (mask.is_null(), mask_bytes) {
            (false, _) => masked(),
            (true, 0) => unless_refused(bare(), masked),
            (true, _) => unless_refused(masked(), bare),
        }
    };
    #[cfg(not(target_arch = "x86_64"))]
    let result = masked();
    result.map(|n| n as c_int)
}

pub(crate) fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Option<&timespec>,
    mask: *const u8,
    mask_bytes: usize,
) -> Result<c_int, Errno> {
    let limit = limit.map_or(ptr::null(), ptr::from_ref);
    raw!(epoll_pwait2, epfd, events, maxevents, limit, mask, mask_bytes).map(|n| n as c_int)
}

/// ppoll(2), or poll(2) with the limit rounded up where that is refused and there is no mask. A
/// signal handler may change the entries until the call has begun.
///
/// # Safety
/// As ppoll(2).
pub unsafe fn ppoll(
    entries: *mut pollfd,
    n: usize,
    limit: Option<&timespec>,
    mask: *const u8,
) -> Result<usize, Errno> {
    // The kernel writes back what is left.
    let mut left = limit.copied();
    let place = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let exact = raw!(ppoll, entries, n, place, mask, SIGSET_BYTES);
    #[cfg(target_arch = "x86_64")]
    if mask.is_null() {
        return unless_refused(exact, || raw!(poll, entries, n, milliseconds_of(limit)));
    }
    exact
}

/// As poll(2) has a limit: rounded up.
#[cfg(target_arch = "x86_64")]
fn milliseconds_of(limit: Option<&timespec>) -> c_int {
    let Some(limit) = limit else { return -1 };
    let milliseconds =
        limit.tv_sec.saturating_mul(1000).saturating_add((limit.tv_nsec + 999_999) / 1_000_000);
    c_int::try_from(milliseconds).unwrap_or(c_int::MAX)
}

/// poll(2), or ppoll(2) where that is refused.
#[inline(always)]
pub(crate) fn poll(entries: *mut pollfd, n: usize, limit: Duration) -> Result<usize, Errno> {
    let limit = timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // SAFETY: the caller vouches for the entries.
    let exact = || unsafe { ppoll(entries, n, Some(&limit), ptr::null()) };
    #[cfg(target_arch = "x86_64")]
    {
        unless_refused(raw!(poll, entries, n, milliseconds_of(Some(&limit))), exact)
    }
    #[cfg(not(target_arch = "x86_64"))]
    exact()
}

/// select(2) without time. It may be refused.
#[inline(always)]
pub(crate) fn select_now(n: c_int, sets: [*mut u64; 3]) -> Result<usize, Errno> {
    let [read, write, except] = sets;
    let mut no_time = [0_u64; 2];
    #[cfg(target_arch = "x86_64")]
    return raw!(select, n, read, write, except, no_time.as_mut_ptr());
    #[cfg(not(target_arch = "x86_64"))]
    return raw!(pselect6, n, read, write, except, no_time.as_mut_ptr(), 0);
}

/// The events that poll(2) reports for one descriptor now; 0 for none.
pub(crate) fn poll_now(fd: c_int, events: i16) -> i16 {
    poll_within(fd, events, Duration::ZERO)
}

/// The events that poll(2) reports for one descriptor within this time; 0 for none.
pub(crate) fn poll_within(fd: c_int, events: i16, limit: Duration) -> i16 {
    let mut entry = pollfd { fd, events, revents: 0 };
    match poll(&raw mut entry, 1, limit) {
        Ok(_) => entry.revents,
        Err(_) => 0,
    }
}

/// poll(2) of all `entries` at this moment. Returns whether the kernel answers: it does not if the
/// process may have no descriptors (RLIMIT_NOFILE), as a sandbox demands of a process that has all
/// it needs.
pub(crate) fn poll_all_now(entries: &mut [pollfd]) -> bool {
    let poll = |entries: &mut [pollfd]| {
        let polled = poll(entries.as_mut_ptr(), entries.len(), Duration::ZERO);
        // EINTR: none of them has anything, and a signal is on its way.
        matches!(polled, Ok(_) | Err(Errno::EINTR))
    };
    // One at a time where the kernel has no memory for so many, or the limit allows fewer.
    entries.is_empty() || poll(entries) || entries.chunks_mut(1).all(poll)
}

/// Sleeps until a signal handler has run, and fails with EINTR.
pub(crate) fn pause() -> Result<c_int, Errno> {
    wait_for_nothing(None, ptr::null())
}

/// Sleeps as a wait on nothing does: returns 0 when the time is up, fails with EINTR when a signal
/// handler has run.
pub(crate) fn wait_for_nothing(limit: Option<&timespec>, mask: *const u8) -> Result<c_int, Errno> {
    // SAFETY: no entries, and a mask that the caller vouches for.
    unsafe { ppoll(ptr::null_mut(), 0, limit, mask) }.map(|n| n as c_int)
}
