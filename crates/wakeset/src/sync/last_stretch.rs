//! The last stretch before a time that a thread sleeps for: it wakes a little early and spins until
//! the time has come.
//!
//! A sleep with a time limit ends some 70 microseconds late here: 50 of these are the slack that
//! the kernel takes (`PR_SET_TIMERSLACK`), the rest is the way from the interrupt to the thread. So
//! a sleep is asked to end earlier than the time, by a *margin*. If it ends before the time all
//! the same, the thread spins for the rest.
//!
//! What that costs is bounded by how the margin follows from it: each sleep adds what it may cost
//! to the margin, and takes off what it has cost. So all spins together never take longer than the
//! sleeps were allowed, whatever the kernel does, and the margin settles where they take just that.
//! They are allowed one 64th of the processor time of the process, between two sleeps on average.
//!
//! Under the model checkers the margin is [`MODEL_MARGIN`], in models whose waits spin.

use crate::sync::inheritance::is_real_time;
use crate::sync::spin::{self, Limit, process_time};
use crate::sync::time::Deadline;
use crate::sync::{Ordering, UnmodelledU32, UnmodelledU64};
use core::cell::Cell;

/// The slack of an ordinary thread (ns).
const FIRST_MARGIN: u32 = 50_000;
const MOST_MARGIN: u32 = 150_000;
/// In a model, where a look takes a nanosecond.
const MODEL_MARGIN: u64 = 2;
/// What a sleep may cost (ns) before anything is known, and at most.
const FIRST_ALLOWED: u32 = 300;
const MOST_ALLOWED: u64 = 5_000;
/// The part of the processor time that they may cost, and how many sleeps pass between two
/// measurements.
const PART: u64 = 64;
const MEASURED: u32 = 32;
/// Counted as the cost of a sleep that ended too early to spin for the rest (ns): about that of the
/// sleep that follows it.
const IN_VAIN: u64 = 20_000;

/// How much earlier than its time a sleep of this process is asked to end.
static MARGIN: Margin = Margin::new();

/// All of it is a guess and none of it matters for correctness, so the accesses are relaxed and may
/// lose updates.
#[derive(Debug)]
struct Margin {
    nanos: UnmodelledU32,
    /// What a sleep may cost (ns).
    allowed: UnmodelledU32,
    sleeps: UnmodelledU32,
    /// The processor time at the last measurement (ns).
    time: UnmodelledU64,
}

impl Margin {
    const fn new() -> Self {
        Self {
            nanos: UnmodelledU32::new(FIRST_MARGIN),
            allowed: UnmodelledU32::new(FIRST_ALLOWED),
            sleeps: UnmodelledU32::new(0),
            time: UnmodelledU64::new(0),
        }
    }

    fn get(&self) -> u64 {
        if cfg!(any(loom, shuttle)) {
            return MODEL_MARGIN;
        }
        self.nanos.load(Ordering::Relaxed).into()
    }

    /// Takes note of what a sleep has cost (ns).
    fn pay(&self, spent: u64) {
        let allowed = u64::from(self.allowed.load(Ordering::Relaxed));
        let margin = (self.get() + allowed).saturating_sub(spent).min(MOST_MARGIN.into());
        self.nanos.store(margin as u32, Ordering::Relaxed);
    }

    /// Counts a sleep, and asks now and then what sleeps may cost: how much processor time the
    /// process has had, says `time`.
    fn measure(&self, time: impl FnOnce() -> Option<u64>) {
        let sleeps = self.sleeps.load(Ordering::Relaxed).wrapping_add(1);
        self.sleeps.store(sleeps, Ordering::Relaxed);
        if !sleeps.is_multiple_of(MEASURED) {
            return;
        }
        let Some(time) = time() else { return };
        let before = self.time.swap(time, Ordering::Relaxed);
        // The time of a forked child begins anew.
        let each = time.saturating_sub(before) / u64::from(MEASURED);
        if before != 0 {
            self.allowed.store((each / PART).min(MOST_ALLOWED) as u32, Ordering::Relaxed);
        }
    }
}

