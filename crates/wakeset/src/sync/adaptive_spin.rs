//! The adaptive spin: whether a waiter that finds nothing should look again for a while before it
//! sleeps.
//!
//! A sleep and its wake-up take 20 to 50 microseconds on an idle processor and several of processor
//! time on both sides, where two threads that are awake need a fraction of one. When events arrive
//! faster than that, a waiter that sleeps between them makes every waker pay for a wake-up. When
//! they do not, spinning is waste.
//!
//! So each set, and each object that threads block in, remembers its last waits: for how long the
//! waiter would have had to spin to be awake for its event. A waker that wakes a sleeping waiter
//! leaves the time, so that this is known of waits that have slept too. From that follows what
//! spinning gains on average in processor time ([`gain`](AdaptiveSpin::gain)), and a waiter spins
//! while it gains something. What a sleep costs is measured now and then, and so is whether wakers
//! [keep busy](waker).
//!
//! | the last waker | before a sleep the waiter |
//! |---|---|
//! | ran on this processor | yields a few times, if its sleeps have been short: the waker may be waiting for the processor. A yield may hand it to a thread that keeps it for milliseconds: after one that took over 200 µs and found fewer than four events, the next 255 sleeps earn no yield. Nor do the next 63 once yields have found nothing, and no thread that wanted the processor, clearly more often than something |
//! | ran on another one | looks at the ready list, for about as long as a [wake-up takes](latency) at most |
//!
//! A wait that is too long to spin for may be so only because other threads sleep as well. Whether
//! it would be shorter if it spun itself, it [attempts](attempt) now and then; whether it is worth
//! it that they all spin, the process tries ([`joint`]).
//!
//! A spin that fails doubles, roughly, the number of waits that do not spin. How long these sleep
//! is not learned from, or one failure would end all spins where wakers sleep because waiters do. A
//! spin ends early where it can only do harm: with as many threads spinning as there are
//! processors, and after the thread has lost its processor in it. A joint spin yields instead while
//! as many threads spin. Where other programs [want the processors](busy), and spins lose more to
//! these than they gain, no thread of the process spins or yields for a while.
//!
//! Under the model checkers nothing is learned, because a schedule must be repeatable: a model says
//! how many times each wait looks before it sleeps (`set_model_spin`), and without that none does.

mod attempt;
mod busy;
mod cost;
pub(crate) mod joint;
mod latency;
mod one_spin;
mod sleep;
mod waker;

use crate::sync::spin::{self, Limit, processor};
use crate::sync::thread_id;
use crate::sync::time::Deadline;
use crate::sync::{Ordering, UnmodelledU8, UnmodelledU16, UnmodelledU32};
use attempt::{PAUSE, Pause};
use busy::{BUSY, Busy};
use cost::{SLEEP_COST, WAKE_COST};
use latency::LATENCY;
pub(crate) use one_spin::Spin;
use waker::DUE;

/// A wait that took less than this (ns) was no sleep.
const SLEEP: u64 = 3_000;
/// A sleep shorter than this (ns) would better have been a yield.
const SHORT_SLEEP: u64 = 50_000;
/// A yield longer than this (ns) gave the processor to a thread that used it.
const LONG_YIELD: u64 = 200_000;
/// A yield shorter than this (ns) has run no other thread: none was waiting for the processor.
const EMPTY_YIELD: u64 = 1_500;
/// What a long yield must have gathered to have been worth it.
const BATCH: usize = 4;
/// Yields before a sleep, at most.
const YIELDS: u32 = 4;
/// Short sleeps in a row before yielding begins.
const THRESHOLD: u8 = 2;
const MOST: u8 = 8;
/// Sleeps that a long and useless yield costs.
const PENALTY: u8 = 255;
/// What yields cost that are all empty, and what those earn that find something; a short sleep
/// earns half of it. Where that leaves too little, so many sleeps earn none. Other threads may come
/// to this processor before so long a time as a useless yield costs.
const EMPTY: u8 = 2;
const EMPTY_PENALTY: u8 = 63;

/// How many waits the average goes back, as a shift.
const MEMORY: i32 = 3;
/// The average at the start: a few short waits make it positive.
const FIRST_GAIN: i32 = -5_000;
/// `FAILED` is added to the failures for a spin in vain, `PREEMPTED` for one that lost its
/// processor for long, up to `MOST_FAILURES`. A success subtracts one. Each four double the number
/// of waits that do not spin.
const FAILED: u8 = 4;
const PREEMPTED: u8 = 16;
const MOST_FAILURES: u8 = 64;

