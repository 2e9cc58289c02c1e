//! Whether other programs want the processors.
//!
//! The scheduler prefers a thread that has slept. One that spins uses that up, and then waits for
//! whole time slices of other programs, while it spins or after it has been woken. So where that
//! happens again and again, threads sleep for a while, which is twice as long each time in a row.

use crate::sync::{Ordering, UnmodelledU64};

/// A thread that was without a processor for longer (ns) has lost it to another program.
pub(super) const LOSS: u64 = 200_000;
/// What one loss counts for at most (ns): in a longer one the process may have been stopped.
const MOST_LOSS: u64 = 2_500_000;
/// The machine is busy if losses come to more than this (ns), beyond a part of the time.
const BUSY: u64 = 4_000_000;
/// One in so many is that part: on any machine something else runs now and then.
const PART: u64 = 16;
/// For how long (ns) threads sleep then, the first time and at most.
pub(super) const REST: u64 = 250_000_000;
pub(super) const MOST_REST: u64 = 4_000_000_000;

#[derive(Debug)]
pub(super) struct Busy {
    /// What has been lost beyond that part of the time (ns), and when that was last reckoned.
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

    /// A thread was without a processor for so long (ns). Returns whether the machine is busy.
    /// Several threads that lose theirs at a time, as in a stop of the process, have lost that time
    /// once.
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
