//! poll(2) and select(2), answered in process as far as what they name is: see
//! `docs/design/poll.md`.
//!
//! | file | what |
//! |---|---|
//! | this one | how a call ends, what it names, and the functions that preload library and C library call |
//! | `entries` | what a call asks for, as an array of pollfd, and one look at all of it |
//! | `counted` | what a call names that may come home, in which it is counted while it lasts |
//! | `kernels` | whether a call is the kernel's alone |
//! | `select` | select(2)'s sets as such an array |
//! | `room` | where the array is, and how long it may be |
//! | `at_once` | a call without time: one look |
//! | `quick_look`, `quick_select` | the same in one function, for what most such calls name |
//! | `wait` | one call: look, spin, sleep, look |
//! | `host` | a poller as a migration sees it |
//! | `poller` | what a thread sleeps in: a set of the engine that nobody sees |
//! | `sleeper` | how it falls asleep, and how it is woken |
//! | `pool` | the pollers of the process, and which one is the thread's |
//!
//! A call looks first, and has no entry in any wait queue while it looks or spins. Only before it
//! sleeps does a poller watch what the call names. What Linux does decides what is looked at: each
//! look asks for the numbers anew, so one that was closed meanwhile is POLLNVAL and one that was
//! replaced is the new file, while the entries in the wait queues are those of the objects that the
//! numbers stood for when the sleep began.

mod at_once;
mod counted;
mod entries;
mod host;
mod kernels;
mod poller;
mod pool;
mod quick_look;
mod quick_select;
mod room;
mod select;
mod sleeper;
mod wait;

pub use self::kernels::{first_unsure, sets_are_kernels};
pub use self::pool::before_handler;
#[cfg(test)]
pub(crate) use self::pool::begin_anew_without_memory;

use self::entries::Polled;
use self::select::Selected;
use crate::sys::process::is_foreign;
use crate::sys::{Errno, user};
use crate::table::{self, Bytes, away};
use core::ffi::c_int;
use core::time::Duration;
use libc::{fd_set, nfds_t, pollfd, sigset_t};
use wakeset::Timeout;

/// How a call is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a call that is not done has to be made"]
pub enum Outcome {
    /// In the kernel, as the program made it: nothing that it names is in process any more.
    Unchanged,
    /// The call is over: how many are ready, or an error.
    Done(Result<usize, Errno>),
    /// In the kernel, with so much time, because nothing that it names is in process any more;
    /// `None` for no limit.
    Rest(Option<Duration>),
}

/// Whether an array of pollfd names an object that lives here, or may come home. What the kernel
/// will say EFAULT to names none.
///
/// # Safety
/// `fds` is valid for `n` entries, or the kernel will say EFAULT.
#[inline]
pub unsafe fn names_object(fds: *const pollfd, n: nfds_t) -> bool {
    if table::numbers().is_empty() || fds.is_null() {
        return false;
    }
    for i in 0..n as usize {
        // SAFETY: any bits are a pollfd.
        let Some(entry) = (unsafe { user::load(fds.wrapping_add(i)) }) else { return false };
        if is_answered_here(entry.fd) {
            return true;
        }
    }
    false
}

/// Whether up to three fd_sets name an object that lives here, or may come home.
///
/// # Safety
/// Each set is null or valid for `n` bits, or the kernel will say EFAULT.
#[inline]
pub unsafe fn sets_name_object(n: c_int, sets: [*const fd_set; 3]) -> bool {
    // Beyond there is none, and there may be no memory either.
    let n = n.min(table::numbers().end);
    // SAFETY: the caller's contract.
    sets.into_iter().any(|set| unsafe { set_has(n, set, is_answered_here) })
}

/// Whether a number stands for an object that lives here, or that may come home.
fn is_answered_here(fd: c_int) -> bool {
    match table::get_for_poll(fd) {
        Bytes::Entry(entry) => entry.is_object(),
        Bytes::Away => !away::has_left(fd),
    }
}

