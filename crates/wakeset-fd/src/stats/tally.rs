//! What is counted on the fastest paths, which the printed counts are made of.

use super::stat::Stat;
use crate::sys::tallies::TALLIES;

/// What a thread counts in one instruction. The discriminant is the place among the tallies of its
/// stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Tally {
    /// Waits on sets that were answered at once, in process.
    Served,
    /// Writes that were answered in process.
    Signals,
    /// Other calls that were.
    Avoided,
    /// Events that waits on sets have reported.
    Events,
}

impl Tally {
    /// Every tally, in the order of the discriminants.
    pub const ALL: [Tally; TALLIES] = [Self::Served, Self::Signals, Self::Avoided, Self::Events];

    /// How many have been counted, if the word has this value: calls are counted downwards.
    pub(super) fn count_of(self, word: u64) -> u64 {
        match self {
            Self::Served | Self::Signals | Self::Avoided => word.wrapping_neg(),
            Self::Events => word,
        }
    }

    /// The counts that each of it adds to.
    pub(super) fn stats(self) -> &'static [Stat] {
        match self {
            Self::Served => &[Stat::Waits, Stat::WaitsInProcess, Stat::SyscallsAvoided],
            Self::Signals => &[Stat::Signals, Stat::SyscallsAvoided],
            Self::Avoided => &[Stat::SyscallsAvoided],
            Self::Events => &[Stat::Events],
        }
    }
}
