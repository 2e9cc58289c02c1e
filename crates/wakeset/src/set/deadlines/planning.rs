//! When a set has to poll its watches: what it asks of sources that time makes ready.

use crate::events::Events;
use crate::set::base::mark::{Mark, mark_queued};
use crate::set::base::scan::Scan;
use crate::set::base::set_core::SetCore;
use crate::sync::Ordering;
use crate::wake::state::State;
use crate::wake::watch::{Watch, guarded, shared};

use crate::sync::time::Deadline;
use crate::wake::timed::NEVER;
use crate::wake::waiters::Published;

impl SetCore {
    /// Whether the time of a plan has come.
    #[inline]
    pub(in crate::set) fn is_due(&self) -> bool {
        let at = self.wake.waiters.deadline();
        at != NEVER && at <= Deadline::now().as_nanos()
    }

    /// Plans a watch anew, by what its source says.
    pub(in crate::set) fn plan(&self, scan: &mut Scan, watch: *mut Watch) {
        self.plan_by(scan, watch, |set| set.wake.waiters.deadline());
    }

    /// [`plan`](Self::plan), where a set has to be asked `of_set`.
    pub(in crate::set) fn plan_by(
        &self,
        scan: &mut Scan,
        watch: *mut Watch,
        of_set: impl FnOnce(&SetCore) -> u64,
    ) {
        let Some(node) = scan.plans.find(watch) else { return };
        // SAFETY: on the interest list of this set, whose lock we hold; a source removes its
        // watches before it goes.
        let (source, state) =
            unsafe { (&*guarded(watch).source, State(shared(watch).state.load(Ordering::SeqCst))) };
        let asked = Events::from_bits_retain(state.mask());
        let at = match source.as_timed() {
            Some(timer) if asked.contains(Events::IN) => {
                let at = timer.plan();
                // SAFETY: as above.
                let on_its_way = || state.is_listed() || unsafe { scan.pending.contains(watch) };
                if at != NEVER && on_its_way() && at <= Deadline::now().as_nanos() {
                    // It is on the ready list already. Planned too, it would be one more edge for a
                    // set around this one.
                    timer.drop_plan();
                    NEVER
                } else {
                    at
                }
            }
            Some(timer) => {
                // Nothing that time could make ready. A change of the interest plans again.
                timer.drop_plan();
                NEVER
            }
            // A set tells those around it of IN alone, also when a timer in it expires.
            None if asked.contains(Events::IN) => {
                source.as_set().map_or(NEVER, |set| of_set(SetCore::of(set)))
            }
            None => NEVER,
        };
        scan.plans.set(node, at);
    }

    /// Queues the watches whose time has come; whether the mark of one is a waker's and unfinished.
    pub(in crate::set) fn queue_due(&self, scan: &mut Scan) -> bool {
        if scan.plans.first() == NEVER {
            return false;
        }
        let now = Deadline::now().as_nanos();
        if scan.plans.first() > now {
            return false;
        }
        let mut unfinished = false;
        // Before the marks, as in `queue_if_ready`.
        self.pending_hint.fetch_add(1, Ordering::SeqCst);
        while let Some(watch) = scan.plans.take_due(now) {
            // SAFETY: as above.
            let (source, word) = unsafe { (&*guarded(watch).source, &shared(watch).state) };
            match (source.as_timed(), source.as_set()) {
                (Some(timer), _) => timer.drop_plan(),
                // There may be more to come in it, however long it stays ready. Later than `now`:
                // what is due in there it takes out.
                (_, Some(_)) => self.plan_by(scan, watch, SetCore::earliest),
                _ => {}
            }
            if State(word.load(Ordering::SeqCst)).mask() == 0 {
                continue;
            }
            let mark = mark_queued(word);
            match mark {
                // SAFETY: as above; QUEUED is on, and ours.
                Mark::Ours => unsafe { scan.pending.push_back(watch) },
                Mark::Listed => {}
                Mark::Unfinished => unfinished = true,
            }
            if mark != Mark::Unfinished {
                self.plan_listed_timer(scan, watch);
            }
        }
        unfinished
    }

    /// Plans a timer's watch that has just been found on the ready list, or put there. The timer
    /// may have been set to a later time than the plan that led to it, and the thread that did so
    /// has told no waiter. If it has expired, the plan is dropped, so that the thread that sets it
    /// next tells.
    pub(in crate::set) fn plan_listed_timer(&self, scan: &mut Scan, watch: *mut Watch) {
        // SAFETY: as above.
        if unsafe { &*guarded(watch).source }.as_timed().is_some()
            && !mutated!("timer_set_later_is_not_planned")
        {
            self.plan(scan, watch);
        }
    }

    /// Plans every watch that is queued and whose timer was set meanwhile: the harvest that will
    /// get to it may be far away, and a set around this one wants to know. O(queue), and only
    /// where sets are nested.
    pub(in crate::set) fn plan_queued(&self, scan: &mut Scan) {
        if !self.wake.take_set_again() {
            return;
        }
        let mut watch = scan.pending.head;
        while !watch.is_null() {
            self.plan_by(scan, watch, SetCore::earliest);
            // SAFETY: pending in this set, whose lock we hold.
            watch = unsafe { shared(watch) }.next.load(Ordering::Relaxed);
        }
    }

    /// The earliest plan there is, for a set around this one.
    pub(in crate::set) fn earliest(&self) -> u64 {
        if !self.wake.is_timed() {
            return NEVER;
        }
        let (mut scan, attention) = self.begin_scan();
        self.plan_queued(&mut scan);
        let at = scan.plans.first();
        self.end_scan(scan, attention);
        at
    }

    /// Says until when the waiters may sleep, before the scan lock is free. The caller acts on the
    /// answer afterwards: [`mind_published`](Self::mind_published).
    #[must_use]
    pub(in crate::set) fn publish_deadline(&self, scan: &Scan) -> Published {
        self.wake.waiters.publish_deadline(scan.plans.first())
    }
}
