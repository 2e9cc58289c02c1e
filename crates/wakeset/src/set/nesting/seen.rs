//! What walks through nested sets have found out about one of them.

use crate::sync::{Ordering, UnmodelledUsize};

/// The most steps from a set down to the lowest one below it: five sets in a chain.
pub(in crate::set) const MAX_STEPS: usize = 4;

/// A walk through sets, for the holder of the nesting lock: what it has found out about a set is
/// valid for its own number only.
#[derive(Clone, Copy)]
pub(in crate::set) struct Round(usize);

impl Round {
    pub(in crate::set) fn begin(rounds: &mut usize) -> Self {
        *rounds += 1;
        Self(*rounds)
    }
}

/// What walks have found out about a set. Guarded by the nesting lock.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The last walk that came down to it, and the most steps from it to a set below.
    below: UnmodelledUsize,
    steps: UnmodelledUsize,
    /// The last walk that came up to it, and how many ways of so many steps lead from it to sets
    /// that nobody watches.
    above: UnmodelledUsize,
    ways: [UnmodelledUsize; MAX_STEPS + 1],
}

pub(in crate::set) type Ways = [usize; MAX_STEPS + 1];

impl Seen {
    pub(crate) fn new() -> Self {
        let zero = || UnmodelledUsize::new(0);
        Self { below: zero(), steps: zero(), above: zero(), ways: core::array::from_fn(|_| zero()) }
    }

    pub(in crate::set) fn steps(&self, round: Round) -> Option<usize> {
        (self.below.load(Ordering::Relaxed) == round.0).then(|| self.steps.load(Ordering::Relaxed))
    }

    pub(in crate::set) fn note_steps(&self, round: Round, steps: usize) {
        self.steps.store(steps, Ordering::Relaxed);
        self.below.store(round.0, Ordering::Relaxed);
    }

    pub(in crate::set) fn ways(&self, round: Round) -> Option<Ways> {
        let ways = || self.ways.each_ref().map(|ways| ways.load(Ordering::Relaxed));
        (self.above.load(Ordering::Relaxed) == round.0).then(ways)
    }

    pub(in crate::set) fn note_ways(&self, round: Round, ways: Ways) {
        for (place, ways) in self.ways.iter().zip(ways) {
            place.store(ways, Ordering::Relaxed);
        }
        self.above.store(round.0, Ordering::Relaxed);
    }
}
