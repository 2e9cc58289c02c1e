//! Attempts: short series of spins where waits seem to be too long to spin for.
//!
//! A waker that sleeps while the waiter does has to be woken for the next event itself, so that
//! comes later than it would to a waiter that is awake. Where that makes the difference, a wait has
//! two stable states: it spins, its event comes soon, and the spin pays; or it sleeps, its event
//! comes late, and nothing shows that a spin would pay. An event loop that hands work to a pool of
//! threads is of that kind, because these sleep on a futex of their own.
//!
//! So after [`NEAR`] sleeps that wakers on other processors have ended soon the wait attempts up to
//! [`SPINS`] spins, and goes on with them if those that are judged have paid. A spin or a longer
//! sleep between these sleeps starts the count again; those that say nothing, or that a waker on
//! this processor has ended, are passed over. A spin in vain counts for four, and one that has lost
//! its processor ends the attempt. An attempt that fails is followed by at least 128 waits that do
//! not spin; each further failure doubles that, up to 65,535. None is made where wakers keep busy,
//! or while a [joint](super::joint) spin is tried or kept. For a process with many sets, of which
//! each would make a first one, a [`Pause`] bounds them all.

use super::latency::LATENCY;
use super::{AdaptiveSpin, FAILED, NOTES, joint};
use crate::sync::time::Deadline;
use crate::sync::{Ordering, UnmodelledU64};

/// Sleeps before an attempt, and the last stage without a spin.
const NEAR: u8 = 15;
/// Spins of an attempt.
const SPINS: u8 = 15;
/// Of these, what the first ones take is not judged.
const SETTLE: u8 = 7;
/// Where the notes have the stage: up to `NEAR` it counts sleeps, above it spins.
const STAGE: u32 = NOTES.trailing_ones();
/// What an attempt that fails makes of fewer failures: 128 waits do not spin.
const FAILURES: u8 = 7 * FAILED;

/// Attempts that do not pay take no more than one in so many parts of the time.
const SHARE: u64 = 64;

/// The process's.
pub(super) static PAUSE: Pause = Pause::new();

/// After an attempt that has not paid no other one begins, of whatever set. Until when (ns).
#[derive(Debug)]
pub(super) struct Pause(UnmodelledU64);

impl Pause {
    pub(super) const fn new() -> Self {
        Self(UnmodelledU64::new(0))
    }

    /// Begins another one, if it is over.
    fn begin(&self) -> bool {
        let now = Deadline::now().as_nanos();
        let is_over = now >= self.0.load(Ordering::Relaxed);
        if is_over {
            let longest = u64::from(SPINS) * LATENCY.limit();
            self.0.store(now + SHARE * longest, Ordering::Relaxed);
        }
        is_over
    }

    /// An attempt has paid: that is no loss.
    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl AdaptiveSpin {
    fn stage(&self) -> u8 {
        self.notes.load(Ordering::Relaxed) >> STAGE
    }

    fn set_stage(&self, stage: u8) {
        let notes = self.notes.load(Ordering::Relaxed) & NOTES;
        self.notes.store(notes | stage << STAGE, Ordering::Relaxed);
    }

    /// A sleep is over that followed no spin: a waker has ended it after so long (ns), or nobody.
    pub(super) fn counts_as_near(&self, needed: Option<u64>) {
        let is_near = needed.is_some_and(|needed| needed <= 2 * LATENCY.limit());
        match self.stage() {
            stage if stage > NEAR => {}
            // What a spin would have needed there is not known.
            _ if self.shares_processor() => {}
            stage if is_near => self.set_stage((stage + 1).min(NEAR)),
            _ => self.set_stage(0),
        }
    }

    /// Whether a wait that would sleep spins as part of an attempt, which may begin with it.
    pub(super) fn attempts(&self, pause: &Pause) -> bool {
        let stage = self.stage();
        if stage < NEAR {
            return false;
        }
        if self.keeps_busy() || !joint::rests() {
            self.set_stage(0);
            return false;
        }
        if stage > NEAR {
            return true;
        }
        let begins = pause.begin();
        if begins {
            self.gain.store(0, Ordering::Relaxed);
            self.set_stage(NEAR + 1);
        }
        begins
    }

    /// A spin has ended, which counts for so many. Whether it was part of an attempt.
    pub(super) fn attempted(&self, spins: u8) -> bool {
        let stage = self.stage();
        if stage <= NEAR {
            if stage > 0 {
                self.set_stage(0);
            }
            return false;
        }
        let before = stage - NEAR;
        let spins = before + spins;
        if before <= SETTLE && spins > SETTLE {
            self.gain.store(0, Ordering::Relaxed);
        }
        if spins <= SPINS {
            self.set_stage(NEAR + spins);
            return true;
        }
        self.set_stage(0);
        let failures = self.failures.load(Ordering::Relaxed);
        if self.gain() > 0 {
            PAUSE.end();
            self.failures.store(failures.saturating_sub(SPINS), Ordering::Relaxed);
        } else {
            self.rest((failures + FAILED).max(FAILURES));
        }
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
