//! The word that says until when a set is calm, and what ends that. Under loom this file runs as it
//! is.
//!
//! | the holder of the lock, whose members change | a wait without the lock |
//! |---|---|
//! | ends the calm, and adds the listener's watch | the kernel reports the listener's event |
//! | may begin it anew, before a sleep: data, then word | word, then data: it is a listener's event |

use crate::kernel_half::listeners::baton::Notes;
use crate::sys::sync::{AtomicBool, AtomicU64, Ordering, array_of, const_fn, mutant};
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
        self.until.store(until.since_boot().as_nanos() as u64, after);
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
        if self.is() {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Ends, and may begin again: the listeners are looked at.
    pub(crate) fn begin_anew(&self) {
        self.end();
        self.is_beside_another.store(false, Ordering::Relaxed);
    }

    /// How long until the listeners are looked at. `None`: it is time, or the set is not calm.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.left_from(Deadline::at_last_tick)
    }

    /// [`left`](Self::left), where the time is known. It is not asked for if the set is not calm.
    #[inline(always)]
    pub(crate) fn left_from(&self, now: impl FnOnce() -> Deadline) -> Option<Duration> {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let left = Duration::from_nanos(until).saturating_sub(now().since_boot());
        (!left.is_zero() || mutated!("calm_without_end")).then_some(left)
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
