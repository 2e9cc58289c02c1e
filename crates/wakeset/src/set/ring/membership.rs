//! A set's ring comes and goes, and a watch that is in it is changed or removed.

use crate::error::Error;
use crate::events::Events;
use crate::set::base::set_core::SetCore;
use crate::set::ring::ring_core::RingCore;
use crate::set::ring::slot::IN_RING;
use crate::sync::Ordering;
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{Watch, guarded, shared};
use core::ptr::{self};

impl SetCore {
    /// The set's ring, if it has one.
    #[inline]
    pub(crate) fn ring(&self) -> Option<&RingCore> {
        // SAFETY: in type-stable memory; the engine outlives what is in its pools.
        unsafe { self.ring.load(Ordering::Acquire).as_ref() }
    }

    /// Gives the set a ring of `entries` slots, a power of two, unless it has one; that one.
    pub(crate) fn make_ring(&self, entries: usize) -> Result<&RingCore, Error> {
        let scan = self.scan.lock();
        if let Some(ring) = self.ring() {
            return Ok(ring);
        }
        let taken = self.home().rings.take(1)?;
        // SAFETY: just taken from the pool, which stays.
        let ring = unsafe { &*taken };
        if let Err(error) = ring.begin(entries) {
            // SAFETY: ours alone.
            unsafe { self.home().rings.give(taken, taken) };
            return Err(error);
        }
        ring.pending.store(scan.pending.len, Ordering::SeqCst);
        self.ring.store(taken, Ordering::Release);
        Ok(ring)
    }

    /// Takes the ring away, with what is in it.
    ///
    /// # Safety
    /// No thread takes from it, now or later.
    pub(crate) unsafe fn end_ring(&self) {
        if self.ring.load(Ordering::Acquire).is_null() {
            return;
        }
        let (scan, attention) = self.begin_scan();
        let taken = self.ring.swap(ptr::null_mut(), Ordering::AcqRel);
        self.end_scan(scan, attention);
        if !taken.is_null() {
            // SAFETY: no set has it any more, and nobody takes from it by the caller's contract.
            unsafe {
                (*taken).end();
                self.home().rings.give(taken, taken);
            }
        }
    }

    /// Where in the ring the watch is whose state is `state`, for the holder of the scan lock.
    pub(in crate::set) fn index_in_ring(
        &self,
        watch: *mut Watch,
        state: State,
    ) -> Option<(&RingCore, u64)> {
        let ring = self.ring()?;
        // SAFETY: a watch of this set, by the caller.
        let link = unsafe { shared(watch) }.next.load(Ordering::Relaxed).addr();
        // Stale unless the slot says the same.
        let at = (link & IN_RING != 0).then_some((link >> 1) as u64)?;
        let is_there = (ring.reclaimed.load(Ordering::Relaxed)..ring.tail.load(Ordering::Relaxed))
            .contains(&at);
        let entry = is_there.then(|| ring.read(at))?;
        (entry.watch == watch && state.is_marked_like(entry.state)).then_some((ring, at))
    }

    /// Takes a watch that is to be removed out of the ring, if it is there. For the holder of the
    /// scan lock.
    pub(in crate::set) fn leave_ring(&self, watch: *mut Watch) {
        // SAFETY: a watch of this set, by the caller.
        let word = &unsafe { shared(watch) }.state;
        loop {
            let state = State(word.load(Ordering::SeqCst));
            if self.index_in_ring(watch, state).is_none()
                || mutant!("removal_misses_the_ring")
                // Not whatever the state is by now: it may have been taken, and a waker may have
                // marked it again.
                || word
                    .compare_exchange(
                        state.0,
                        state.unqueued().0,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    )
                    .is_ok()
            {
                return;
            }
        }
    }

    /// Gives a watch another interest and data, also where it is in the ring; whether it is there.
    /// For the holder of the scan lock.
    pub(in crate::set) fn change_interest(
        &self,
        watch: *mut Watch,
        interest: Events,
        data: u64,
    ) -> bool {
        // SAFETY: a watch of this set, by the caller.
        let word = &unsafe { shared(watch) }.state;
        // SAFETY: as above, and no other reference to it.
        unsafe { guarded(watch) }.data = data;
        loop {
            let state = State(word.load(Ordering::SeqCst));
            let changed = state.with_interest(interest);
            // What a taker knows of the old interest is void. (A mark that is not listed yet is its
            // waker's, and no taker has it.)
            let is_unfinished = state.is_queued() && !state.is_listed();
            let changed = if is_unfinished || mutant!("change_keeps_round") {
                changed
            } else {
                changed.in_next_round()
            };
            let index =
                self.index_in_ring(watch, state).filter(|_| !mutant!("change_misses_the_ring"));
            if word
                .compare_exchange(state.0, changed.0, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
            {
                continue;
            }
            let Some((ring, at)) = index else { return false };
            step!(change_in_ring);
            let slot = ring.slot(at);
            slot.data.store(data, Ordering::Release);
            slot.state.store(changed.0, Ordering::Release);
            return true;
        }
    }
}
