//! The refill moves watches from the pending queue into the ring.

use crate::events::{Event, Events};
use crate::set::base::mark::{Mark, mark_queued};
use crate::set::base::scan::Scan;
use crate::set::base::set_core::SetCore;
use crate::set::ring::ring_core::RingCore;
use crate::sync::{Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{guarded, shared};

impl SetCore {
    /// Fills the ring from the ready list. Watches whose waker is unfinished (see `sweep`) go
    /// straight to `report`, at most `maxevents` of them. From `since` on, the caller has taken
    /// events in this call, which must not come again in it.
    ///
    /// Returns how many events went straight to `report`, whether anything was put into the ring
    /// or is in it, and the end of what was put: nothing in front of that end has gone straight to
    /// `report`.
    pub(in crate::set) fn refill(
        &self,
        ring: &RingCore,
        maxevents: usize,
        report: &mut impl FnMut(Event, u64),
        since: Option<u64>,
    ) -> (usize, bool, u64) {
        let mut scan = match self.scan.try_lock() {
            Some(scan) => scan,
            // Another thread is filling the ring, and may be stopped at that: what is in it already
            // can be taken.
            None if ring.filled() > 0 => return (0, true, ring.tail()),
            None => self.scan.lock(),
        };
        step!(refill_begun);
        // A taker holds no lease.
        self.untracked.store(1, Ordering::Relaxed);
        // What was taken goes back in line before what has become ready since.
        let mut head = ring.reclaim(&mut scan, since);
        let mut attention = self.collect(&mut scan);
        if attention {
            self.plan_unfinished(&mut scan);
        }
        attention |= self.queue_due(&mut scan);
        let (mut taken, mut again) = (0, attention && since.is_some());
        if attention && since.is_none() {
            // A watch in the ring is marked and not pending, and so is one whose waker is
            // unfinished: the sweep could not tell them apart.
            ring.recall(&mut scan);
            head = ring.head.load(Ordering::SeqCst);
            again = Self::sweep(&scan, maxevents, &mut taken, &mut |event, _| {
                report(event, ring.head.load(Ordering::Relaxed));
                true
            });
        }
        let mut put = false;
        for _ in 0..scan.pending.len {
            if ring.in_use() == ring.capacity() {
                break;
            }
            put |= self.refill_one(ring, &mut scan, &mut again);
        }
        let end = ring.tail();
        // Also if other takers have taken all there was since the reclaim: a level among that is
        // still to be seen. In this order: whatever was taken has moved `head`.
        let filled = ring.filled() > 0;
        let moved =
            ring.head.load(Ordering::SeqCst) != head && !mutant!("refill_misses_what_is_taken");
        put |= filled || since.is_none() && moved;
        self.end_scan_before(scan, again, if taken == 0 { maxevents } else { 0 });
        (taken, put, end)
    }

    /// Moves the first pending watch into the ring, which has a free slot, and returns whether it
    /// did: a level that no longer holds leaves the ready list instead. Sets `again` if a waker
    /// has marked the watch meanwhile and not yet pushed it.
    #[inline]
    fn refill_one(&self, ring: &RingCore, scan: &mut Scan, again: &mut bool) -> bool {
        let watch = scan.pending.head;
        // SAFETY: we hold the scan lock and the watch is pending in this set; the same for all
        // below.
        let (word, source) = unsafe { (&shared(watch).state, guarded(watch).source) };
        // SAFETY: a source removes its watches, under this lock, before it goes.
        let poll =
            |state: State| unsafe { &*source }.poll() & Events::from_bits_retain(state.mask());
        // SAFETY: as above.
        unsafe { scan.pending.unlink(watch) };
        let state = State(word.load(Ordering::Acquire));
        if state.is_level() && poll(state).is_empty() {
            // A level that has gone, dropped as in `harvest`.
            let state = State(word.fetch_and(State(!0).unqueued().0, Ordering::SeqCst)).unqueued();
            step!(refill_unqueued);
            after_publishing(mutant!("refill_without_fence"));
            if poll(state).is_empty() {
                self.plan(scan, watch);
                return false;
            }
            let mark = mark_queued(word);
            *again |= mark == Mark::Unfinished;
            if mark != Mark::Ours {
                return false;
            }
        }
        // SAFETY: off the pending queue, and marked.
        unsafe { ring.put(watch, scan.plans.has(watch)) };
        true
    }
}
