//! The memory in which the waiters of related processes say what they hold: a slot for each, which
//! no other writes, but for one that takes it over.

use super::super::baton::{NOTES, Notes, of_one};
use super::super::{held, shared_hint};
use super::{FRESH, is_within};
use crate::sys::reserved;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use wakeset::{mutated, process_id};

/// What one waiter says of itself.
#[repr(C, align(64))]
pub(in super::super) struct Slot {
    /// Its process and its number there; 0 for a free slot.
    pub(super) owner: AtomicU64,
    /// The notes ([`note_of`](super::baton::note_of)) of the listeners that it sleeps for, of one
    /// listener each.
    pub(super) sleeps_for: AtomicU64,
    /// The second bits of those that share a note.
    pub(super) sleeps_for_others: AtomicU64,
    /// When it last went to sleep, in nanoseconds since the machine's start.
    pub(super) since: AtomicU64,
    /// When it was last told of a connection since it went to sleep; 0 if it was not.
    pub(super) told: AtomicU64,
    /// When it was last told of something else since it went to sleep; 0 if it was not.
    pub(super) awake: AtomicU64,
    pub(super) held: AtomicU32,
    /// How many it has accepted.
    pub(super) taken: AtomicU32,
}

impl Slot {
    /// Its waiter sleeps for the listeners with these notes; 0 for none.
    pub(super) fn note_sleep(&self, notes: Notes) {
        self.sleeps_for.store(notes as u64, Relaxed);
        self.sleeps_for_others.store((notes >> NOTES) as u64, Relaxed);
    }

    /// Whether it sleeps for one of the listeners with these notes.
    pub(super) fn sleeps_for_one_of(&self, notes: Notes) -> bool {
        let of_one = if mutated!("sleepers_share_a_note") { notes as u64 } else { of_one(notes) };
        self.sleeps_for.load(Relaxed) & of_one != 0
            || self.sleeps_for_others.load(Relaxed) & (notes >> NOTES) as u64 != 0
    }
}

/// Waiters that can say something of themselves; any more take what they are woken for.
const SLOTS: usize = 128;

/// All slots.
#[repr(C)]
pub(in super::super) struct Slots {
    /// One above the highest that has been taken.
    used: AtomicU32,
    all: [Slot; SLOTS],
}

/// All slots; none where there is no memory to share.
pub(super) fn all() -> &'static [Slot] {
    shared_hint::slots().map_or(&[], |slots| &slots.all)
}

/// Those that may have been taken.
pub(super) fn used() -> &'static [Slot] {
    let Some(Slots { used, all }) = shared_hint::slots() else { return &[] };
    all.get(..used.load(Relaxed) as usize).unwrap_or(all)
}

/// How many waiters hold connections.
pub(super) fn holding(now: u64) -> u32 {
    let holds = |slot: &&Slot| {
        slot.owner.load(Relaxed) != 0
            && slot.held.load(Relaxed) > 0
            && is_within(slot.since.load(Relaxed), now, FRESH)
    };
    used().iter().filter(holds).count() as u32
}

/// The slot with this index is taken. Another process may have written that it is not.
pub(super) fn note_used(index: u16) {
    if let Some(Slots { used, .. }) = shared_hint::slots() {
        reserved::raise(used, u32::from(index) + 1);
    }
}

/// The slot in which the connections of each holder stand, by index plus one; 0 for none.
pub(super) static SLOT_OF: [AtomicU16; held::HOLDERS] =
    [const { AtomicU16::new(0) }; held::HOLDERS];
/// A holder has so many connections now.
#[inline]
pub(in super::super) fn publish(holder: u8, held: u32) {
    let index = SLOT_OF.get(usize::from(holder)).map_or(0, |slot| slot.load(Relaxed));
    if index != 0 {
        publish_in(index, held);
    }
}

#[cold]
fn publish_in(index: u16, held: u32) {
    if let Some(slot) = own_slot_at(index) {
        slot.held.store(held, Relaxed);
    }
}

/// A slot of this process, by its index plus one. A forked child has its parent's indices.
fn own_slot_at(index: u16) -> Option<&'static Slot> {
    let slot = all().get(usize::from(index).checked_sub(1)?)?;
    (slot.owner.load(Relaxed) >> 32 == u64::from(process_id())).then_some(slot)
}

/// A holder has accepted a connection, which is counted by now.
pub(in super::super) fn note_taken(holder: u8) {
    let index = SLOT_OF.get(usize::from(holder)).map_or(0, |slot| slot.load(Relaxed));
    if index == 0 {
        return;
    }
    if let Some(slot) = own_slot_at(index) {
        slot.held.store(held::count_of(holder), Relaxed);
        // Of two threads at a time one may count, which changes it all the same.
        slot.taken.store(slot.taken.load(Relaxed).wrapping_add(1), Relaxed);
        slot.note_sleep(0);
    }
}

/// A number that changes whenever a waiter has accepted.
pub(super) fn taken() -> u32 {
    used().iter().fold(0, |sum, slot| sum.wrapping_add(slot.taken.load(Relaxed)))
}
