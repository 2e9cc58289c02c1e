//! What a sleep and a wake-up cost in processor time, as far as it has been measured.

use super::MEMORY;
use crate::sync::{Ordering, UnmodelledU32};

/// What a sleep costs the waiter, and a wake-up the waker, in processor time (ns), on average over
/// measurements of one in [`MEASURED`], and of those that end with a look at the waker: some 2,000
/// each on a machine of one's own, 10,000 on a virtual one. Where the last waker ran on the
/// sleeper's own processor, that sleep does not count, because no spin would have taken its place.
pub(super) static SLEEP_COST: Cost = Cost::new();
pub(super) static WAKE_COST: Cost = Cost::new();
const MEASURED: u32 = 32;
/// Upper bound of one measurement (ns): a handler may have run during it.
pub(super) const MOST_COST: u64 = 20_000;
const FIRST_COST: u32 = 7_500;

/// An average.
#[derive(Debug)]
pub(super) struct Cost {
    average: UnmodelledU32,
    /// How often it could have been measured.
    chances: UnmodelledU32,
    /// How many measurements the average goes back: few at first.
    measured: UnmodelledU32,
}

impl Cost {
    const fn new() -> Self {
        Self {
            average: UnmodelledU32::new(FIRST_COST),
            chances: UnmodelledU32::new(0),
            measured: UnmodelledU32::new(1),
        }
    }

    pub(super) fn get(&self) -> i32 {
        self.average.load(Ordering::Relaxed) as i32
    }

    /// Whether it is to be measured this time.
    pub(super) fn is_due(&self) -> bool {
        let chances = self.chances.load(Ordering::Relaxed).wrapping_add(1);
        self.chances.store(chances, Ordering::Relaxed);
        chances.is_multiple_of(MEASURED)
    }

    pub(super) fn remember(&self, cost: u64) {
        let (average, cost) = (self.get(), cost.min(MOST_COST) as i32);
        // The first guess weighs no more than a measurement.
        let measured = (self.measured.load(Ordering::Relaxed) + 1).min(1 << MEMORY);
        self.measured.store(measured, Ordering::Relaxed);
        let average = average + (cost - average) / measured as i32;
        self.average.store(average as u32, Ordering::Relaxed);
    }
}
