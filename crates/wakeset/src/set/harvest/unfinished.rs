//! Watches with an unfinished mark: their waker is between its mark and its push, and may be
//! stopped there for good.

use crate::events::{Event, Events};
use crate::set::base::mark::change_state;
use crate::set::base::scan::Scan;
use crate::set::base::set_core::SetCore;
use crate::sync::Ordering;
use crate::testing::steps::step;
use crate::wake::state::State;
use crate::wake::watch::{Guarded, Watch, guarded, shared};

impl SetCore {
    /// The watches that a waker has marked and not put on the list: it was stopped in between, and
    /// somebody who relied on the mark has called for attention. O(interest list), and only
    /// then.
    pub(in crate::set) fn unfinished(scan: &Scan) -> impl Iterator<Item = *mut Watch> {
        scan.interest.iter().copied().filter(|watch| {
            // SAFETY: on the interest list of the set whose lock the caller holds.
            let (state, pending) = unsafe {
                (State(shared(*watch).state.load(Ordering::SeqCst)), scan.pending.contains(*watch))
            };
            // Listed or not: its waker may have finished since the list was taken, and the call for
            // attention is spent.
            state.is_queued()
                && !pending
                && !(mutant!("listed_is_not_in_hand") && state.is_listed())
        })
    }

    /// Plans the watches with an unfinished mark: the timer of one may have been set again by a
    /// thread that relied on the mark.
    #[cold]
    pub(in crate::set) fn plan_unfinished(&self, scan: &mut Scan) {
        let interest = core::mem::take(&mut scan.interest);
        for &watch in &interest {
            // SAFETY: a watch of this set, whose lock we hold.
            let (state, pending) = unsafe {
                (State(shared(watch).state.load(Ordering::SeqCst)), scan.pending.contains(watch))
            };
            if state.is_queued() && !pending {
                self.plan_by(scan, watch, SetCore::earliest);
            }
        }
        scan.interest = interest;
    }

    /// Delivers what [`unfinished`](Self::unfinished) finds ready, without taking it from the
    /// waker; whether some may be left.
    pub(in crate::set) fn sweep(
        scan: &Scan,
        maxevents: usize,
        reported: &mut usize,
        report: &mut impl FnMut(Event, *mut Watch) -> bool,
    ) -> bool {
        let mut left = false;
        for watch in Self::unfinished(scan) {
            // SAFETY: as in `harvest`.
            let (Guarded { source, data, .. }, word) =
                unsafe { (guarded(watch), &shared(watch).state) };
            let state = State(word.load(Ordering::SeqCst));
            step!(sweep_before_poll);
            // SAFETY: a source removes its watches, under this lock, before it goes.
            let ready = unsafe { &**source }.poll() & Events::from_bits_retain(state.mask());
            if ready.is_empty() {
                continue;
            }
            if *reported == maxevents || !report(Event::new(ready, *data), watch) {
                return true;
            }
            *reported += 1;
            if state.flags().contains(Events::ONESHOT) && !mutant!("sweep_keeps_oneshot") {
                change_state(word, State::disarmed);
            }
            // Level-triggered: not on the list, so this is how the next wait finds it.
            left |= !state.flags().intersects(Events::ET | Events::ONESHOT);
        }
        left
    }
}
