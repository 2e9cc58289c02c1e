//! What is in the shared memory, and the handshake of its two sides.

use crate::events::{Event, Events};
use crate::sync::time::Deadline;
use crate::sync::{AtomicU32, AtomicU64, Ordering, SharedFutex, Slept, after_publishing};

/// The most slots of a ring.
pub(in crate::set) const MOST_ENTRIES: u32 = 1 << 20;

/// A line of the cache, and its neighbour, which is fetched with it.
#[repr(C, align(128))]
pub(in crate::set) struct Line {
    pub(in crate::set) index: SharedFutex,
    pub(in crate::set) sleeps: AtomicU32,
}

/// What stands in front of the slots.
#[repr(C)]
pub(in crate::set) struct Header {
    pub(in crate::set) writer: Line,
    pub(in crate::set) reader: Line,
}

/// One event. The bits and the data are stored one by one: only a peer that breaks the rules sees
/// them torn.
#[repr(C)]
pub(in crate::set) struct Slot {
    pub(in crate::set) bits: AtomicU64,
    pub(in crate::set) data: AtomicU64,
}

impl Line {
    /// Moves this side's index, and wakes the other side if it sleeps on it. Release: a side that
    /// sees the index sees what came before.
    pub(in crate::set) fn publish(&self, index: u32, other: &Self) {
        self.index.word().swap(index, ordering!(SeqCst, "shared_index_relaxed"));
        after_publishing(mutant!("shared_index_without_fence"));
        if other.sleeps.load(Ordering::SeqCst) != 0 {
            self.index.wake();
        }
    }

    /// This side sleeps while the other one's index is `seen`. The futex compares it under the
    /// kernel's lock, behind the word that says that we sleep.
    pub(in crate::set) fn sleep_on(
        &self,
        other: &Self,
        seen: u32,
        deadline: Option<Deadline>,
    ) -> Slept {
        if !mutant!("shared_sleeper_is_silent") {
            self.sleeps.swap(1, Ordering::SeqCst);
        }
        after_publishing(mutant!("shared_sleeper_without_fence"));
        let slept = other.index.sleep(seen, deadline);
        self.sleeps.store(0, Ordering::SeqCst);
        slept
    }
}

impl Slot {
    pub(in crate::set) fn store(&self, event: Event) {
        self.data.store(event.data, Ordering::Relaxed);
        self.bits.store(event.events.bits().into(), Ordering::Relaxed);
    }

    pub(in crate::set) fn load(&self) -> Event {
        let bits = self.bits.load(Ordering::Relaxed) as u32;
        Event::new(Events::from_bits_retain(bits), self.data.load(Ordering::Relaxed))
    }
}
