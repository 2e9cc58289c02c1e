//! futex(2): a 32-bit word that threads sleep on until another thread changes it and wakes them.
//!
//! The only file that makes the system call, but for a lock's word
//! ([`lock_word`](crate::sync::lock_word)), which needs its priority inheritance.

use crate::sync::Slept;
use crate::sync::atomics::AtomicU32;
use crate::sync::time::{Deadline, Timeout};
use core::num::NonZeroU32;
use core::time::Duration;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use syscalls::{Sysno, syscall};

/// How long a thread sleeps on one word that would have to sleep on two.
const MOMENT: Duration = Duration::from_millis(2);

/// A 32-bit word that threads sleep on until somebody changes it and wakes them: futex(2).
#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    #[inline]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word is `expected`, at most until `deadline`, in the wake classes
    /// `classes`.
    ///
    /// Always with a time limit: FUTEX_WAIT without one restarts by itself after a handler with
    /// SA_RESTART, and epoll_wait(2) must fail with EINTR then.
    pub(crate) fn sleep(
        &self,
        expected: u32,
        deadline: Option<Deadline>,
        classes: NonZeroU32,
    ) -> Slept {
        let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
        match futex::wait_bitset(&self.0, Flags::PRIVATE, expected, Some(&limit), classes) {
            Err(Errno::TIMEDOUT) => Slept::TimedOut,
            Err(Errno::INTR) => Slept::Interrupted,
            // EAGAIN: the word had changed. Anything else cannot happen for a valid word; a
            // caller that loops on its own condition is right either way.
            Ok(()) | Err(_) => Slept::Woken,
        }
    }

    /// Like `sleep` with no deadline, but a handler with SA_RESTART resumes the sleep, as it
    /// does for read(2).
    pub(crate) fn sleep_restarting(&self, expected: u32, classes: NonZeroU32) -> Slept {
        match futex::wait_bitset(&self.0, Flags::PRIVATE, expected, None, classes) {
            Err(Errno::INTR) => Slept::Interrupted,
            Ok(()) | Err(_) => Slept::Woken,
        }
    }

    /// Wakes up to `n` of the threads that sleep in one of `classes`; how many it woke.
    pub(crate) fn wake(&self, n: u32, classes: NonZeroU32) -> usize {
        futex::wake_bitset(&self.0, Flags::PRIVATE, n, classes).unwrap_or(0)
    }

    /// Sleeps while this word is `expected` and the other one, which is in memory shared with
    /// other processes, is `of_other`: futex_waitv(2). Where that is not to be had, for
    /// a moment at most.
    pub(crate) fn sleep_on_both(
        &self,
        expected: u32,
        other: &AtomicU32,
        of_other: u32,
        deadline: Option<Deadline>,
    ) -> Slept {
        const SIZE_U32: u32 = 2;
        const PRIVATE: u32 = 128;
        /// `struct futex_waitv`.
        #[repr(C)]
        struct Waiter {
            value: u64,
            address: u64,
            flags: u32,
            reserved: u32,
        }
        let waiter = |word: &AtomicU32, value: u32, flags| Waiter {
            value: value.into(),
            address: word.as_ptr().expose_provenance() as u64,
            flags: SIZE_U32 | flags,
            reserved: 0,
        };
        let waiters = [waiter(&self.0, expected, PRIVATE), waiter(other, of_other, 0)];
        let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
        // SAFETY: two initialised waiters on words that outlive the call, and a time, which is
        // CLOCK_MONOTONIC's (1).
        match unsafe { syscall!(Sysno::futex_waitv, waiters.as_ptr(), 2, 0, &raw const limit, 1) } {
            Err(syscalls::Errno::ETIMEDOUT) => Slept::TimedOut,
            Err(syscalls::Errno::EINTR) => Slept::Interrupted,
            Err(syscalls::Errno::ENOSYS | syscalls::Errno::EPERM | syscalls::Errno::EACCES) => {
                let moment = Deadline::of(Timeout::After(MOMENT));
                let limit =
                    deadline.map_or(moment, |deadline| moment.map(|moment| moment.min(deadline)));
                self.sleep(expected, limit, NonZeroU32::MAX)
            }
            // EAGAIN: one of them had changed.
            Ok(_) | Err(_) => Slept::Woken,
        }
    }
}

/// A word in memory shared with other processes, on which the other side of that memory sleeps
/// until it changes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct SharedFutex(AtomicU32);

impl SharedFutex {
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word is `expected`, at most until `deadline`.
    pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>) -> Slept {
        let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
        match futex::wait_bitset(&self.0, Flags::empty(), expected, Some(&limit), NonZeroU32::MAX) {
            Err(Errno::TIMEDOUT) => Slept::TimedOut,
            Err(Errno::INTR) => Slept::Interrupted,
            Ok(()) | Err(_) => Slept::Woken,
        }
    }

    /// Wakes who sleeps on it.
    pub(crate) fn wake(&self) {
        let _ = futex::wake(&self.0, Flags::empty(), 1);
    }
}
