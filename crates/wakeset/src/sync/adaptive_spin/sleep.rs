//! A sleep, and what a set or object learns from it.

use super::cost::SLEEP_COST;
use super::latency::LATENCY;
use super::{AdaptiveSpin, IN_VAIN, MOST, NOTES, SHORT_SLEEP, SLEEP, WOKEN};
use crate::sync::Ordering;
use crate::sync::spin::{self, Limit};
use crate::sync::time::Deadline;

impl AdaptiveSpin {
    /// Sleeps, and asks now and then how much processor time that has taken the thread.
    fn measured<T>(&self, sleep: impl FnOnce() -> T) -> (T, Option<u64>) {
        if !SLEEP_COST.is_due() && !self.is_look_due() {
            return (sleep(), None);
        }
        let before = spin::thread_time();
        let result = sleep();
        let after = spin::thread_time();
        (result, after.zip(before).map(|(after, before)| after.saturating_sub(before)))
    }

    /// Times a sleep, and learns from it. `outside`: it is one in a kernel half.
    pub(crate) fn asleep<T>(&self, outside: bool, sleep: impl FnOnce() -> T) -> T {
        self.timed_sleep(outside, sleep).0
    }

    /// [`asleep`](Self::asleep), which also returns whether that was a sleep, and not over at once;
    /// `None`: it was not timed.
    pub(crate) fn timed_sleep<T>(
        &self,
        outside: bool,
        sleep: impl FnOnce() -> T,
    ) -> (T, Option<bool>) {
        let Some(before) = Self::begin_sleep() else { return (sleep(), None) };
        let (result, cost) = self.measured(sleep);
        let slept = self.end_sleep(before, outside);
        self.learn_latency(before, slept);
        // One that found something just before it was no sleep; and where the waker ran on this
        // processor no spin would have replaced it.
        if let Some(cost) = cost.filter(|_| slept > SLEEP && !self.shares_processor()) {
            SLEEP_COST.remember(cost);
        }
        (result, Some(slept > SLEEP))
    }

    /// When a sleep begins (ns), if something is to be learned from it.
    pub(crate) fn begin_sleep() -> Option<u64> {
        let learns = !cfg!(any(loom, shuttle)) && spin::limit() != Limit::Off;
        learns.then(|| Deadline::now().as_nanos())
    }

    /// Learns from a sleep that began `before` (ns); how long it was.
    pub(crate) fn end_sleep(&self, before: u64, outside: bool) -> u64 {
        let now = Deadline::now().as_nanos();
        let slept = now.saturating_sub(before);
        let needed = self.woken_after(before, slept);
        self.look_at_waker(now, slept, needed);
        let is_woken = needed.is_some();
        // One that found something just before it was none. In a kernel half it found that sooner
        // than a spin would have looked there.
        let needed = needed.or_else(|| (slept <= SLEEP && !outside).then_some(slept));
        let penalty = self.penalty.load(Ordering::Relaxed);
        if penalty > 0 {
            self.penalty.store(penalty - 1, Ordering::Relaxed);
        } else if slept < SHORT_SLEEP {
            let credit = self.credit.load(Ordering::Relaxed);
            self.credit.store((credit + 1).min(MOST), Ordering::Relaxed);
        } else {
            self.credit.store(0, Ordering::Relaxed);
        }
        let notes = self.notes.load(Ordering::Relaxed);
        let woken = if is_woken { WOKEN } else { 0 };
        self.notes.store(notes & !NOTES | woken, Ordering::Relaxed);
        // Otherwise it says nothing.
        if notes & IN_VAIN == 0 {
            self.remember(needed, LATENCY.limit());
            self.counts_as_near(needed.filter(|_| is_woken));
        }
        slept
    }
}
