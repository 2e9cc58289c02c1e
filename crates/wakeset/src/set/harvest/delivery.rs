//! The harvest: what is pending is polled again, reported, and put back, dropped or disarmed.

use crate::events::{Event, Events};
use crate::set::base::mark::{Mark, change_state, mark_queued};
use crate::set::base::scan::Scan;
use crate::set::base::set_core::SetCore;
use crate::set::lease::leases::{Known, LeaseCore};
use crate::sync::{AtomicU64, Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::source::Source;
use crate::wake::state::State;
use crate::wake::watch::{Guarded, Watch, guarded, shared};

/// A watch that has just been taken off the pending queue and is ready.
struct Ready<'a> {
    watch: *mut Watch,
    source: *const dyn Source,
    word: &'a AtomicU64,
    state: State,
    event: Event,
    /// `QUEUED` is on and the harvester's, so the watch has to be pending again afterwards.
    ours: bool,
}

impl SetCore {
    /// Delivers up to `capacity` ready events to `report`, in order; how many it took. `report`
    /// says `false` to an event that it cannot take: that one stays first in the queue, and the
    /// harvest ends.
    ///
    /// Each pending watch is visited once: polled again, reported if it is ready, and then put
    /// back at the end (level-triggered), taken off (edge-triggered) or disarmed (ONESHOT).
    pub(crate) fn harvest(&self, capacity: usize, mut report: impl FnMut(Event) -> bool) -> usize {
        self.harvest_watches(capacity, true, |event, _| report(event))
    }

    /// [`harvest`](Self::harvest) that also says which watch each event is of. `untracked`: by a
    /// waiter without a lease.
    pub(in crate::set) fn harvest_watches(
        &self,
        capacity: usize,
        untracked: bool,
        mut report: impl FnMut(Event, *mut Watch) -> bool,
    ) -> usize {
        if capacity == 0 || !self.may_be_ready() {
            return 0;
        }
        // Before the list is taken: what is left to a waiter later is not in what this one takes.
        let left = self.wake.waiters.take_left();
        let (mut scan, attention) = self.begin_scan();
        let mut reported = 0;
        // Whether a waker's mark stands where ours should: that waker may be stopped.
        let mut again = false;
        if attention {
            // First, while watches with an unfinished mark and pending ones are different
            // watches: no wait reports one twice.
            again = Self::sweep(&scan, capacity, &mut reported, &mut report);
        }
        let mut unvisited = scan.pending.len;
        while unvisited > 0 && reported < capacity {
            unvisited -= 1;
            let Some(ready) = self.take_first(&mut scan, &mut again) else { continue };
            step!(report_before);
            if !report(ready.event, ready.watch) {
                Self::put_back_first(&mut scan, &ready, &mut again);
                unvisited += 1;
                break;
            }
            step!(reported);
            reported += 1;
            self.settle(&mut scan, &ready);
        }
        if left && unvisited > 0 {
            Self::pass_on_first(&scan, unvisited);
        }
        if untracked && reported != 0 {
            self.untracked.store(1, Ordering::Relaxed);
        }
        self.end_scan(scan, again);
        probe!(harvest, u64 self.wake.waiters.addr(), u64 reported);
        reported
    }

    /// Takes the first pending watch off the queue, and polls it; `None` if it is not ready.
    #[inline(always)]
    fn take_first<'a>(&self, scan: &mut Scan, again: &mut bool) -> Option<Ready<'a>> {
        let watch = scan.pending.head;
        // SAFETY: the caller holds the scan lock and the watch is pending in this set; the same for
        // all below.
        let Guarded { source, data, .. } = *unsafe { guarded(watch) };
        // SAFETY: a source removes its watches, under this lock, before it goes.
        let poll = || unsafe { &*source }.poll();
        // SAFETY: as above.
        let word = &unsafe { shared(watch) }.state;
        let mut state = State(word.load(Ordering::Acquire));
        let level = state.is_level();
        let mut ours = level;
        let mut ready = Events::empty();
        if level {
            ready = poll() & Events::from_bits_retain(state.mask());
        }
        // SAFETY: as above.
        unsafe { scan.pending.unlink(watch) };
        if ready.is_empty() {
            // Off the list first, then the poll: a change from here on queues the watch again.
            let early = mutant!("unqueue_after_poll").then(poll);
            step!(unqueue_before);
            state = State(word.fetch_and(State(!0).unqueued().0, Ordering::SeqCst)).unqueued();
            step!(unqueued);
            after_publishing(mutant!("unqueue_without_fence"));
            ready = early.unwrap_or_else(poll) & Events::from_bits_retain(state.mask());
            if ready.is_empty() {
                self.plan(scan, watch);
                return None;
            }
            // Unless a waker was faster: then it is on the incoming list and will be pending again.
            if level {
                let mark = mark_queued(word);
                ours = mark == Mark::Ours;
                *again |= mark == Mark::Unfinished;
            }
        }
        Some(Ready { watch, source, word, state, event: Event::new(ready, data), ours })
    }

    /// Makes a watch whose event was refused the first of the queue again.
    #[inline(always)]
    fn put_back_first(scan: &mut Scan, ready: &Ready<'_>, again: &mut bool) {
        let mark = if ready.ours { Mark::Ours } else { mark_queued(ready.word) };
        *again |= mark == Mark::Unfinished;
        if mark == Mark::Ours {
            // SAFETY: the caller holds the scan lock; QUEUED is on, and ours.
            unsafe { scan.pending.push_front(ready.watch) };
        }
    }

    /// After the report: where the watch goes.
    #[inline(always)]
    fn settle(&self, scan: &mut Scan, ready: &Ready<'_>) {
        if ready.ours {
            // SAFETY: the caller holds the scan lock; QUEUED is on, and ours.
            unsafe { scan.pending.push_back(ready.watch) };
            return;
        }
        let is_oneshot = ready.state.flags().contains(Events::ONESHOT);
        if is_oneshot && !mutant!("harvest_keeps_oneshot") {
            change_state(ready.word, State::disarmed);
        }
        // SAFETY: a source removes its watches, under the scan lock, before it goes.
        if unsafe { &*ready.source }.as_set().is_some() {
            // Ready as it is, it may have another edge to come.
            self.plan(scan, ready.watch);
        }
    }

    /// [`harvest`](Self::harvest) into a lease.
    pub(crate) fn harvest_into(
        &self,
        lease: &LeaseCore,
        capacity: usize,
        mut report: impl FnMut(Event) -> bool,
    ) -> usize {
        self.harvest_watches(capacity, false, |event, watch| {
            // SAFETY: a harvest reports with the scan lock held.
            let has_room = unsafe { lease.has_room() };
            // SAFETY: as above.
            has_room && report(event) && unsafe { lease.take(Known::of(watch)) }
        })
    }
}
