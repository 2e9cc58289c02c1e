//! The end of a watch, and of a set.

use crate::set::base::mark::change_state;
use crate::set::base::scan::{Scan, hash};
use crate::set::base::set_core::SetCore;
use crate::set::deadlines::plans::Plans;
use crate::set::ring::ring_core::RingCore;
use crate::sync::Ordering;
use crate::sync::lock::ScanGuard;
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{Watch, guarded, shared};
use core::ptr::{self};

impl SetCore {
    /// Closes the set: no new watches, and all it has are gone.
    pub(crate) fn close(&self) {
        step!(close_before_queue);
        self.wake.queue.close();
        step!(closed_queue);
        let mut scan = self.scan.lock();
        step!(close_before_forget);
        self.closed.store(1, Ordering::Release);
        if let Some(ring) = self.ring() {
            ring.recall(&mut scan);
        }
        self.collect(&mut scan);
        if !scan.interest.is_empty() {
            for watch in core::mem::take(&mut scan.interest) {
                self.forget(&mut scan, watch);
            }
        }
        // What a late waker still pushes is dead, and freed by the next generation of this memory.
        if self.pending_hint.load(Ordering::SeqCst) != 0 {
            self.pending_hint.store(0, Ordering::SeqCst);
        }
        if scan.plans.have_memory() {
            scan.plans = Plans::new();
        }
        // No waiter is left to tell.
        let _ = self.publish_deadline(&scan);
        step!(closed);
        self.give_free(&mut scan);
        self.end_removal(scan);
    }

    /// Removes every watch, as [`close`](Self::close) does, of a set that goes on and that no other
    /// set watches. What it takes to watch a few things is kept for the next ones.
    pub(crate) fn clear(&self) {
        /// What a table has room for that is not worth the way to the heap and back.
        const FEW: usize = 14;
        let mut scan = self.scan.lock();
        // What is on the list is removed with the rest, so whatever a waker calls attention to is.
        self.collect(&mut scan);
        let mut watches = core::mem::take(&mut scan.interest);
        for watch in watches.drain() {
            self.forget(&mut scan, watch);
        }
        if watches.capacity() <= FEW && !scan.plans.have_memory() {
            scan.interest = watches;
        } else {
            scan.plans = Plans::new();
            self.give_free(&mut scan);
        }
        if self.pending_hint.load(Ordering::SeqCst) != 0 {
            self.pending_hint.store(0, Ordering::SeqCst);
        }
        // The only waiter is the thread that clears.
        let _ = self.publish_deadline(&scan);
        self.end_removal(scan);
    }

    /// Gives the set's free watches to others.
    fn give_free(&self, scan: &mut Scan) {
        if let Some((first, last)) = scan.free_chain() {
            // SAFETY: the set's own free watches, linked from first to last.
            unsafe { self.home().watches.give(first, last) };
            scan.free = ptr::null_mut();
        }
    }

    /// Takes a watch off the interest list and out of its source's queue.
    pub(in crate::set) fn forget(&self, scan: &mut Scan, watch: *mut Watch) {
        // SAFETY: on the interest list of this set, whose lock we hold.
        let (fd, source, slot) =
            unsafe { (guarded(watch).fd, guarded(watch).source, guarded(watch).slot) };
        if let Ok(entry) =
            scan.interest.find_entry(hash(fd, source.cast()), |&other| other == watch)
        {
            entry.remove();
        }
        self.len.store(scan.interest.len(), Ordering::SeqCst);
        // SAFETY: a source removes its watches before it goes, and this is one that it still has.
        unsafe { &*source }.wait_queue().detach(slot);
        self.retire(scan, watch);
        self.home().count_out();
    }

    /// Ends the life of a watch that is in no wait queue: free it, or leave it to the waker that
    /// has it.
    pub(in crate::set) fn retire(&self, scan: &mut Scan, watch: *mut Watch) {
        // SAFETY: the watch is this set's and we hold the scan lock; the same for all below.
        let word = &unsafe { shared(watch) }.state;
        scan.plans.remove(watch);
        self.leave_ring(watch);
        if State(word.load(Ordering::SeqCst)).is_queued() {
            if let Some(ring) = self.ring() {
                // What was taken before what has become ready since.
                ring.reclaim(scan, None);
            }
            if self.collect(scan) && !mutant!("removal_takes_attention") {
                self.wake.incoming.call_attention();
            }
        }
        // SAFETY: as above.
        if unsafe { scan.pending.contains(watch) } {
            if !mutant!("removed_stays_pending") {
                // SAFETY: as above.
                unsafe { scan.pending.unlink(watch) };
            }
            word.fetch_and(State(!0).unqueued().0, Ordering::AcqRel);
        }
        step!(retire_before);
        // From here on QUEUED can only mean that a waker has marked it and not pushed it yet.
        if change_state(word, State::ended).is_dead() && !mutant!("free_while_queued") {
            return;
        }
        step!(retired);
        // SAFETY: ended and not queued: nobody but late wakers knows it, and they see the new
        // generation.
        unsafe { shared(watch).next.store(scan.free, Ordering::Relaxed) };
        scan.free = watch;
    }

    /// Unlocks after removals.
    pub(in crate::set) fn end_removal(&self, scan: ScanGuard<'_, Scan>) {
        let quiet = Quiet(self.ring());
        drop(scan);
        drop(quiet);
    }
}

/// Waits, at its end, until nobody takes from the ring who may be about to poll the source of a
/// watch that has been removed.
#[derive(Debug)]
pub(in crate::set) struct Quiet<'a>(pub(in crate::set) Option<&'a RingCore>);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.0 {
            ring.quiesce();
        }
    }
}
