//! The one place that names atomics and futexes, so that the same protocol runs on the real machine and under loom.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

pub(crate) use wakeset::mutant;

/// How a sleep on a [`Futex`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(loom, allow(dead_code, reason = "there the clock and signals do not exist"))]
pub(crate) enum Slept {
    /// Woken, or the word had changed before the sleep began.
    Woken,
    /// The time is up.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

pub(crate) use futex::Futex;

#[cfg(not(loom))]
mod futex {
    use super::{AtomicU32, Slept};
    use core::ptr;
    use libc::timespec;
    use syscalls::{Errno, Sysno, syscall};

    const WAIT: usize = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    const WAKE: usize = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;

    /// A word that one thread sleeps on until somebody changes it and wakes it: futex(2).
    #[derive(Debug)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        pub(crate) const fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `expected`, at most for `limit`. Without a limit a handler with SA_RESTART resumes the sleep, as
        /// it does for read(2); with one every handler ends it, as for poll(2).
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

        /// Wakes who sleeps on the word at this address, where nothing may be any more: then nobody is woken, or somebody for
        /// nothing, as may happen on any futex.
        pub(crate) fn wake_at(this: *const Self) {
            // SAFETY: the kernel takes the address as a number.
            let _ = unsafe { syscall!(Sysno::futex, this, WAKE, 1, 0, 0, 0) };
        }
    }
}

#[cfg(loom)]
mod futex {
    use super::{AtomicU32, Ordering, Slept};
    use loom::sync::{Condvar, Mutex};

    /// futex(2) for the model checker: compare and sleep under a lock. Limits are never reached and signals never come.
    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        lock: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        pub(crate) fn new(value: u32) -> Self {
            Self { word: AtomicU32::new(value), lock: Mutex::new(()), woken: Condvar::new() }
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        pub(crate) fn sleep(&self, expected: u32, _limit: Option<&libc::timespec>) -> Slept {
            let lock = self.lock.lock().unwrap();
            if self.word.load(Ordering::SeqCst) == expected {
                drop(self.woken.wait(lock).unwrap());
            }
            Slept::Woken
        }

        /// The models never free what this leads to.
        pub(crate) fn wake_at(this: *const Self) {
            // SAFETY: as said.
            let this = unsafe { &*this };
            let _lock = this.lock.lock().unwrap();
            this.woken.notify_all();
        }
    }
}
