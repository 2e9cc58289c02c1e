//! What pairs of windows have shown, one apart and one together, and whether that is enough.
//!
//! One pair says little: where the scheduler has the threads, and what other programs do, changes
//! what a wait takes by a quarter from window to window. So the ratios of several pairs are
//! averaged, and a trial ends when their average is further from what would just pay than chance
//! may bring it: for one pair by a quarter, for two by an eighth, and so on.

use crate::sync::{Ordering, UnmodelledU32};

/// The ratio 1.
pub(super) const ONE: u32 = 1 << 12;
/// A ratio beyond this, or below one by it, says no more than this one.
const MOST: u64 = 2;
/// How many pairs the averages go back.
const MEMORY: u32 = 8;
/// After so many pairs the average decides, however near it is.
const ENOUGH: u32 = 6;
/// What a trial in vain is worth to the next one, in pairs.
const KNOWN: u32 = 3;
/// A pair in which waits cost more than this ends nothing by itself, but more of them are made
/// before spins go on.
const BAD: u32 = ONE + ONE / 8;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pays,
    /// Another pair is to tell.
    Unclear,
    Costs,
}

/// What waits take together by what they take apart, on average over the last pairs.
#[derive(Debug)]
pub(super) struct Evidence {
    pairs: UnmodelledU32,
    cost: UnmodelledU32,
    elapsed: UnmodelledU32,
}

/// What a wait has taken (ns), in a window together and in the one apart before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) together: u64,
    pub(super) apart: u64,
}

impl Pair {
    fn ratio(self) -> u32 {
        let one = u64::from(ONE);
        let ratio = self.together.saturating_mul(one) / self.apart.max(1);
        ratio.clamp(one / MOST, one * MOST) as u32
    }
}

impl Evidence {
    pub(super) const fn new() -> Self {
        Self {
            pairs: UnmodelledU32::new(0),
            cost: UnmodelledU32::new(0),
            elapsed: UnmodelledU32::new(0),
        }
    }

    /// Takes note of a pair: what its waits took in processor time, and in time. `has_paid`: so far
    /// spins have been found to pay.
    pub(super) fn add(&self, cost: Pair, elapsed: Pair, has_paid: bool) -> Verdict {
        let pairs = self.pairs.load(Ordering::Relaxed) + 1;
        self.pairs.store(pairs.min(MEMORY), Ordering::Relaxed);
        let next = |average: &UnmodelledU32, ratio: u32| {
            let before = average.load(Ordering::Relaxed) as i32;
            let after = before + (ratio as i32 - before) / pairs as i32;
            average.store(after as u32, Ordering::Relaxed);
            after as u32
        };
        let last = cost.ratio();
        let averages = (next(&self.cost, last), next(&self.elapsed, elapsed.ratio()));
        match Self::verdict(averages, pairs, has_paid) {
            Verdict::Pays if last > BAD => Verdict::Unclear,
            verdict => verdict,
        }
    }

    fn verdict((cost, elapsed): (u32, u32), pairs: u32, has_paid: bool) -> Verdict {
        // What has paid before may just about pay.
        let (most_cost, most_elapsed) = match has_paid {
            false => (ONE, ONE - ONE / 8),
            true => (ONE + ONE / 32, ONE - ONE / 16),
        };
        let doubt = ONE / 4 / pairs;
        let decides = pairs >= ENOUGH;
        if cost > most_cost + doubt || elapsed >= most_elapsed + doubt {
            Verdict::Costs
        } else if elapsed <= most_elapsed
            && (cost + doubt <= most_cost || decides && cost <= most_cost)
        {
            Verdict::Pays
        } else if decides {
            Verdict::Costs
        } else {
            Verdict::Unclear
        }
    }

    /// Spins are given up. What is known of them counts little from now on.
    pub(super) fn fade(&self) {
        let pairs = self.pairs.load(Ordering::Relaxed);
        self.pairs.store(pairs.min(KNOWN), Ordering::Relaxed);
    }

    /// Nothing is known any more: something has changed.
    pub(super) fn forget(&self) {
        self.pairs.store(0, Ordering::Relaxed);
    }
}