/// Whether `f` says so of a number in a set.
///
/// # Safety
/// The set is null or valid for `n` bits, or the kernel will say EFAULT.
#[inline]
pub unsafe fn set_has(n: c_int, set: *const fd_set, f: impl Fn(c_int) -> bool) -> bool {
    if set.is_null() {
        return false;
    }
    for word in 0..(n.max(0) as usize).div_ceil(64) {
        let pointer = set.cast::<u64>().wrapping_add(word);
        // SAFETY: any bits are a word of a set.
        let Some(bits) = (unsafe { user::load(pointer) }) else { return false };
        // What lies beyond the last number is not asked for.
        if select::numbers(bits, word).any(|fd| fd < n && f(fd)) {
            return true;
        }
    }
    false
}

/// poll(2) without time and without a mask, if it is one of those that can be answered by a
/// quick look. What it needs of the stack is its caller's.
///
/// # Safety
/// As poll(2).
#[inline(always)]
pub unsafe fn look_quickly(fds: *mut pollfd, n: nfds_t) -> Option<Result<usize, Errno>> {
    // SAFETY: the caller's contract.
    unsafe { quick_look::quick_look(fds, n as usize) }
}

/// poll(2) and ppoll(2) of what [names an object](names_object).
///
/// # Safety
/// As ppoll(2). `mask` is null or a signal set.
#[inline(always)]
pub unsafe fn poll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: Timeout,
    mask: *const sigset_t,
) -> Outcome {
    if is_foreign() {
        return Outcome::Unchanged;
    }
    // SAFETY: the caller's contract.
    unsafe { wait::answer(&Polled::new(fds, n as usize), timeout, mask.cast()) }
}

/// select(2) without time and without a mask, as [`look_quickly`].
///
/// # Safety
/// As select(2).
#[inline(always)]
pub unsafe fn select_quickly(n: c_int, sets: [*mut fd_set; 3]) -> Option<Result<usize, Errno>> {
    // SAFETY: the caller's contract.
    unsafe { quick_select::quick_select(n, sets) }
}

/// select(2) and pselect(2) of what [names an object](sets_name_object).
///
/// # Safety
/// As pselect(2). `mask` is null or a signal set.
#[inline(always)]
pub unsafe fn select(
    n: c_int,
    sets: [*mut fd_set; 3],
    timeout: Timeout,
    mask: *const sigset_t,
) -> Outcome {
    if is_foreign() {
        return Outcome::Unchanged;
    }
    // SAFETY: the caller's contract.
    unsafe {
        match timeout {
            Timeout::Now if mask.is_null() => select_at_once(n, sets),
            _ => select_in_time(n, sets, timeout, mask),
        }
    }
}

/// [`select`] of a call that may not sleep, and has no mask. What it needs of the stack is not the
/// caller's, who may have objects migrate, nor that of a call that sleeps.
///
/// # Safety
/// As for `select`.
#[inline(never)]
unsafe fn select_at_once(n: c_int, sets: [*mut fd_set; 3]) -> Outcome {
    let mut selected = Selected::new(sets);
    // SAFETY: the caller's contract.
    if unsafe { selected.read(n) }.is_none() {
        return Outcome::Unchanged;
    }
    at_once::at_once(&selected)
}

/// [`select`] of a call that may sleep or has a mask.
///
/// # Safety
/// As for `select`.
#[inline(never)]
unsafe fn select_in_time(
    n: c_int,
    sets: [*mut fd_set; 3],
    timeout: Timeout,
    mask: *const sigset_t,
) -> Outcome {
    let mut selected = Selected::new(sets);
    // SAFETY: the caller's contract.
    if unsafe { selected.read(n) }.is_none() {
        return Outcome::Unchanged;
    }
    // SAFETY: as above.
    unsafe { wait::answer_in_time(&selected, timeout, mask.cast()) }
}
