//! Whether wakers keep busy.
//!
//! A waker that waits for the waiter's answer makes nothing more while that wakes up. One that does
//! not wait for it does: the waiter takes all of that at once, where one that spins takes it piece
//! by piece, and spends the time between two pieces. So if wakers run when the waiter returns, a
//! spin is charged with the time from the wake to that return, less what the wake itself took. A
//! waker that spins in a wait of its own is waiting.
//!
//! To ask whether a thread runs takes two system calls, so it is done after one in some sixteen
//! sleeps. Where a set's waits spin and seldom sleep, one wait sleeps instead after two
//! milliseconds of spins, or after sixteen if wakers were not busy. A look that was a surprise is
//! followed by another one.

use super::{AdaptiveSpin, SLEEP, SLEEP_COST, WAKE_COST};
use crate::sync::Ordering;
use crate::sync::spin::{self, processor};

/// Sleeps and spins spend so much (in [`UNIT`]s) before a sleep ends with a look at the waker.
pub(super) const DUE: u16 = 8_000;
/// They spend so much before a wait sleeps for a look, if wakers were not busy.
const OVERDUE: u16 = 8 * DUE;
/// What a sleep spends.
const OF_SLEEP: u16 = DUE / 16;
/// The unit (ns).
const UNIT: u64 = 256;
/// Wakers that are busy for less than this (ns) are not.
const BUSY: i32 = 256;
/// They are charged with this (ns) at most.
const MOST_BUSY: i32 = u16::MAX as i32;
/// How many looks the average goes back, as a shift.
const LOOKS: i32 = 2;

impl AdaptiveSpin {
    pub(super) fn is_look_due(&self) -> bool {
        self.spent.load(Ordering::Relaxed) >= DUE
    }

    /// Whether a wait is to sleep for a look.
    pub(super) fn is_look_overdue(&self) -> bool {
        let due = if self.busy() < BUSY { OVERDUE } else { DUE };
        self.spent.load(Ordering::Relaxed) >= due
    }

    /// A spin has taken so long (ns).
    pub(super) fn spend(&self, nanos: u64) {
        self.add_spent((nanos / UNIT + 1).min(OVERDUE.into()) as u16);
    }

    fn add_spent(&self, units: u16) {
        let spent = self.spent.load(Ordering::Relaxed);
        self.spent.store(spent.saturating_add(units), Ordering::Relaxed);
    }

    /// How long wakers keep busy, on average, while a waiter wakes up (ns).
    pub(super) fn busy(&self) -> i32 {
        self.busy.load(Ordering::Relaxed).into()
    }

    /// Whether they do at all.
    pub(super) fn keeps_busy(&self) -> bool {
        self.busy() >= BUSY
    }

    /// Whether they do for longer than a sleep and its wake-up take in processor time.
    pub(super) fn gains_by_sleeping(&self) -> bool {
        self.busy() > SLEEP_COST.get() + WAKE_COST.get()
    }

    /// How long after its beginning (ns) a sleep that began `before` and lasted so long was ended
    /// by a waker; `None` if it was not.
    pub(super) fn woken_after(&self, before: u64, slept: u64) -> Option<u64> {
        let after = self.woken_at.load(Ordering::Relaxed).wrapping_sub(before as u32);
        let is_known = slept <= u64::from(u32::MAX / 2) && u64::from(after) <= slept;
        is_known.then_some(after.into())
    }

    /// Asks now and then whether the waker keeps busy that ended a sleep: one that lasted so long,
    /// is over `now`, and `needed` so long until its wake.
    pub(super) fn look_at_waker(&self, now: u64, slept: u64, needed: Option<u64>) {
        if !self.is_look_due() {
            self.add_spent(OF_SLEEP);
            return;
        }
        if slept <= SLEEP {
            // None; and the next ones may be none either, each of which would be measured.
            self.spent.store(0, Ordering::Relaxed);
            return;
        }
        let from = self.woken_from.load(Ordering::Relaxed);
        let is_surprised = match needed {
            // A waker does not run where this thread does, whatever it would do.
            Some(needed) if from != processor() => {
                let waker = self.waker.load(Ordering::Relaxed);
                let runs = if waker == 0 { None } else { spin::runs(waker) };
                let seen = runs.map(|runs| runs && !spin::is_spun_on(from, now));
                seen.is_some_and(|is_busy| self.has_seen(is_busy, slept - needed))
            }
            _ => false,
        };
        if !is_surprised {
            self.spent.store(0, Ordering::Relaxed);
        }
    }

    /// A waker was busy, or not, so long after its wake (ns). Whether that is a surprise.
    pub(super) fn has_seen(&self, is_busy: bool, after: u64) -> bool {
        let charge = match is_busy {
            true => (after as i32 - WAKE_COST.get()).clamp(0, MOST_BUSY),
            false => 0,
        };
        let average = self.busy();
        self.busy.store((average + ((charge - average) >> LOOKS)) as u16, Ordering::Relaxed);
        charge > 2 * average
    }
}
