//! The ring of one set: its slots, its indices, and the locks that keep sources in place.

use crate::error::Error;
use crate::events::Event;
use crate::memory::pool::Pooled;
use crate::set::base::scan::Scan;
use crate::set::ring::slot::{Entry, PLANNED, Slot, halves, whole};
use crate::sync::line::Line;
use crate::sync::lock::RawLock;
use crate::sync::lock::ScanGuard;
use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, after_publishing};
use crate::wake::state::State;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{self};

/// Threads that take at the same time without the scan lock; one more takes with it.
pub(in crate::set) const PINS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// Slots of the largest ring.
pub(crate) const MOST_ENTRIES: usize = 1 << 20;

/// The ring of one set. In type-stable memory, because a removal checks the pins without a
/// lock.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RingCore {
    pub(in crate::set) link: AtomicPtr<RingCore>,
    /// Its slots, a power of two of them; made and freed by the owner of the set.
    pub(in crate::set) slots: AtomicPtr<Slot>,
    pub(in crate::set) capacity: AtomicUsize,
    /// Guarded by the scan lock. Up to here, what was taken has gone back in line if it had to.
    pub(in crate::set) reclaimed: AtomicU64,
    /// Up to here slots are filled. Written under the scan lock.
    pub(in crate::set) tail: AtomicU64,
    /// How many watches were pending when the scan lock was last free. A hint.
    pub(in crate::set) pending: AtomicUsize,
    /// The index after the last level that was taken, or polled in vain. A hint.
    pub(in crate::set) last_level: AtomicU64,
    /// From here on levels that were taken stay where they are: their taker is not through with
    /// them. Written by one taker.
    pub(in crate::set) kept: AtomicU64,
    /// Up to here slots have been taken. Written by takers.
    pub(in crate::set) head: Line<AtomicU64>,
    pub(in crate::set) pins: [Line<RawLock>; PINS],
}

impl Pooled for RingCore {
    fn vacant() -> Self {
        Self {
            link: AtomicPtr::new(ptr::null_mut()),
            slots: AtomicPtr::new(ptr::null_mut()),
            capacity: AtomicUsize::new(0),
            reclaimed: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
            last_level: AtomicU64::new(0),
            kept: AtomicU64::new(u64::MAX),
            head: Line(AtomicU64::new(0)),
            pins: core::array::from_fn(|_| Line(RawLock::new())),
        }
    }

    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// A pin that the thread holds; its drop releases it.
pub(in crate::set) struct Pinned<'a>(pub(in crate::set) &'a RawLock);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// What keeps the sources in place while events are taken.
pub(in crate::set) enum Kept<'a> {
    Pin(#[allow(dead_code, reason = "for its drop")] Pinned<'a>),
    Scan(#[allow(dead_code, reason = "for its drop")] ScanGuard<'a, Scan>),
}

/// What became of one attempt to take an event.
pub(in crate::set) enum Taken {
    Event(Event, u64),
    /// The slot held nothing that is ready, or another thread was faster.
    Nothing,
    /// The slot's event is to be taken under the scan lock.
    Planned,
    Empty,
}

impl RingCore {
    /// Gives a ring from the pool its slots.
    pub(in crate::set) fn begin(&self, entries: usize) -> Result<(), Error> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(entries).map_err(|_| Error::NoMemory)?;
        slots.resize_with(entries, Slot::new);
        let slots: *mut [Slot] = Box::into_raw(slots.into_boxed_slice());
        self.slots.store(slots.cast(), Ordering::Release);
        self.capacity.store(entries, Ordering::Release);
        for index in [&self.reclaimed, &self.tail, &self.head, &self.last_level] {
            index.store(0, Ordering::Release);
        }
        self.kept.store(u64::MAX, Ordering::Release);
        Ok(())
    }

    /// Frees the slots.
    ///
    /// # Safety
    /// No thread takes from the ring, and no set has it.
    pub(in crate::set) unsafe fn end(&self) {
        let slots = self.slots.swap(ptr::null_mut(), Ordering::AcqRel);
        let slots = ptr::slice_from_raw_parts_mut(slots, self.capacity());
        // SAFETY: `begin` made them so.
        drop(unsafe { Box::from_raw(slots) });
    }

    /// The addresses of the pins' locks.
    #[cfg(wakeset_steps)]
    pub(in crate::set) fn pins(&self) -> core::ops::Range<usize> {
        let first = self.pins.as_ptr().addr();
        first..first + size_of_val(&self.pins)
    }

    pub(in crate::set) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(in crate::set) fn slot(&self, at: u64) -> &Slot {
        let index = at as usize & (self.capacity() - 1);
        // SAFETY: within the slots, which stay while somebody may take or holds the scan lock of
        // the set.
        unsafe { &*self.slots.load(Ordering::Relaxed).add(index) }
    }

    /// What the slot says; void if `head` has moved past it meanwhile.
    pub(in crate::set) fn read(&self, at: u64) -> Entry {
        let slot = self.slot(at);
        // The state first: a change in place stores it last, when the mark it found has been made
        // void.
        let state = State(slot.state.load(Ordering::Acquire));
        let data = slot.data.load(Ordering::Acquire);
        let source =
            [slot.source[0].load(Ordering::Acquire), slot.source[1].load(Ordering::Acquire)];
        let watch = slot.watch.load(Ordering::Acquire);
        let planned = watch.addr() & PLANNED != 0;
        Entry {
            watch: watch.map_addr(|address| address & !PLANNED),
            planned,
            state,
            data,
            source: whole(source),
        }
    }

    /// For the holder of the scan lock. Release: a thread that reads any of it also sees `head`
    /// where the holder saw it, past this slot's last use.
    pub(in crate::set) fn write(&self, at: u64, entry: Entry) {
        let slot = self.slot(at);
        let source = halves(entry.source);
        slot.watch.store(
            entry.watch.map_addr(|address| address | usize::from(entry.planned)),
            Ordering::Release,
        );
        slot.source[0].store(source[0], Ordering::Release);
        slot.source[1].store(source[1], Ordering::Release);
        slot.data.store(entry.data, Ordering::Release);
        slot.state.store(entry.state.0, Ordering::Release);
    }

    /// The index after the last slot that is filled.
    pub(in crate::set) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// How many slots are filled and not taken.
    #[inline]
    pub(in crate::set) fn filled(&self) -> u64 {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).saturating_sub(head)
    }

    /// From now on all that was taken goes back in line.
    pub(in crate::set) fn keep_nothing(&self) {
        self.kept.store(u64::MAX, Ordering::Release);
    }

    /// How many slots there are in use, for the holder of the scan lock.
    pub(in crate::set) fn in_use(&self) -> usize {
        self.tail.load(Ordering::Relaxed).saturating_sub(self.reclaimed.load(Ordering::Relaxed))
            as usize
    }

    /// Waits until no taker polls a source that it found before the call.
    #[cold]
    pub(in crate::set) fn quiesce(&self) {
        if mutant!("removal_waits_for_nobody") {
            return;
        }
        // The end of the watch comes before, and is a read-modify-write. A taker that pins from
        // here on sees it.
        after_publishing(mutant!("removal_without_fence"));
        for pin in &self.pins {
            if !pin.is_free() {
                pin.lock();
                pin.unlock();
            }
        }
    }
}
