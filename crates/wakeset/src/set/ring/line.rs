//! What moves watches into the ring and back in line, under the scan lock, and one out of it.

use crate::set::base::mark::change_state;
use crate::set::base::scan::Scan;
use crate::set::ring::ring_core::{RingCore, Taken};
use crate::set::ring::slot::{Entry, IN_RING};
use crate::sync::Ordering;
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{Watch, guarded, shared};
use core::ptr::{self};

impl RingCore {
    /// Puts a watch after the last one. The ring has a free slot.
    ///
    /// # Safety
    /// The caller holds the scan lock of its set and has just taken it off the pending queue; it is
    /// `QUEUED`.
    pub(in crate::set) unsafe fn put(&self, watch: *mut Watch, planned: bool) {
        let at = self.tail.load(Ordering::Relaxed);
        // SAFETY: by the caller.
        let (word, fields) = unsafe { (&shared(watch).state, guarded(watch)) };
        // Its waker may not have said so yet. It has pushed; and whoever needs to be told of what
        // is in the ring is told by those who take.
        let state = change_state(word, State::listed);
        let link = ptr::without_provenance_mut((at as usize) << 1 | IN_RING);
        // SAFETY: by the caller.
        unsafe { shared(watch) }.next.store(link, Ordering::Relaxed);
        self.write(at, Entry { watch, planned, state, data: fields.data, source: fields.source });
        step!(slot_written);
        self.tail.store(at + 1, ordering!(Release, "tail_relaxed"));
        step!(slot_published);
    }

    /// Puts what has been taken and is still marked back in line: levels, and what nobody took
    /// though `head` has moved past it. For the holder of the scan lock. Not beyond the first
    /// level from `since` on, or from where they are kept. Up to where all had been taken.
    pub(in crate::set) fn reclaim(&self, scan: &mut Scan, since: Option<u64>) -> u64 {
        let (from, head) =
            (self.reclaimed.load(Ordering::Relaxed), self.head.load(Ordering::SeqCst));
        let since = since.unwrap_or(u64::MAX).min(self.kept.load(Ordering::Acquire));
        let is_kept = |at: &u64| *at >= since && self.read(*at).state.is_level();
        let to = (from..head).find(is_kept).unwrap_or(head);
        for at in from..to {
            let watch = self.read(at).watch;
            if self.take_back(at) && !mutant!("ring_forgets_levels") {
                // SAFETY: it is of this generation, so of this set; marked, ours and not pending.
                unsafe { scan.pending.push_back(watch) };
            }
        }
        self.reclaimed.store(to, Ordering::Relaxed);
        head
    }

    /// Puts everything back in line: what has not been taken to the front. For the holder of the
    /// scan lock.
    pub(in crate::set) fn recall(&self, scan: &mut Scan) {
        let tail = self.tail.load(Ordering::Relaxed);
        let taken = self.head.swap(tail, Ordering::SeqCst);
        step!(recall_begun);
        for at in self.reclaimed.load(Ordering::Relaxed)..taken {
            let watch = self.read(at).watch;
            if self.take_back(at) {
                // SAFETY: as in `reclaim`.
                unsafe { scan.pending.push_back(watch) };
            }
        }
        for at in (taken..tail).rev() {
            let watch = self.read(at).watch;
            if self.take_back(at) {
                // SAFETY: as in `reclaim`.
                unsafe { scan.pending.push_front(watch) };
            }
        }
        self.reclaimed.store(tail, Ordering::Relaxed);
    }

    /// Whether the mark in a slot that `head` has passed is still on; if so it is the caller's.
    pub(in crate::set) fn take_back(&self, at: u64) -> bool {
        let Entry { watch, state: expected, .. } = self.read(at);
        // SAFETY: watches are type-stable.
        let word = &unsafe { shared(watch) }.state;
        loop {
            let state = State(word.load(Ordering::SeqCst));
            if !state.is_marked_like(expected) {
                return false;
            }
            // Nobody takes a level by its state. Of the others a taker may have read the slot and
            // be about to: its mark is made void.
            if expected.is_level() || mutant!("take_back_keeps_round") {
                return true;
            }
            if word
                .compare_exchange(
                    state.0,
                    state.in_next_round().0,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                )
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Moves `head` past a slot; whether it was this call that did.
    pub(in crate::set) fn go_past(&self, at: u64) -> bool {
        self.head.compare_exchange(at, at + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Takes one event in front of `end`, which has been the tail, with a pin. Notes in
    /// `levels` if other takers may take it as well.
    pub(in crate::set) fn take_one(&self, end: u64, levels: &mut bool) -> Taken {
        let at = self.head.load(Ordering::SeqCst);
        if at >= end {
            return Taken::Empty;
        }
        let entry = self.read(at);
        step!(slot_read);
        // If not, another taker was faster, and the entry may be half old, half new.
        if self.head.load(Ordering::SeqCst) != at {
            return Taken::Nothing;
        }
        let level = entry.state.is_level();
        if entry.is_for_lock() {
            return Taken::Planned;
        }
        if level && !self.go_past(at) {
            return Taken::Nothing;
        }
        step!(slot_taken);
        // SAFETY: the caller has a pin, and the slot was whole.
        let event = unsafe { if level { entry.look() } else { entry.claim() } };
        if !level {
            self.go_past(at);
        }
        step!(head_moved);
        if level {
            self.last_level.store(at + 1, Ordering::Relaxed);
        }
        match event {
            Some(event) => {
                *levels |= level;
                Taken::Event(event, at)
            }
            None => Taken::Nothing,
        }
    }
}
