//! One spin, from the question whether it begins to what is learned from its end.

use super::busy::{self, BUSY, Busy};
use super::cost::SLEEP_COST;
use super::joint::{self, Alone};
use super::latency::LATENCY;
use super::{AdaptiveSpin, FAILED, LONG_YIELD, PREEMPTED, now};
use crate::sync::spin::{self, Limit, Spinner};
use crate::sync::time::Deadline;

/// A waiter looks outside of the ready list this often (ns).
const OUTSIDE_EVERY: u64 = 4_000;
/// Time between two looks at the clock (ns) in which something else must have run there.
const GAP: u64 = 20_000;
/// How long (ns) as many threads may spin as there are processors.
const CROWDED: u64 = 3_000;
/// Checks of the ready list between two readings of the clock.
const CHECKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

impl AdaptiveSpin {
    /// A spin, if this wait is to spin, until `until` (ns) at most.
    #[inline]
    pub(crate) fn begin(&self, until: u64) -> Option<Spin<'_>> {
        self.begin_unless(&BUSY, until)
    }

    pub(super) fn begin_unless<'a>(&'a self, busy: &'a Busy, until: u64) -> Option<Spin<'a>> {
        let (limit, adaptive) = match spin::limit() {
            Limit::Off => return None,
            Limit::Auto if busy.rests(now) => return None,
            Limit::Auto => (LATENCY.limit(), true),
            Limit::Nanos(limit) => (limit, false),
        };
        let shares = self.shares_processor();
        let by_itself = !shares && (!adaptive || self.is_worth_it() || is_soon(until));
        let alone = match shares {
            true => Alone::OnlySleeps,
            _ if by_itself => Alone::Spins,
            _ => Alone::Sleeps,
        };
        let is_joint = adaptive && self.takes_part() && joint::waits(alone);
        if shares || !by_itself && !is_joint {
            return None;
        }
        let limit = if is_joint { LATENCY.joint_limit() } else { limit };
        let spinner = Spinner::begin(!adaptive || is_joint)?;
        let start = Deadline::now().as_nanos();
        let end = until.min(start + limit);
        spinner.spins_until(end);
        busy.note_spin();
        Some(Spin {
            memory: self,
            busy,
            spinner,
            start,
            last: start,
            last_outside: start,
            outside_every: if adaptive { OUTSIDE_EVERY } else { 0 },
            end,
            cut_short: end < start + limit,
            limit,
            looks: 0,
            interrupted: false,
            preempted: false,
            crowded: false,
            is_joint,
        })
    }
}

/// Whether a time (ns) comes before a sleep would be over.
fn is_soon(until: u64) -> bool {
    until < Deadline::FAR.as_nanos()
        && until.saturating_sub(Deadline::now().as_nanos()) < SLEEP_COST.get() as u64
}

/// One spin.
#[derive(Debug)]
pub(crate) struct Spin<'a> {
    memory: &'a AdaptiveSpin,
    busy: &'a Busy,
    spinner: Spinner,
    start: u64,
    /// When the clock was last looked at.
    pub(super) last: u64,
    last_outside: u64,
    outside_every: u64,
    end: u64,
    /// The spin ends before its limit, because the wait or a timer does.
    cut_short: bool,
    limit: u64,
    looks: u32,
    /// Something else has run on its processor, if only for moments: an interrupt, or the host. How
    /// long the wait has needed is not known then.
    interrupted: bool,
    /// It has lost its processor to a thread that used it.
    preempted: bool,
    crowded: bool,
    /// The wait would have slept if it were not for the others that spin.
    pub(super) is_joint: bool,
}

impl Spin<'_> {
    /// Pauses between two looks. Whether the spin goes on, until `due` (ns) at most.
    #[inline]
    pub(crate) fn goes_on(&mut self, due: u64) -> bool {
        spin::pause(2);
        self.looks += 1;
        if !self.looks.is_multiple_of(CHECKS) {
            return true;
        }
        if due < self.end {
            self.end = due;
            self.cut_short = true;
        }
        let passed = self.read_clock();
        self.interrupted = passed > GAP;
        self.preempted = passed > LONG_YIELD;
        let is_one_too_many = || self.spinner.is_one_too_many(self.last);
        if self.is_joint && !self.interrupted && is_one_too_many() {
            return self.yields();
        }
        self.crowded = self.last.saturating_sub(self.start) > CROWDED && is_one_too_many();
        self.last < self.end && !self.interrupted && !self.crowded
    }

    /// In a joint spin on all processors: the thread that is to do something may wait for this one.
    /// Whether the spin goes on.
    #[cold]
    fn yields(&mut self) -> bool {
        spin::yield_now();
        self.preempted = self.read_clock() > LONG_YIELD;
        self.last < self.end && !self.preempted
    }

    /// Reads the clock; how long ago (ns) that was done before. Long, if the processor was lost.
    fn read_clock(&mut self) -> u64 {
        let before = self.last;
        self.last = Deadline::now().as_nanos();
        let passed = self.last.saturating_sub(before);
        busy::lost(passed);
        passed
    }

    /// Whether it is time to look outside of the ready list: in the kernel half.
    #[inline]
    pub(crate) fn looks_outside(&mut self) -> bool {
        if self.last.saturating_sub(self.last_outside) < self.outside_every {
            return false;
        }
        self.last_outside = self.last;
        true
    }

    /// The look outside is over, and was no loss of the processor.
    #[inline]
    pub(crate) fn looked_outside(&mut self) {
        self.last = Deadline::now().as_nanos();
    }

    /// It found what the wait was for, on the ready list.
    pub(crate) fn succeeded(self) {
        let needed = self.needed();
        self.busy.gain(self.memory.saved(needed));
        if self.is_joint {
            return self.memory.found_jointly(false, needed);
        }
        self.memory.succeeded(needed, self.limit);
    }

    /// It found something outside, which was no waker's of ours.
    pub(crate) fn found_outside(self) {
        if self.is_joint {
            return self.memory.found_jointly(true, self.needed());
        }
        self.memory.remember(Some(self.needed()), self.limit);
        self.memory.attempted(1);
    }

    /// It ended because the wait does.
    pub(crate) fn stopped(self) {
        self.memory.attempted(1);
    }

    /// How long it has lasted (ns), up to an interruption.
    fn needed(&self) -> u64 {
        let now = Deadline::now().as_nanos();
        let end = match now.saturating_sub(self.last) {
            GAP..=LONG_YIELD => self.last,
            _ => now,
        };
        end.saturating_sub(self.start)
    }

    /// It found nothing.
    pub(crate) fn failed(self) {
        if self.is_joint {
            joint::spun(false);
            // What the sleep takes that follows says nothing of one without a spin.
            self.memory.note_vain();
        } else if self.preempted {
            self.memory.failed(PREEMPTED, self.limit);
        } else if self.interrupted {
            self.memory.was_in_vain(FAILED);
        } else if !self.cut_short && !self.crowded {
            self.memory.failed(FAILED, self.limit);
        } else {
            self.memory.attempted(1);
        }
    }
}
