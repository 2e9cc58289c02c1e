//! How long a sleeping thread takes to go on after its wake, on another processor than its waker's:
//! the *wake latency*. It is 20 to 25 microseconds on most idle machines, and twice that on some
//! virtual ones.
//!
//! The limits of spins follow from it. A waiter whose partner sleeps has to spin for as long as
//! that one takes to wake up. If it spins for less, it sleeps as well, so its partner's next spin
//! fails in turn, and one sleep becomes many.

use super::{AdaptiveSpin, SLEEP, busy};
use crate::sync::spin::AUTO_LIMIT;
use crate::sync::{Ordering, UnmodelledU32};

/// The process's.
pub(super) static LATENCY: Latency = Latency::new();

const FIRST: u32 = 24_000;
/// One that took longer (ns) says nothing: its processor did something else first.
const MOST: u64 = 200_000;
/// How many wakes the average goes back.
const MEMORY: i32 = 32;
/// What a spin takes at most, whatever the latency (ns).
const MOST_LIMIT: u64 = 100_000;
/// The same of a joint spin, and what it may take in any case.
pub(super) const MOST_JOINT: u64 = 200_000;
const LEAST_JOINT: u64 = 50_000;

/// An average over the last wakes of the process (ns).
#[derive(Debug)]
pub(super) struct Latency(UnmodelledU32);

impl Latency {
    const fn new() -> Self {
        Self(UnmodelledU32::new(FIRST))
    }

    /// Takes note of one wake.
    pub(super) fn remember(&self, taken: u64) {
        if taken > MOST {
            return;
        }
        let average = self.average() as i32;
        self.0.store((average + (taken as i32 - average) / MEMORY) as u32, Ordering::Relaxed);
    }

    fn average(&self) -> u64 {
        self.0.load(Ordering::Relaxed).into()
    }

    /// How long a thread spins at most (ns) if nothing else was asked for: for a quarter more than
    /// its partner takes to wake up.
    pub(super) fn limit(&self) -> u64 {
        (self.average() * 5 / 4).clamp(AUTO_LIMIT, MOST_LIMIT)
    }

    /// The same of a joint spin: at its beginning several others sleep, one after the other.
    pub(super) fn joint_limit(&self) -> u64 {
        (self.average() * 4).clamp(LEAST_JOINT, MOST_JOINT)
    }
}

impl AdaptiveSpin {
    /// Learns from a sleep that began `before` (ns) and lasted so long: not from one in a loop of
    /// the program's, which does other things before it comes back.
    pub(super) fn learn_latency(&self, before: u64, slept: u64) {
        let needed = self.woken_after(before, slept).filter(|_| slept > SLEEP);
        let Some(taken) = needed.map(|needed| slept - needed) else { return };
        busy::lost(taken);
        if !self.shares_processor() {
            LATENCY.remember(taken);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn after(wakes: &[u64]) -> Latency {
        let latency = Latency::new();
        (0..256).for_each(|_| wakes.iter().for_each(|taken| latency.remember(*taken)));
        latency
    }

    #[test]
    fn limits_follow_the_latency_within_bounds() {
        assert_eq!(Latency::new().limit(), 30_000);
        let limits = |latency: Latency| (latency.limit(), latency.joint_limit());
        let near = |taken: u64| {
            let (limit, joint) = limits(after(&[taken]));
            assert!(limit.abs_diff(taken * 5 / 4) < 100, "{limit} for {taken}");
            assert!(joint.abs_diff(taken * 4) < 300, "{joint} for {taken}");
        };
        near(40_000);
        near(25_000);
        assert_eq!(limits(after(&[3_000])), (30_000, 50_000));
        assert_eq!(limits(after(&[190_000])), (100_000, 200_000));
    }

    #[test]
    fn a_wake_that_waited_for_a_processor_says_nothing() {
        let latency = after(&[25_000, 2_000_000, MOST + 1]);
        assert!(latency.average().abs_diff(25_000) < 100, "{latency:?}");
    }
}
