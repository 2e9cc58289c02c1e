//! futex(2) for the model checkers, in place of `sync/futex.rs`.

use super::Slept;
use super::atomics::{AtomicU32, Ordering};
use super::time::Deadline;
use core::num::NonZeroU32;
#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};

/// futex(2) for the model checkers: compare and sleep under a lock. A deadline is reached at
/// once, or never, and signals never come, so a lost wake-up is a deadlock, which both
/// checkers report.
#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    /// How many sleep and have not been chosen by a wake yet, by class.
    sleeping: Mutex<[u32; 2]>,
    woken: [Condvar; 2],
}

/// Where `sleeping` and `woken` keep a class: class 2 has the second place, every other class the
/// first. On each futex word the engine uses either one class for all sleepers, or 1 for readers
/// and 2 for writers.
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

    pub(crate) fn sleep(
        &self,
        expected: u32,
        deadline: Option<Deadline>,
        classes: NonZeroU32,
    ) -> Slept {
        let mut sleeping = self.sleeping.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == expected {
            if deadline.is_some_and(super::clock::pass) {
                return Slept::TimedOut;
            }
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
}

/// The same for two sides that are threads of the model.
#[derive(Debug)]
pub(crate) struct SharedFutex(Futex);

impl SharedFutex {
    pub(crate) fn new(value: u32) -> Self {
        Self(Futex::new(value))
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        self.0.word()
    }

    pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>) -> Slept {
        self.0.sleep(expected, deadline, NonZeroU32::MAX)
    }

    pub(crate) fn wake(&self) {
        self.0.wake(1, NonZeroU32::MAX);
    }
}
