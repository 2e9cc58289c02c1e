//! The one place that names atomics, cells, locks and futexes, so that the same code runs on the
//! real machine, under loom (every interleaving of a small model) and under shuttle (random schedules of
//! a large one).
//!
//! Memory ordering, once for the whole engine: a *publish-then-check* pair (store mine, read
//! yours, on both sides) needs a total order over both sides' store and load. Both sides use a `SeqCst`
//! read-modify-write followed by a `SeqCst` load, which C++20 orders, and [`fence_after_rmw`] between the two for the
//! model checkers (loom treats `SeqCst` accesses as `AcqRel`) and for loads that are not ours to choose
//! (the ones in a user's `Source::poll`).

#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Orders what stands before it against what stands after it, given that a read-modify-write
/// stands directly before it.
///
/// On x86-64 every `LOCK`-prefixed instruction is a full barrier already (Intel SDM vol. 3, 9.2.3.9), so only the
/// compiler is held back; an `mfence` here would cost the wake path a third of its time.
#[inline(always)]
pub(crate) fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    fence(Ordering::SeqCst);
}

/// Orders everything before it against everything after it.
#[inline(always)]
pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}

/// How a sleep on a [`Futex`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "there the clock and signals do not exist"))]
pub(crate) enum Slept {
    /// Woken, or the word had changed before the sleep began.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

pub(crate) use futex::Futex;

#[cfg(not(any(loom, shuttle)))]
mod futex {
    use super::{AtomicU32, Ordering, Slept};
    use crate::time::Deadline;
    use core::num::NonZeroU32;
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};

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

        /// Sleeps while the word is `expected`, at most until `deadline`, in the wake classes `classes`.
        ///
        /// Always with a time limit: FUTEX_WAIT without one restarts by itself after a handler with
        /// SA_RESTART, and epoll_wait(2) must fail with EINTR then.
        pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>, classes: NonZeroU32) -> Slept {
            let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
            match futex::wait_bitset(&self.0, Flags::PRIVATE, expected, Some(&limit), classes) {
                Err(Errno::TIMEDOUT) => Slept::TimedOut,
                Err(Errno::INTR) => Slept::Interrupted,
                // EAGAIN: the word had changed. Anything else cannot happen for a valid word; a
                // caller that loops on its own condition is right either way.
                Ok(()) | Err(_) => Slept::Woken,
            }
        }

        /// Like `sleep` with no deadline, but a handler with SA_RESTART resumes the sleep, as it does for read(2).
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

        #[allow(dead_code, reason = "only the scan lock's contended path reads the word back")]
        pub(crate) fn load(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }
}

#[cfg(any(loom, shuttle))]
mod futex {
    use super::{AtomicU32, Ordering, Slept};
    use crate::time::Deadline;
    use core::num::NonZeroU32;
    #[cfg(loom)]
    use loom::sync::{Condvar, Mutex};
    #[cfg(shuttle)]
    use shuttle::sync::{Condvar, Mutex};

    /// futex(2) for the model checkers: compare and sleep under a lock. Deadlines are never reached and signals never
    /// come, so a lost wake-up is a deadlock, which both checkers report.
    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        /// How many sleep and have not been chosen by a wake yet, by class.
        sleeping: Mutex<[u32; 2]>,
        woken: [Condvar; 2],
    }

    /// The engine uses one class for everybody or tells readers (1) from writers (2), never both on one word.
    fn index(classes: NonZeroU32) -> usize {
        usize::from(classes.get() == 2)
    }

    impl Futex {
        pub(crate) fn new(value: u32) -> Self {
            let woken = [Condvar::new(), Condvar::new()];
            Self { word: AtomicU32::new(value), sleeping: Mutex::new([0; 2]), woken }
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        pub(crate) fn sleep(&self, expected: u32, _deadline: Option<Deadline>, classes: NonZeroU32) -> Slept {
            let mut sleeping = self.sleeping.lock().unwrap();
            if self.word.load(Ordering::SeqCst) == expected {
                sleeping[index(classes)] += 1;
                drop(self.woken[index(classes)].wait(sleeping).unwrap());
            }
            Slept::Woken
        }

        pub(crate) fn sleep_restarting(&self, expected: u32, classes: NonZeroU32) -> Slept {
            self.sleep(expected, None, classes)
        }

        pub(crate) fn wake(&self, n: u32, classes: NonZeroU32) -> usize {
            let mut sleeping = self.sleeping.lock().unwrap();
            let chosen = n.min(sleeping[index(classes)]);
            sleeping[index(classes)] -= chosen;
            for _ in 0..chosen {
                self.woken[index(classes)].notify_one();
            }
            chosen as usize
        }

        #[allow(dead_code, reason = "only the scan lock's contended path reads the word back")]
        pub(crate) fn load(&self) -> u32 {
            self.word.load(Ordering::Relaxed)
        }
    }
}

/// Runs `model` in all its interleavings with at most `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` overrides), and
/// says how many there were.
#[cfg(all(test, loom))]
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    extern crate std;
    use std::sync::atomic::AtomicUsize;
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    let schedules = alloc::sync::Arc::new(AtomicUsize::new(0));
    let count = alloc::sync::Arc::clone(&schedules);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let name = std::thread::current().name().map_or_else(|| "model".into(), std::string::String::from);
    std::println!("schedules {name}: {}", schedules.load(Ordering::Relaxed));
}
