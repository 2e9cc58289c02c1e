//! What everything else stands on: system calls, the program's memory, signals and threads.
//!
//! System calls are made without libc, whose functions are the ones that the preload library
//! replaces.

pub(crate) mod births;
pub mod cancel;
pub(crate) mod complaint;
pub(crate) mod elsewhere;
pub(crate) mod essential;
pub(crate) mod forked;
pub mod handled;
pub(crate) mod handler;
pub(crate) mod kind;
pub(crate) mod memory;
pub mod notice;
pub mod own_calls;
pub(crate) mod path;
pub(crate) mod process;
pub mod refusable;
pub mod reserved;
pub mod signal_guard;
mod signal_safe_lock;
mod stack;
#[cfg(wakeset_steps)]
#[doc(hidden)]
pub mod steps;
#[cfg(not(wakeset_steps))]
pub(crate) mod steps;
pub(crate) mod sync;
pub mod tallies;
mod thread_words;
mod threads;
pub mod user;
pub(crate) mod verdict;
pub(crate) mod vforked;
pub mod waits;

use core::ffi::{c_int, c_uint};
use core::time::Duration;
use libc::{epoll_event, itimerspec, timespec};
use refusable::refusable;
pub use syscalls::{Errno, Sysno};
#[cfg(target_arch = "x86_64")]
pub(crate) use thread_words::offset as thread_words_offset;
pub(crate) use thread_words::{
    last_poller, poller, set_last_poller, set_poller, set_stripe, set_thread_name, stripe,
    thread_name,
};
pub(crate) use threads::{count_threads, gettid, is_thread, others_sleep};
pub(crate) use waits::{
    epoll_pwait, epoll_pwait2, is_refusal, pause, poll as poll_entries, poll_all_now, poll_now,
    poll_within, wait_for_nothing,
};

/// One raw system call.
macro_rules! raw {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the caller that passes the arguments vouches for what they point to.
        unsafe { syscalls::syscall!(syscalls::Sysno::$number $(, $argument)*) }
    };
}
pub(crate) use raw;

/// The size of the kernel's signal set.
pub(crate) const SIGSET_BYTES: usize = 8;

pub(crate) fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno> {
    raw!(write, fd, buffer, len)
}

pub(crate) fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno> {
    raw!(read, fd, buffer, len)
}

pub(crate) fn close(fd: c_int) -> Result<(), Errno> {
    raw!(close, fd).map(drop)
}

pub(crate) fn dup(fd: c_int) -> Result<c_int, Errno> {
    raw!(dup, fd).map(|fd| fd as c_int)
}

pub(crate) fn dup_to(fd: c_int, new: c_int) -> Result<(), Errno> {
    raw!(dup3, fd, new, libc::O_CLOEXEC).map(drop)
}

pub(crate) fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int, Errno> {
    raw!(fcntl, fd, command, argument).map(|result| result as c_int)
}

/// How many processors the calling thread may use; `None` where that cannot be asked.
pub(crate) fn processors() -> Option<u32> {
    let mut allowed = [0_u64; 128];
    let asked =
        refusable::refusable!(sched_getaffinity, 0, size_of_val(&allowed), allowed.as_mut_ptr());
    asked.ok().map(|_| allowed.iter().map(|word| word.count_ones()).sum())
}

/// A duplicate under a number that is not below `lowest`, closed by an exec. It may be refused.
pub(crate) fn duplicate_above(fd: c_int, lowest: usize) -> Option<c_int> {
    refusable!(fcntl, fd, libc::F_DUPFD_CLOEXEC, lowest).ok().map(|fd| fd as c_int)
}

/// An option of a socket at the level `SOL_SOCKET` that is an int.
///
/// # Errors
/// As getsockopt(2): EBADF, ENOTSOCK. It may be refused.
pub(crate) fn socket_option(fd: c_int, option: c_int) -> Result<c_int, Errno> {
    let (mut value, mut len) = (0_i32, size_of::<c_int>() as libc::socklen_t);
    refusable!(getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut len)?;
    Ok(value)
}

pub(crate) fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
    raw!(eventfd2, initial, flags).map(|fd| fd as c_int)
}

pub(crate) fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
    raw!(timerfd_create, clock, flags).map(|fd| fd as c_int)
}

pub(crate) fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Result<(), Errno> {
    raw!(timerfd_settime, fd, flags, new, old).map(drop)
}

pub(crate) fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno> {
    raw!(timerfd_gettime, fd, current).map(drop)
}

pub(crate) fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
    raw!(epoll_create1, flags).map(|fd| fd as c_int)
}