/// The memory of one set or object about its last waits. All of it is a guess and none of it
/// matters for correctness, so the accesses are relaxed and may lose updates.
///
/// 24 bytes, which the cache line of a set's waiters has to spare.
#[derive(Debug)]
pub(crate) struct AdaptiveSpin {
    /// When a sleeping waiter was last woken (ns, the lower half).
    woken_at: UnmodelledU32,
    /// Which thread woke it last while a look was due; 0 for none.
    waker: UnmodelledU32,
    /// What a spin would have gained on average in processor time (ns), as a signed number.
    gain: UnmodelledU32,
    /// How many waits do not spin.
    skipped: UnmodelledU16,
    /// On which processor the last waker ran.
    woken_from: UnmodelledU16,
    /// How long wakers keep busy, on average, while a waiter wakes up (ns).
    busy: UnmodelledU16,
    /// What has been spent since the last look at a waker ([`DUE`]).
    spent: UnmodelledU16,
    /// How many sleeps to take without earning anything.
    penalty: UnmodelledU8,
    /// Short sleeps in a row, up to `MOST`.
    credit: UnmodelledU8,
    failures: UnmodelledU8,
    /// [`IN_VAIN`], [`WOKEN`] and [`OUTSIDE`], and above these the stage of an [`attempt`].
    notes: UnmodelledU8,
}

/// The wait that sleeps now has spun in vain before, or is one that does not spin because another
/// has. How long it takes says nothing: its waker may sleep only because waiters do.
const IN_VAIN: u8 = 1;
/// A waker has ended the last sleep.
const WOKEN: u8 = 2;
/// The last joint spin found something outside. After two in a row its waits are about that.
const OUTSIDE: u8 = 4;
/// All of these.
const NOTES: u8 = IN_VAIN | WOKEN | OUTSIDE;

/// No waker so far.
const NOWHERE: u16 = u16::MAX;

/// The memories of objects, which have no room for one: several may share one.
static OF_OBJECTS: [AdaptiveSpin; OBJECTS] = [const { AdaptiveSpin::new() }; OBJECTS];
const OBJECTS: usize = 64;

