//! Whether a set is ready: what the sets around it poll.

use crate::events::Events;
use crate::set::base::mark::{Mark, mark_queued};
use crate::set::base::set_core::SetCore;
use crate::sync::{Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{Watch, guarded, shared};

impl SetCore {
    /// Whether an event could be delivered now; drops what is queued but does not hold. What
    /// polling a set means.
    pub(crate) fn poll(&self) -> Events {
        if !self.may_be_ready() {
            return Events::empty();
        }
        let (mut scan, attention) = self.begin_scan();
        self.plan_queued(&mut scan);
        let mut again = attention;
        let mut found = Events::empty();
        while !scan.pending.head.is_null() {
            let watch = scan.pending.head;
            // SAFETY: we hold the scan lock and the watch is pending in this set.
            let (word, source) = unsafe { (&shared(watch).state, guarded(watch).source) };
            let holds = || {
                let mask = State(word.load(Ordering::Acquire)).mask();
                // SAFETY: a source removes its watches, under this lock, before it goes.
                !(unsafe { &*source }.poll() & Events::from_bits_retain(mask)).is_empty()
            };
            if holds() {
                found = Events::IN | Events::RDNORM;
                break;
            }
            // SAFETY: as above.
            unsafe { scan.pending.unlink(watch) };
            step!(poll_unqueue_before);
            word.fetch_and(State(!0).unqueued().0, Ordering::SeqCst);
            step!(poll_unqueued);
            after_publishing(mutant!("poll_without_fence"));
            if holds() {
                match mark_queued(word) {
                    // SAFETY: as above; QUEUED is on, and ours.
                    Mark::Ours => unsafe { scan.pending.push_back(watch) },
                    Mark::Unfinished => again = true,
                    Mark::Listed => {}
                }
                found = Events::IN | Events::RDNORM;
                break;
            }
            self.plan(&mut scan, watch);
        }
        if attention && found.is_empty() {
            let holds = |watch: *mut Watch| {
                // SAFETY: on the interest list, whose lock we hold; a source removes its watches
                // before it goes.
                let (state, source) = unsafe {
                    (State(shared(watch).state.load(Ordering::SeqCst)), guarded(watch).source)
                };
                // SAFETY: as above.
                unsafe { &*source }.poll().intersects(Events::from_bits_retain(state.mask()))
            };
            if Self::unfinished(&scan).any(holds) {
                found = Events::IN | Events::RDNORM;
            } else {
                again = false;
            }
        }
        self.end_scan(scan, again);
        found
    }
}
