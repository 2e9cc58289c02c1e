//! Atomics and futexes. No other module names them, so that the same protocol runs on the real
//! machine and under loom.

#[cfg(loom)]
pub(crate) use crate::testing::Futex;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use futex::Futex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
pub(crate) use wakeset::mutant;

/// How a sleep on a [`Futex`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(loom, allow(dead_code, reason = "loom has neither clocks nor signals"))]
pub(crate) enum Slept {
    /// By a wake, or because the word had changed before the sleep began.
    Woken,
    /// By its time limit.
    TimedOut,
    /// By a signal handler.
    Interrupted,
}

#[cfg(not(loom))]
mod futex {
    use super::{AtomicU32, Slept};
    use core::ptr;
    use libc::timespec;
    use syscalls::{Errno, Sysno, syscall};

    const WAIT: usize = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    const WAKE: usize = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;

    /// A word that one thread sleeps on until another changes it and wakes the thread: futex(2).
    #[derive(Debug)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        pub(crate) const fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `expected`, at most for `limit`. Without a limit, the kernel
        /// resumes the sleep after a handler with `SA_RESTART`, as it does for read(2); with one,
        /// every handler ends the sleep, as it does for poll(2).
        pub(crate) fn sleep(&self, expected: u32, limit: Option<&timespec>) -> Slept {
            let limit = limit.map_or(ptr::null(), ptr::from_ref);
            // SAFETY: a word of ours, and a limit or null.
            match unsafe { syscall!(Sysno::futex, self.0.as_ptr(), WAIT, expected, limit, 0, 0) } {
                Err(Errno::ETIMEDOUT) => Slept::TimedOut,
                Err(Errno::EINTR) => Slept::Interrupted,
                // EAGAIN: the word had changed.
                Ok(_) | Err(_) => Slept::Woken,
            }
        }

        /// Wakes the thread that sleeps on the word at this address. The futex may already have
        /// been freed; the wake is then spurious and harmless.
        pub(crate) fn wake_at(this: *const Self) {
            // SAFETY: the kernel takes the address as a number.
            let _ = unsafe { syscall!(Sysno::futex, this, WAKE, 1, 0, 0, 0) };
        }
    }
}