impl AdaptiveSpin {
    /// The memory of the object at this address.
    #[inline]
    pub(crate) fn of(address: usize) -> &'static Self {
        // Objects are in slots of 64 bytes or more.
        &OF_OBJECTS[(address >> 6) % OBJECTS]
    }

    pub(crate) const fn new() -> Self {
        Self {
            woken_at: UnmodelledU32::new(0),
            waker: UnmodelledU32::new(0),
            gain: UnmodelledU32::new(FIRST_GAIN as u32),
            skipped: UnmodelledU16::new(0),
            woken_from: UnmodelledU16::new(NOWHERE),
            busy: UnmodelledU16::new(0),
            spent: UnmodelledU16::new(DUE),
            penalty: UnmodelledU8::new(0),
            credit: UnmodelledU8::new(0),
            failures: UnmodelledU8::new(0),
            notes: UnmodelledU8::new(0),
        }
    }

    /// For a waker: runs `wake`, and leaves when and where that was, unless it says that it has
    /// woken nobody.
    #[inline]
    pub(crate) fn waking(&self, wake: impl FnOnce() -> bool) {
        if cfg!(any(loom, shuttle)) || spin::limit() == Limit::Off {
            wake();
            return;
        }
        // Before: the waiter may run before the call returns.
        let from = self.woken_from.swap(processor(), Ordering::Relaxed);
        let now = Deadline::now().as_nanos();
        let at = self.woken_at.swap(now as u32, Ordering::Relaxed);
        // Where a system call says which thread this is, it is not made for each wake-up.
        let is_look_due = self.is_look_due();
        let waker = is_look_due.then(|| self.waker.swap(thread_id::current(), Ordering::Relaxed));
        if !wake() {
            self.woken_from.store(from, Ordering::Relaxed);
            self.woken_at.store(at, Ordering::Relaxed);
            if let Some(waker) = waker {
                self.waker.store(waker, Ordering::Relaxed);
            }
        } else if WAKE_COST.is_due() || is_look_due {
            WAKE_COST.remember(Deadline::now().as_nanos().saturating_sub(now));
        }
    }

    /// Calls `yielded()`, which yields and looks, a few times, if the sleeps before have been
    /// short; then what `take()` gets. 0 means that there was nothing. A set that is not `pure`
    /// yields only to a waker that was on this processor, and so does one whose wakers keep busy.
    pub(crate) fn yield_for(
        &self,
        pure: bool,
        yielded: impl Fn() -> bool,
        take: impl FnMut() -> usize,
    ) -> usize {
        self.yield_unless(&BUSY, pure, yielded, take)
    }

    fn yield_unless(
        &self,
        busy: &Busy,
        pure: bool,
        yielded: impl Fn() -> bool,
        mut take: impl FnMut() -> usize,
    ) -> usize {
        let credit = self.credit.load(Ordering::Relaxed);
        if credit < THRESHOLD
            || !(self.shares_processor() || pure && !self.gains_by_sleeping())
            || busy.rests(now)
        {
            return 0;
        }
        busy.note_spin();
        let mut others_ran = false;
        for _ in 0..YIELDS {
            let before = now();
            let found = if yielded() { take() } else { 0 };
            let took = now().saturating_sub(before);
            let is_lost = found < BATCH && took > LONG_YIELD;
            if is_lost {
                busy::lost(took);
            }
            if found == 0 {
                others_ran |= took >= EMPTY_YIELD;
                continue;
            }
            if is_lost {
                self.stop_yielding(PENALTY);
            } else {
                self.credit.store((credit + EMPTY).min(MOST), Ordering::Relaxed);
                self.remember(Some(took), LATENCY.limit());
            }
            return found;
        }
        match credit.saturating_sub(if others_ran { 1 } else { EMPTY }) {
            left if left < THRESHOLD && !others_ran => self.stop_yielding(EMPTY_PENALTY),
            left => self.credit.store(left, Ordering::Relaxed),
        }
        0
    }

    /// So many sleeps earn no yield.
    fn stop_yielding(&self, sleeps: u8) {
        self.credit.store(0, Ordering::Relaxed);
        self.penalty.store(sleeps, Ordering::Relaxed);
    }

    /// Whether the last waker ran where this thread runs.
    fn shares_processor(&self) -> bool {
        self.woken_from.load(Ordering::Relaxed) == processor()
    }

    fn is_worth_it(&self) -> bool {
        self.is_worth_it_unless(&PAUSE)
    }

    fn is_worth_it_unless(&self, pause: &Pause) -> bool {
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            self.skipped.store(skipped - 1, Ordering::Relaxed);
            self.note_vain();
            return false;
        }
        !self.is_look_overdue() && (self.gain() > 0 || self.attempts(pause))
    }

    /// Whether a wait spins if those of other threads do, too: a waker that then waited itself has
    /// ended its last sleep.
    fn takes_part(&self) -> bool {
        self.notes.load(Ordering::Relaxed) & WOKEN != 0
            && !self.keeps_busy()
            && !self.is_look_overdue()
    }

    /// What a spin would have gained, on average over the last waits, in processor time (ns).
    fn gain(&self) -> i32 {
        self.gain.load(Ordering::Relaxed) as i32
    }

    /// Takes note of a wait: how long (ns) it would have had to spin for its event, if that is
    /// known, and how long it may.
    fn remember(&self, needed: Option<u64>, limit: u64) {
        let gained = match needed {
            Some(needed) if needed <= limit => self.saved(needed),
            _ => -(limit.min(LATENCY.limit()) as i32),
        };
        let before = self.gain();
        self.gain.store((before + ((gained - before) >> MEMORY)) as u32, Ordering::Relaxed);
    }

    /// What a spin gains in processor time (ns) that finds its event after so long (ns).
    fn saved(&self, needed: u64) -> i32 {
        SLEEP_COST.get() + WAKE_COST.get() - needed as i32 - self.busy()
    }

    fn succeeded(&self, needed: u64, limit: u64) {
        self.spend(needed);
        self.remember(Some(needed), limit);
        let notes = self.notes.load(Ordering::Relaxed);
        if notes & IN_VAIN != 0 {
            self.notes.store(notes & !IN_VAIN, Ordering::Relaxed);
        }
        let failures = self.failures.load(Ordering::Relaxed);
        if !self.attempted(1) && failures > 0 {
            self.failures.store(failures - 1, Ordering::Relaxed);
        }
    }

    /// A joint spin has found something, outside or not.
    fn found_jointly(&self, outside: bool, needed: u64) {
        joint::spun(true);
        self.spend(needed);
        let notes = self.notes.load(Ordering::Relaxed);
        let notes = match outside {
            false => notes & !OUTSIDE,
            true if notes & OUTSIDE != 0 => notes & !(WOKEN | OUTSIDE),
            true => notes | OUTSIDE,
        };
        self.notes.store(notes, Ordering::Relaxed);
    }

    fn note_vain(&self) {
        self.notes.store(self.notes.load(Ordering::Relaxed) | IN_VAIN, Ordering::Relaxed);
    }

    fn failed(&self, weight: u8, limit: u64) {
        self.remember(None, limit);
        self.was_in_vain(weight);
    }

    /// A spin has found nothing; what it has taken is remembered, or says nothing.
    fn was_in_vain(&self, weight: u8) {
        self.note_vain();
        if !self.attempted(weight) {
            self.rest(self.failures.load(Ordering::Relaxed) + weight);
        }
    }

    /// So many failures: the next waits do not spin.
    fn rest(&self, failures: u8) {
        let failures = failures.min(MOST_FAILURES);
        self.failures.store(failures, Ordering::Relaxed);
        let skipped = (1_u32 << (failures / FAILED)).min(u16::MAX.into());
        self.skipped.store(skipped as u16, Ordering::Relaxed);
    }
}

/// The time (ns).
fn now() -> u64 {
    Deadline::now().as_nanos()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
