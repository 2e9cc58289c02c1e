//! Whether other programs want the processors.
//!
//! A thread that spins uses up what the scheduler owes to one that sleeps, and then waits for whole
//! time slices of the others, while it spins or after it has been woken. So where that happens
//! again and again, threads sleep for a while. Each time in a row that while is twice as long.

use crate::sync::{Ordering, UnmodelledU64};

/// A thread that was without a processor for longer (ns) has lost it to another program.
pub(super) const LOSS: u64 = 200_000;
/// A longer one (ns) says no more than this one: the process may have been stopped.
const MOST_LOSS: u64 = 2_500_000;
/// The machine is busy with losses beyond this (ns),
const BUSY: u64 = 4_000_000;
/// not counting one part in so many of the time: on any machine something else runs now and then.
const PART: u64 = 16;
/// For how long (ns) threads sleep then.
pub(super) const REST: u64 = 250_000_000;
pub(super) const MOST_REST: u64 = 4_000_000_000;

#[derive(Debug)]
pub(super) struct Busy {
    /// What has been lost (ns), and when that was reckoned.
    lost: UnmodelledU64,
    reckoned: UnmodelledU64,
    /// Until when threads sleep, and for how long (ns).
    until: UnmodelledU64,
    rest: UnmodelledU64,
}

impl Busy {
    pub(super) const fn new() -> Self {
        Self {
            lost: UnmodelledU64::new(0),
            reckoned: UnmodelledU64::new(0),
            until: UnmodelledU64::new(0),
            rest: UnmodelledU64::new(REST),
        }
    }

    /// Whether threads are to sleep for a while.
    pub(super) fn rests(&self, now: u64) -> bool {
        now < self.until.load(Ordering::Relaxed)
    }

    /// Threads are about to spin again.
    pub(super) fn end_rest(&self, now: u64) {
        self.until.store(now, Ordering::Relaxed);
    }

    /// A thread was without a processor for so long (ns). Whether the machine is busy. Several that
    /// lose theirs at a time, as in a stop of the process, have lost no more than that time.
    pub(super) fn lose(&self, nanos: u64, now: u64) -> bool {
        let passed = now.saturating_sub(self.reckoned.swap(now, Ordering::Relaxed));
        let lost = self.lost.load(Ordering::Relaxed).saturating_sub(passed / PART);
        let lost = lost + nanos.min(MOST_LOSS).min(passed);
        let is_busy = lost > BUSY;
        self.lost.store(if is_busy { 0 } else { lost }, Ordering::Relaxed);
        if is_busy {
            self.begin(now);
        }
        is_busy
    }

    fn begin(&self, now: u64) {
        let (before, rest) = (&self.until, self.rest.load(Ordering::Relaxed));
        // Threads have spun for longer than they slept before: the machine was free.
        let was_free = now.saturating_sub(before.load(Ordering::Relaxed)) > rest;
        let rest = if was_free { REST } else { (2 * rest).min(MOST_REST) };
        self.rest.store(rest, Ordering::Relaxed);
        self.until.store(now + rest, Ordering::Relaxed);
    }
}
