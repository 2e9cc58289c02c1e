//! The word that says until when a set is calm, and what ends that. Under loom this file runs as it
//! is.
//!
//! | the holder of the lock, whose members change | a wait without the lock |
//! |---|---|
//! | ends the calm, and adds the listener's watch | the kernel reports the listener's event |
//! | may begin it anew, before a sleep: data, then word | word, then data: it is a listener's event |
//!
//! A listener's event alone *pauses* it, because the next wait has little to do for that. What the
//! calm was about still holds when it goes on: whatever changes the members ends a pause, too.

use crate::kernel_half::listeners::baton::Notes;
use crate::sys::sync::{AtomicBool, AtomicU64, Ordering, array_of, const_fn, mutant};
use core::ffi::c_int;
use core::time::Duration;
use libc::epoll_event;
use wakeset::{Deadline, mutated};

/// Listeners in a set that can be calm: most servers have one, or one for each family of addresses.
pub(super) const MOST: usize = 2;

/// Whether a set is calm, and what ends that.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Calm {
    /// When the listeners are looked at next, in nanoseconds since the machine's start; 0 while the
    /// set is not calm. Set with the lock held.
    until: AtomicU64,
    /// What that was before a listener's event, if nothing but such events has ended the calm; 0
    /// otherwise. Read and set with the lock held.
    paused: AtomicU64,
    /// The data of the listeners' watches, one of them more often than once where there are fewer.
    data: [AtomicU64; MOST],
    /// The two halves of the notes of the listeners, of which each wait tells others; 0 if there
    /// are none. What is read in the middle of a change costs evenness and nothing else.
    notes: [AtomicU64; 2],
    /// Another worker was there since the listeners were last looked at. So long that is not asked
    /// again: it takes a clock and the slots of all.
    is_beside_another: AtomicBool,
}

impl Calm {
    const_fn! {
        pub(crate) const fn none() -> Self {
            Self {
                until: AtomicU64::new(0),
                paused: AtomicU64::new(0),
                data: array_of![AtomicU64::new(0); MOST],
                notes: array_of![AtomicU64::new(0); 2],
                is_beside_another: AtomicBool::new(false),
            }
        }
    }

    /// It lasts until then. `notes`: of which others are told.
    pub(crate) fn begin(&self, data: [u64; MOST], notes: Notes, until: Deadline) {
        for (place, data) in self.data.iter().zip(data) {
            place.store(data, Ordering::Relaxed);
        }
        for (place, half) in self.notes.iter().zip([notes as u64, (notes >> 64) as u64]) {
            place.store(half, Ordering::Relaxed);
        }
        // After the data.
        let is_relaxed = mutant!("calm_before_its_data");
        let after = if is_relaxed { Ordering::Relaxed } else { Ordering::Release };
        self.until.store(until.as_nanos(), after);
        self.paused.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is(&self) -> bool {
        self.until.load(Ordering::Acquire) != 0
    }

    /// The notes of the listeners, where others are told of each wait; 0 where there are none.
    #[inline(always)]
    pub(crate) fn told_notes(&self) -> Notes {
        let [low, high] =
            self.notes.each_ref().map(|half| Notes::from(half.load(Ordering::Relaxed)));
        low | high << 64
    }

    pub(crate) fn end(&self) {
        if self.is() || self.is_paused() {
            self.until.store(0, Ordering::Relaxed);
            if !mutated!("pause_outlasts_a_change") {
                self.paused.store(0, Ordering::Relaxed);
            }
        }
    }

    /// A listener's event was reported.
    pub(crate) fn pause(&self) {
        if self.is() {
            self.paused.store(self.until.load(Ordering::Relaxed), Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Whether only listeners' events have ended it.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed) != 0
    }

    /// What was reported is minded: it goes on, if nothing has ended it meanwhile.
    pub(crate) fn go_on(&self) {
        let until = self.paused.load(Ordering::Relaxed);
        if until != 0 {
            self.paused.store(0, Ordering::Relaxed);
            // After the data, which another thread may have stored.
            let is_relaxed = mutant!("calm_goes_on_before_its_data");
            let after = if is_relaxed { Ordering::Relaxed } else { Ordering::Release };
            self.until.store(until, after);
        }
    }

    /// Ends, and may begin again: the listeners are looked at.
    pub(crate) fn begin_anew(&self) {
        self.end();
        self.is_beside_another.store(false, Ordering::Relaxed);
    }

    /// How long until the listeners are looked at. `None`: it is time, or the set is not calm.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.nanos_left_from(Deadline::at_last_tick).map(Duration::from_nanos)
    }

    /// [`left`](Self::left) in whole milliseconds, where the time is known.
    #[inline(always)]
    pub(crate) fn millis_left(&self, now: Deadline) -> Option<c_int> {
        self.nanos_left_from(|| now).map(|left| (left / 1_000_000) as c_int)
    }

    /// In nanoseconds. The time is not asked for if the set is not calm.
    #[inline(always)]
    fn nanos_left_from(&self, now: impl FnOnce() -> Deadline) -> Option<u64> {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let left = until.saturating_sub(now().as_nanos());
        (left != 0 || mutated!("calm_without_end")).then_some(left)
    }

    /// Whether another worker was there since the last look, or `is_there` now.
    pub(crate) fn is_beside_another(&self, is_there: impl FnOnce() -> bool) -> bool {
        if !self.is_beside_another.load(Ordering::Relaxed) && is_there() {
            self.is_beside_another.store(true, Ordering::Relaxed);
        }
        self.is_beside_another.load(Ordering::Relaxed)
    }

    /// Whether an event has the data of a listener's watch.
    #[inline(always)]
    pub(crate) fn is_listeners(&self, event: epoll_event) -> bool {
        self.data.iter().any(|data| data.load(Ordering::Relaxed) == event.u64)
    }
}
