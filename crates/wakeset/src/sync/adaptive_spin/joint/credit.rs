//! What trials may cost: a part of the processor time of the process.

use super::machine::Machine;
use crate::sync::{Ordering, UnmodelledU64};

/// The part of the process's processor time that trials may cost.
pub(super) const PART: u64 = 64;
/// What they may cost at once (ns).
pub(super) const MOST_CREDIT: i64 = 5_000_000;
/// What they owe at the beginning (ns).
const FIRST_DEBT: i64 = 1_500_000;

/// What trials may still cost.
#[derive(Debug)]
pub(super) struct Credit {
    /// That (ns), as a signed number.
    left: UnmodelledU64,
    /// The processor time of the process when it was last reckoned (ns).
    time: UnmodelledU64,
}

impl Credit {
    pub(super) const fn new() -> Self {
        Self { left: UnmodelledU64::new((-FIRST_DEBT) as u64), time: UnmodelledU64::new(0) }
    }

    pub(super) fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed) as i64
    }

    /// Whether all trials have cost no more than they may until now.
    pub(super) fn can_pay(&self, machine: &impl Machine) -> bool {
        let Some(time) = machine.process_time() else { return false };
        let before = self.time.swap(time, Ordering::Relaxed);
        // The time of a forked child begins anew.
        let earned = time.saturating_sub(before) / PART;
        let left = self.left().saturating_add(earned as i64).min(MOST_CREDIT);
        self.left.store(left as u64, Ordering::Relaxed);
        left >= 0
    }

    /// Spins have cost so much (ns) more than sleeps would have.
    pub(super) fn charge(&self, more: u64) {
        let left = self.left().saturating_sub_unsigned(more);
        self.left.store(left as u64, Ordering::Relaxed);
    }
}