pub(crate) fn epoll_create(size: c_int) -> Result<c_int, Errno> {
    #[cfg(target_arch = "x86_64")]
    return raw!(epoll_create, size).map(|fd| fd as c_int);
    #[cfg(not(target_arch = "x86_64"))]
    return if size > 0 { epoll_create1(0) } else { Err(Errno::EINVAL) };
}

pub(crate) fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> Result<(), Errno> {
    raw!(epoll_ctl, epfd, op, fd, event).map(drop)
}

/// Maps `len` bytes, all zero, that a fork wipes in the child. The mapping is the caller's.
pub(crate) fn map_wiped_on_fork(len: usize) -> Option<*mut u8> {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    let start = raw!(mmap, 0, len, access, kind, -1_isize, 0).ok()?;
    if raw!(madvise, start, len, libc::MADV_WIPEONFORK).is_err() {
        let _ = raw!(munmap, start, len);
        return None;
    }
    Some(start as *mut u8)
}

/// RLIMIT_NOFILE: one above the highest number that a descriptor may get; 0 where that cannot be
/// found out.
pub(crate) fn number_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    match raw!(prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit) {
        Ok(_) => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        Err(_) => 0,
    }
}

/// RLIMIT_FSIZE: how many bytes a file may have; 0 where that cannot be found out.
pub(crate) fn file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    match raw!(prlimit64, 0, libc::RLIMIT_FSIZE, 0, &raw mut limit) {
        Ok(_) => limit.rlim_cur,
        Err(_) => 0,
    }
}

/// Sets the calling thread's signal mask and returns the previous one.
pub(crate) fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let _ = raw!(rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, SIGSET_BYTES);
    before
}

pub(crate) fn getpid() -> c_int {
    raw!(getpid).map_or(0, |pid| pid as c_int)
}

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const FUTEX_WAIT_BITSET_PRIVATE: usize = 137;

/// Sleeps while `word` is `value`. The sleep may end early.
pub(crate) fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let _ = raw!(futex, word.as_ptr(), FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
}

/// [`futex_wait`] for so long at most; whether that time has passed.
pub(crate) fn futex_wait_for(
    word: &core::sync::atomic::AtomicU32,
    value: u32,
    limit: Duration,
) -> bool {
    let limit =
        libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    raw!(futex, word.as_ptr(), FUTEX_WAIT_PRIVATE, value, &raw const limit, 0, 0)
        == Err(Errno::ETIMEDOUT)
}

/// Sleeps while `word` is `value`, until a point on `CLOCK_MONOTONIC` at most. A signal handler
/// ends the sleep, also one with `SA_RESTART`.
///
/// # Errors
/// ETIMEDOUT, EINTR; EAGAIN: the word had changed.
pub(crate) fn futex_sleep(
    word: &core::sync::atomic::AtomicU32,
    value: u32,
    until: &timespec,
) -> Result<(), Errno> {
    let until = core::ptr::from_ref(until);
    raw!(futex, word.as_ptr(), FUTEX_WAIT_BITSET_PRIVATE, value, until, 0, u32::MAX).map(drop)
}

/// The signals that are pending and that the thread blocks; `None` where a filter refuses the
/// question.
pub(crate) fn pending_signals() -> Option<u64> {
    let mut pending = 0_u64;
    raw!(rt_sigpending, &raw mut pending, SIGSET_BYTES).ok().map(|_| pending)
}

/// Wakes up to `n` threads that sleep on `word`.
pub(crate) fn futex_wake(word: &core::sync::atomic::AtomicU32, n: u32) {
    let _ = raw!(futex, word.as_ptr(), FUTEX_WAKE_PRIVATE, n, 0, 0, 0);
}

pub(crate) fn sched_yield() {
    let _ = raw!(sched_yield);
}

/// The end of user memory with four levels of page tables. With five there is more, for programs
/// that ask for it.
const USER_END: usize = (1 << 47) - 4096;

/// Returns whether `len` bytes from `start` lie in user memory. Otherwise the kernel fails with
/// EFAULT before it does anything, whichever part of the bytes it would have used.
#[inline(always)]
pub(crate) fn is_user<T>(start: *const T, len: usize) -> bool {
    USER_END.checked_sub(len).is_some_and(|last| start.addr() <= last)
}

/// As [`is_user`], but `false` for null and for small addresses (a field of a null pointer), where
/// an access would fault.
#[inline(always)]
pub(crate) fn is_plausible<T>(start: *const T, len: usize) -> bool {
    const FIRST: usize = 4096;
    // What is below becomes huge.
    let start = start.addr().wrapping_sub(FIRST);
    (USER_END - FIRST).checked_sub(len).is_some_and(|last| start <= last)
}
