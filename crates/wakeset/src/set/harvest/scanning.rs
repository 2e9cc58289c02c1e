//! How work on the ready list begins and ends: what wakers have pushed moves to the pending queue,
//! and what is left over wakes the next waiter.

use crate::set::base::scan::Scan;
use crate::set::base::set_core::SetCore;
use crate::sync::Ordering;
use crate::sync::lock::ScanGuard;
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{Watch, shared};
use core::ptr::{self};

impl SetCore {
    /// Starts work on the ready list: locks, and moves what wakers pushed and what time has made
    /// due to the pending queue. Also whether attention was called.
    pub(in crate::set) fn begin_scan(&self) -> (ScanGuard<'_, Scan>, bool) {
        let mut scan = self.scan.lock();
        if let Some(ring) = self.ring() {
            ring.recall(&mut scan);
        }
        let mut attention = self.collect(&mut scan);
        if attention {
            self.plan_unfinished(&mut scan);
        }
        attention |= self.queue_due(&mut scan);
        (scan, attention)
    }

    pub(in crate::set) fn collect(&self, scan: &mut Scan) -> bool {
        if self.wake.incoming.is_empty() {
            return false;
        }
        step!(hint_before);
        // First the hint, then the take; `may_be_ready` looks in the other order and finds one of
        // them.
        self.pending_hint.fetch_add(1, Ordering::SeqCst);
        if let Some(ring) = self.ring() {
            ring.pending.store(1, Ordering::SeqCst);
        }
        step!(hinted);
        let (mut newest, attention) = self.wake.take_incoming();
        // Reverse: last pushed is first on the stack.
        let mut oldest: *mut Watch = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: what is on the list is type-stable and its links are the taker's.
            let next = unsafe { shared(newest) }.next.load(Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { shared(newest) }.next.store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
        }
        step!(chain_reversed);
        while !oldest.is_null() {
            let watch = oldest;
            // SAFETY: as above. A dead one may have belonged to an earlier generation of this set's
            // memory; it is nobody's now.
            unsafe {
                oldest = shared(watch).next.load(Ordering::Relaxed);
                let state = State(shared(watch).state.load(Ordering::Acquire));
                if state.is_dead() && !mutant!("dead_is_pending") {
                    step!(bury_before);
                    shared(watch).state.store(state.buried().0, Ordering::Release);
                    step!(buried);
                    self.home().watches.give(watch, watch);
                } else {
                    scan.pending.push_back(watch);
                    self.plan_by(scan, watch, SetCore::earliest);
                }
            }
        }
        attention
    }

    /// Ends work on the ready list: unlocks, and passes on to the next waiter what is left. `again`
    /// calls for attention.
    pub(in crate::set) fn end_scan(&self, scan: ScanGuard<'_, Scan>, again: bool) {
        self.end_scan_before(scan, again, 0);
    }

    /// The same for a caller who takes up to `maxevents` events out of the ring next.
    pub(in crate::set) fn end_scan_before(
        &self,
        scan: ScanGuard<'_, Scan>,
        again: bool,
        maxevents: usize,
    ) {
        if again {
            self.wake.incoming.call_attention();
        }
        step!(end_before_hint);
        let (in_ring, for_others) = self
            .ring()
            .map_or((0, false), |ring| (ring.in_use(), ring.filled() > maxevents as u64));
        let pending = scan.pending.len;
        if let Some(ring) = self.ring() {
            ring.pending.store(pending, Ordering::Relaxed);
        }
        let left = if mutant!("ring_is_no_hint") { pending } else { pending + in_ring };
        if left != 0 || self.pending_hint.load(Ordering::Relaxed) != 0 {
            // A read-modify-write, for the check of the sleepers below.
            self.pending_hint.swap(left, Ordering::SeqCst);
            step!(end_hinted);
        }
        let published = self.publish_deadline(&scan);
        drop(scan);
        step!(end_unlocked);
        if (pending != 0 || for_others || again) && !mutant!("leftovers_kick_nobody") {
            self.wake.waiters.kick();
            step!(end_kicked);
        } else {
            self.mind_published(published);
        }
    }
}
