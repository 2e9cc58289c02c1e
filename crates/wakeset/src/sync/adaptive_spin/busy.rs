//! Whether other programs want the processors, and more than spins gain.
//!
//! The scheduler prefers a thread that has slept. One that spins uses that up, and then waits for
//! whole time slices of other programs, while it spins or after it has been woken. What a thread
//! has waited so is a *loss*. What a spin has saved that found its event is a *gain*: what a sleep
//! and its wake-up cost, less the time of the spin. The process keeps an account of both. Two
//! threads that answer each other at once lose slices as well, and gain ten times as much in those
//! that they have at the same time; so they spin on. Where losses come to more than gains, all
//! adaptive spins of the process end, and its threads only sleep for a while, which is twice as
//! long each time in a row.
//!
//! | the account | what happens |
//! |---|---|
//! | full, as on a free machine soon after the start | a spin reads one cache line that nobody writes |
//! | not full | each spin that finds something pays in its gain |
//! | overdrawn by 4 ms | threads sleep, 250 ms at first, up to 4 s; it begins anew, with 10 ms |
//!
//! Losses are noticed where the clock is read anyway: in a spin, after a yield, and when a thread
//! goes on that a waker has woken. That takes nothing where there are none. A loss counts if
//! threads have spun since the one before: those of a process that sleeps, or computes, are not the
//! spins'.
//!
//! The [joint](super::joint) spin has an account of its own, to which nothing is paid in, so it
//! ends sooner: its gains are compared by its trials. When all spins end it does, too.

use super::{joint, now};
use crate::sync::line::Line;
use crate::sync::{Ordering, UnmodelledU32, UnmodelledU64};

/// The process's. A forked child begins with its parent's: it runs on the same machine.
pub(super) static BUSY: Line<Busy> = Line(Busy::new(GRACE));

/// What the account of all spins begins with (ns), also after a rest: threads that have just begun
/// to answer each other lose some slices before they gain anything.
pub(super) const GRACE: i64 = 10_000_000;
/// A thread that was without a processor for longer (ns) has lost it to another program.
pub(super) const LOSS: u64 = 200_000;
/// What one loss counts for at most (ns): in a longer one the process may have been stopped.
const MOST_LOSS: u64 = 2_500_000;
/// The machine is busy if losses come to more than this (ns), beyond gains and a part of the time.
const OVERDRAWN: i64 = 4_000_000;
/// One in so many is that part: on any machine something else runs now and then.
const PART: u64 = 16;
/// What gains come to at most (ns), but for the last one, which is some microseconds: what some
/// eight losses take.
pub(super) const FULL: i64 = 20_000_000;
/// For how long (ns) threads sleep then, the first time and at most.
pub(super) const REST: u64 = 250_000_000;
pub(super) const MOST_REST: u64 = 4_000_000_000;

#[derive(Debug)]
pub(super) struct Busy {
    /// Gains less losses (ns), as a signed number, and when a loss was last reckoned.
    account: UnmodelledU64,
    reckoned: UnmodelledU64,
    /// Until when threads sleep (ns); 0 while they may spin.
    until: UnmodelledU64,
    /// For how long they have slept the last time, and since when they may spin again (ns).
    rest: UnmodelledU64,
    since: UnmodelledU64,
    /// 1 if a thread has spun since the last loss.
    spun: UnmodelledU32,
    grace: i64,
}

/// A thread that spun, yielded or had been woken was without a processor for so long (ns).
#[inline]
pub(super) fn lost(nanos: u64) {
    if nanos > LOSS {
        joint::lost(nanos, BUSY.lose_by_spins(nanos, now()));
    }
}

impl Busy {
    pub(super) const fn new(grace: i64) -> Self {
        Self {
            account: UnmodelledU64::new(grace as u64),
            reckoned: UnmodelledU64::new(0),
            until: UnmodelledU64::new(0),
            rest: UnmodelledU64::new(REST),
            since: UnmodelledU64::new(0),
            spun: UnmodelledU32::new(0),
            grace,
        }
    }

    /// Whether threads are to sleep for a while.
    #[inline]
    pub(super) fn rests(&self, now: impl FnOnce() -> u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && self.still_rests(until, now())
    }

    #[cold]
    fn still_rests(&self, until: u64, now: u64) -> bool {
        if now >= until {
            self.end_rest(now);
        }
        now < until
    }

    /// Threads are about to spin again.
    pub(super) fn end_rest(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
        self.until.store(0, Ordering::Relaxed);
    }

    /// A thread begins to spin.
    #[inline]
    pub(super) fn note_spin(&self) {
        if self.spun.load(Ordering::Relaxed) == 0 {
            self.spun.store(1, Ordering::Relaxed);
        }
    }

    /// [`lose`](Self::lose), if threads have spun since the last loss: otherwise it is not one of
    /// spins.
    pub(super) fn lose_by_spins(&self, nanos: u64, now: u64) -> bool {
        self.spun.swap(0, Ordering::Relaxed) != 0 && self.lose(nanos, now)
    }

    /// A spin has saved so much (ns), if that is anything.
    #[inline]
    pub(super) fn gain(&self, nanos: i32) {
        let account = self.account();
        if account < FULL && nanos > 0 {
            self.set_account(account + i64::from(nanos));
        }
    }

    /// A thread was without a processor for so long (ns). Returns whether a rest begins. Several
    /// threads that lose theirs at a time, as in a stop of the process, have lost that time once.
    pub(super) fn lose(&self, nanos: u64, now: u64) -> bool {
        if nanos <= LOSS || self.rests(|| now) {
            return false;
        }
        let passed = now.saturating_sub(self.reckoned.swap(now, Ordering::Relaxed));
        let account = self.account();
        // That part of the time forgives losses, and is no gain.
        let forgiven = account.saturating_add_unsigned(passed / PART).min(account.max(0));
        let account = forgiven.saturating_sub_unsigned(nanos.min(MOST_LOSS).min(passed));
        let is_busy = account < -OVERDRAWN;
        self.set_account(if is_busy { self.grace } else { account });
        if is_busy {
            self.begin_rest(now);
        }
        is_busy
    }

    /// Threads are to sleep for a while.
    pub(super) fn begin_rest(&self, now: u64) {
        let rest = self.rest.load(Ordering::Relaxed);
        // Losses have come too slowly to matter since the last rest: the machine was free.
        let was_free = now.saturating_sub(self.since.load(Ordering::Relaxed)) > rest / 4;
        let rest = if was_free { REST } else { (2 * rest).min(MOST_REST) };
        self.rest.store(rest, Ordering::Relaxed);
        self.until.store(now + rest, Ordering::Relaxed);
    }

    pub(super) fn account(&self) -> i64 {
        self.account.load(Ordering::Relaxed) as i64
    }

    fn set_account(&self, account: i64) {
        self.account.store(account as u64, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