/// One sleep until a time.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct LastStretch {
    /// The time (ns); 0 while there is none.
    due: Cell<u64>,
}

impl LastStretch {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self { due: Cell::new(0) }
    }

    /// When a sleep until `due` is to end.
    #[doc(hidden)]
    pub fn begin(&self, due: Deadline) -> Deadline {
        if spin::limit() == Limit::Off {
            return due;
        }
        let early = due.as_nanos().saturating_sub(MARGIN.get());
        if early <= Deadline::now().as_nanos() {
            // It would not sleep at all.
            return due;
        }
        self.due.set(due.as_nanos());
        Deadline::from_nanos(early)
    }

    /// Whether there is one: the sleep was asked to end earlier than its time.
    #[doc(hidden)]
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.due.get() != 0
    }

    /// After a sleep that has not been woken: what is left of it, if the thread is to spin for
    /// that.
    pub(crate) fn left(&self) -> Option<Left> {
        let due = self.due.replace(0);
        if due == 0 {
            return None;
        }
        MARGIN.measure(process_time);
        let from = Deadline::now().as_nanos();
        let limit = match spin::limit() {
            Limit::Nanos(limit) => limit.min(spin::AUTO_LIMIT),
            _ => spin::AUTO_LIMIT,
        };
        match due.saturating_sub(from) {
            0 => MARGIN.pay(0),
            left if left <= limit && !is_real_time() => return Some(Left { from, due }),
            _ => MARGIN.pay(IN_VAIN),
        }
        None
    }
}

/// What is left of a sleep that has ended early: from when and until when (ns).
#[derive(Debug)]
pub(crate) struct Left {
    from: u64,
    due: u64,
}

impl Left {
    /// Spins until the time has come, unless `ready()`. All that the thread has done since the
    /// sleep counts as its cost.
    pub(crate) fn spin(self, ready: impl Fn() -> bool) {
        let mut now = self.from;
        while !ready() && now < self.due {
            spin::pause(2);
            now = Deadline::now().as_nanos();
        }
        MARGIN.pay(now.saturating_sub(self.from));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn costs(margin: &Margin, sleeps: u32, cost: impl Fn(u64, u32) -> u64) -> u64 {
        let pay = |i| {
            let cost = cost(margin.get(), i);
            margin.pay(cost);
            cost
        };
        (0..sleeps).map(pay).sum()
    }

    /// However early sleeps end.
    #[test]
    fn spins_cost_no_more_than_sleeps_may() {
        const SLEEPS: u32 = 10_000;
        let most = u64::from(SLEEPS * FIRST_ALLOWED + MOST_MARGIN);
        // A sleep cannot end earlier than it was asked to.
        for part in [1, 2, 10] {
            let all = costs(&Margin::new(), SLEEPS, |margin, _| margin / part);
            assert!(all <= most, "{all}");
        }
        let now_and_then = |margin, i| if i % 7 == 0 { margin } else { 0 };
        let all = costs(&Margin::new(), SLEEPS, now_and_then);
        assert!(all <= most, "{all}");
    }

    /// Sleeps that all end 70 to 80 microseconds late are asked to end about that much earlier.
    #[test]
    fn the_margin_settles_where_sleeps_end_on_time() {
        let margin = Margin::new();
        let late = |i: u32| u64::from(70_000 + i * 7919 % 10_000);
        costs(&margin, 1_000, |margin, i| margin.saturating_sub(late(i)));
        assert!((70_000..80_000).contains(&margin.get()), "{}", margin.get());
    }

    #[test]
    fn sleeps_may_cost_a_part_of_the_processor_time() {
        let margin = Margin::new();
        for i in 1..=4 * MEASURED {
            margin.measure(|| Some(u64::from(i) * 64_000));
        }
        assert_eq!(u64::from(margin.allowed.load(Ordering::Relaxed)), 64_000 / PART);
        for _ in 0..MEASURED {
            margin.measure(|| Some(1));
        }
        assert_eq!(margin.allowed.load(Ordering::Relaxed), 0, "a forked child");
    }
}
