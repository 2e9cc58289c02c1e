//! The adaptive spin: whether a waiter that finds nothing should sleep at once, or first yield its
//! processor a few times.
//!
//! A sleep and its wake cost several microseconds on both sides. When events arrive faster than
//! that, a waiter that sleeps between them makes every producer pay for a wake; a waiter that
//! yields its processor a few times instead finds a batch. When they do not, yielding is waste, and
//! on a busy machine worse: a yield may give the processor to a thread that keeps it for
//! milliseconds, where a wake would have taken it back at once. So a set earns credit for spinning
//! by short sleeps, and loses it by yields that found nothing, or took long and found little.
//!
//! The model checkers run without it: what it does depends on the clock, and a schedule must be
//! repeatable.

use crate::sync::spin::yield_now;
use crate::sync::time::Deadline;
use crate::sync::{AtomicU32, Ordering};
use crate::wake::waiters::Waiters;

/// A sleep shorter than this (ns) would better have been a yield.
const SHORT_SLEEP: u64 = 50_000;
/// A yield longer than this (ns) gave the processor to a thread that used it.
const LONG_YIELD: u64 = 200_000;
/// What a long yield must have gathered to have been worth it.
const BATCH: usize = 4;
/// Yields before a sleep, at most.
const YIELDS: u32 = 4;
/// Short sleeps in a row before yielding begins.
const THRESHOLD: u32 = 2;
const MOST: u32 = 8;
/// Sleeps that a long and useless yield costs.
const PENALTY: u32 = 256;

/// The memory of one set about its last sleeps. All of it is a guess and none of it matters for
/// correctness, so the accesses are relaxed and may lose updates.
#[derive(Debug)]
pub struct AdaptiveSpin {
    /// Short sleeps in a row, up to `MOST`.
    credit: AtomicU32,
    /// How many sleeps to take without earning anything.
    penalty: AtomicU32,
}

impl AdaptiveSpin {
    pub(crate) fn new() -> Self {
        Self { credit: AtomicU32::new(0), penalty: AtomicU32::new(0) }
    }

    /// If the set has earned credit: yields until `ready()`, then returns what `harvest()` gets. 0
    /// means: sleep. It counts as a waiter while it yields and looks, not while it harvests.
    pub(crate) fn spin(
        &self,
        waiters: &Waiters,
        ready: impl Fn() -> bool,
        harvest: impl FnMut() -> usize,
    ) -> usize {
        match self.credit.load(Ordering::Relaxed) {
            ..THRESHOLD => 0,
            credit => {
                let yielded = || {
                    yield_now();
                    ready()
                };
                self.yield_until(credit, || waiters.while_spinning(yielded), harvest)
            }
        }
    }

    fn yield_until(
        &self,
        credit: u32,
        yielded: impl Fn() -> bool,
        mut harvest: impl FnMut() -> usize,
    ) -> usize {
        for _ in 0..YIELDS {
            let before = Deadline::now();
            if !yielded() {
                continue;
            }
            let found = harvest();
            if found == 0 {
                continue;
            }
            if found < BATCH && Deadline::now().as_nanos() - before.as_nanos() > LONG_YIELD {
                self.credit.store(0, Ordering::Relaxed);
                self.penalty.store(PENALTY, Ordering::Relaxed);
            }
            return found;
        }
        self.credit.store(credit - 1, Ordering::Relaxed);
        0
    }

    /// Times a sleep and earns or loses by it.
    pub(crate) fn asleep<T>(&self, sleep: impl FnOnce() -> T) -> T {
        if cfg!(any(loom, shuttle)) {
            return sleep();
        }
        let before = Deadline::now();
        let result = sleep();
        let penalty = self.penalty.load(Ordering::Relaxed);
        if penalty > 0 {
            self.penalty.store(penalty - 1, Ordering::Relaxed);
        } else if Deadline::now().as_nanos() - before.as_nanos() < SHORT_SLEEP {
            let credit = self.credit.load(Ordering::Relaxed);
            self.credit.store((credit + 1).min(MOST), Ordering::Relaxed);
        } else {
            self.credit.store(0, Ordering::Relaxed);
        }
        result
    }
}
