//! System calls, made without libc, whose functions an interposer may have replaced.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::time::Duration;
use libc::{epoll_event, pollfd, timespec};
use syscalls::{Errno, Sysno, syscall};

/// The size of the kernel's signal set.
pub(crate) const SIGSET_BYTES: usize = 8;

pub(crate) fn epoll_create() -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    unsafe { syscall!(Sysno::epoll_create1, libc::EPOLL_CLOEXEC) }.map(|fd| fd as c_int)
}

pub(crate) fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    events: u32,
    data: u64,
) -> Result<(), Errno> {
    let event = epoll_event { events, u64: data };
    // SAFETY: a valid event.
    unsafe { syscall!(Sysno::epoll_ctl, set, op, fd, &raw const event) }.map(drop)
}

/// Whether an error may come from a filter (seccomp(2)), or from a kernel that does not know the
/// call.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::EPERM | Errno::ENOSYS | Errno::EACCES)
}

/// A call that a filter may refuse, or else its older relative, which x86-64 has.
macro_rules! or_older {
    ($call:expr, $older:ident $(, $argument:expr)*) => {
        match $call {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the same memory.
            Err(error) if is_refusal(error) => unsafe {
                syscall!(Sysno::$older $(, $argument)*).map_err(|_| error)
            },
            result => result,
        }
    };
}

/// epoll_pwait(2), or epoll_pwait2(2) where a limit needs it and Linux has it (5.11); no mask.
pub(crate) fn epoll_wait(
    set: c_int,
    events: &mut [epoll_event],
    limit: Option<Duration>,
) -> Result<usize, Errno> {
    let (place, maxevents) = (events.as_mut_ptr(), events.len());
    let mask = ptr::null::<c_void>();
    // SAFETY: room for `maxevents` events.
    let masked = |limit: i64| unsafe {
        syscall!(Sysno::epoll_pwait, set, place, maxevents, limit, mask, SIGSET_BYTES)
    };
    let coarse = |limit: i64| or_older!(masked(limit), epoll_wait, set, place, maxevents, limit);
    let Some(limit) = limit else { return coarse(-1) };
    let milliseconds = i64::from(milliseconds_of(Some(limit)));
    if limit.subsec_nanos().is_multiple_of(1_000_000) {
        return coarse(milliseconds);
    }
    let limit =
        timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: as above, and a valid limit.
    match unsafe {
        syscall!(Sysno::epoll_pwait2, set, place, maxevents, &raw const limit, mask, SIGSET_BYTES)
    } {
        Err(error) if is_refusal(error) => coarse(milliseconds),
        result => result,
    }
}

/// A timerfd of the monotonic clock.
pub(crate) fn timer() -> Result<c_int, Errno> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: no memory is involved.
    unsafe { syscall!(Sysno::timerfd_create, libc::CLOCK_MONOTONIC, flags) }.map(|fd| fd as c_int)
}

/// Sets a timerfd: it becomes ready after this time, and is not ready until then.
pub(crate) fn set_timer(timer: c_int, after: Duration) -> Result<(), Errno> {
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    let after =
        timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
    let setting = libc::itimerspec { it_interval: none, it_value: after };
    // SAFETY: a valid setting.
    unsafe { syscall!(Sysno::timerfd_settime, timer, 0, &raw const setting, 0) }.map(drop)
}

/// poll(2). `None` is no limit.
pub(crate) fn poll(entries: &mut [pollfd], limit: Option<Duration>) -> Result<usize, Errno> {
    let (place, count) = (entries.as_mut_ptr(), entries.len());
    let exact = limit.map(to_timespec);
    let exact = exact.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: that many entries, and a valid limit or none.
    let polled =
        unsafe { syscall!(Sysno::ppoll, place, count, exact, ptr::null::<c_void>(), SIGSET_BYTES) };
    or_older!(polled, poll, place, count, milliseconds_of(limit))
}

/// A limit as poll(2) takes it, rounded up.
fn milliseconds_of(limit: Option<Duration>) -> c_int {
    limit.map_or(-1, |limit| {
        c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    })
}

/// poll(2) with a limit of 0.
pub(crate) fn poll_now(entries: &mut [pollfd]) -> Result<usize, Errno> {
    poll(entries, Some(Duration::ZERO))
}

/// Whether poll(2) reports anything about a descriptor now.
pub(crate) fn is_ready(fd: c_int) -> bool {
    let mut entry = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    poll_now(&mut entry).is_ok_and(|found| found > 0)
}

pub(crate) fn is_listening(fd: c_int) -> Result<bool, Errno> {
    let mut listening: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    // SAFETY: a place for an int and its length.
    unsafe { syscall!(Sysno::getsockopt, fd, level, option, &raw mut listening, &raw mut len) }?;
    Ok(listening != 0)
}

pub(crate) fn inode(fd: c_int) -> Option<u64> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for the answer.
    unsafe { syscall!(Sysno::fstat, fd, status.as_mut_ptr()) }.ok()?;
    // SAFETY: the kernel has written it.
    Some(unsafe { status.assume_init() }.st_ino)
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: the caller's own descriptor.
    let _ = unsafe { syscall!(Sysno::close, fd) };
}

/// The time of the monotonic clock.
pub(crate) fn now() -> Duration {
    wakeset::Deadline::now().since_boot()
}

pub(crate) fn to_timespec(time: Duration) -> timespec {
    let seconds = time.as_secs().min(libc::time_t::MAX as u64) as libc::time_t;
    timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}
