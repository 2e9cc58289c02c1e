//! One word for the outcomes of many programs.

use crate::interpret::{Report, Sink};
use crate::model::Order;
use crate::program::Op;

/// Folds all outcomes into one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The word.
    pub word: u64,
    /// How many outcomes are in it.
    pub operations: u64,
    /// How many calls were not made.
    pub skipped: u64,
}

/// Folded in for a call that was not made.
const SKIPPED: u64 = 0x5417;

impl Digest {
    #[inline]
    fn fold(&mut self, value: u64) {
        let mixed = (self.word ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.word = mixed ^ mixed >> 29;
    }
}

impl Sink for Digest {
    #[inline]
    fn outcome(&mut self, _: &Op, result: isize, beside: u64) {
        self.operations += 1;
        self.fold(result as u64);
        if beside != 0 {
            self.fold(beside);
        }
    }

    #[inline]
    fn events(&mut self, _: Order, events: &[(Report, bool)]) {
        for ((data, bits), _) in events {
            self.fold(*data);
            self.fold(u64::from(*bits));
        }
    }

    fn skipped(&mut self, _: &Op) {
        self.skipped += 1;
        self.fold(SKIPPED);
    }
}
