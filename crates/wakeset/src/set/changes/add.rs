//! The add of a watch, and the poll after every change of what a watch asks for.

use crate::error::Error;
use crate::events::{Event, Events};
use crate::set::base::mark::{Mark, mark_queued};
use crate::set::base::scan::{Scan, hash};
use crate::set::base::set_core::SetCore;
use crate::sync::{Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::handle::Handle;
use crate::wake::source::Source;
use crate::wake::state::State;
use crate::wake::watch::{Watch, guarded, shared};

/// Whether a change made a watch ready that was not on the ready list: its waiters have to be told.
pub(in crate::set) type NewlyReady = bool;

/// The event bits of a request as Linux stores them: `ERR` and `HUP` are always asked for.
pub(in crate::set) fn asked(events: Events) -> Events {
    events | Events::ALWAYS
}

impl SetCore {
    #[allow(
        clippy::too_many_arguments,
        reason = "the middle part of `add`, split off for its error path"
    )]
    pub(in crate::set) unsafe fn add_counted(
        &self,
        scan: &mut Scan,
        key: u64,
        fd: i32,
        source: *const dyn Source,
        event: Event,
        attached: impl FnOnce() -> Result<(), Error>,
    ) -> Result<NewlyReady, Error> {
        // SAFETY: the interest list holds watches of this set, whose lock we hold.
        let rehash =
            |watch: &*mut Watch| unsafe { hash(guarded(*watch).fd, guarded(*watch).source.cast()) };
        scan.interest.try_reserve(1, rehash).map_err(|_| Error::NoMemory)?;
        let (watch, state) = self.fill_free(scan, fd, source, event)?;
        // SAFETY: the source is valid by the caller's contract.
        let target = unsafe { &*source };
        let timed = target.as_timed();
        if timed.is_some() || target.as_set().is_some() {
            // Before the watch is in the queue of the source, from where the sets around this one
            // hear of it.
            self.wake.note_timed();
            if let Err(error) = scan.plans.insert(watch) {
                self.retire(scan, watch);
                return Err(error);
            }
        }
        if mutant!("poll_before_attach") {
            self.queue_if_ready(scan, watch);
        }
        let exclusive = event.events.contains(Events::EXCLUSIVE);
        let queue = target.wait_queue();
        let slot = match queue.attach(Handle::new(watch, state, exclusive)) {
            Ok(slot) => slot,
            Err(error) => {
                self.retire(scan, watch);
                return Err(error);
            }
        };
        // SAFETY: as above.
        unsafe { guarded(watch) }.slot = slot;
        if let Some(timer) = timed {
            timer.note_watch(slot);
        }
        if let Err(error) = attached() {
            queue.detach(slot);
            self.retire(scan, watch);
            return Err(error);
        }
        step!(add_before_interest);
        scan.interest.insert_unique(key, watch, rehash);
        self.len.store(scan.interest.len(), Ordering::SeqCst);
        Ok(!mutant!("poll_before_attach") && self.queue_if_ready(scan, watch))
    }

    /// Takes a free watch and fills it in. Returns it with the state that its wakers find: its
    /// handle goes into the wait queue of the source only after this. Fails with `NoMemory` when
    /// there is none and none can be made.
    #[inline]
    fn fill_free(
        &self,
        scan: &mut Scan,
        fd: i32,
        source: *const dyn Source,
        event: Event,
    ) -> Result<(*mut Watch, State), Error> {
        let watch = scan.take_free(&self.home().watches)?;
        // SAFETY: a free watch is ours alone but for late wakers, which touch only its state.
        let word = unsafe {
            let fields = guarded(watch);
            fields.source = source;
            fields.data = event.data;
            fields.fd = fd;
            shared(watch).set.store(self.as_ref().side().as_ptr(), Ordering::Relaxed);
            &shared(watch).state
        };
        let state = State(word.load(Ordering::Relaxed)).with_interest(asked(event.events));
        step!(add_before_state);
        // Release: a waker that finds the handle in the queue sees the watch as it is here.
        word.store(state.0, Ordering::SeqCst);
        step!(add_state_stored);
        Ok((watch, state))
    }

    /// After a change of the interest: puts the watch on the pending queue if it holds and is not
    /// there.
    pub(in crate::set) fn queue_if_ready(&self, scan: &mut Scan, watch: *mut Watch) -> NewlyReady {
        // SAFETY: a watch of this set, whose lock we hold; its source is open.
        let (word, source) = unsafe { (&shared(watch).state, &*guarded(watch).source) };
        step!(change_before_poll);
        after_publishing(mutant!("change_without_fence"));
        self.plan_by(scan, watch, SetCore::earliest);
        let mask = State(word.load(Ordering::SeqCst)).mask();
        if (source.poll() & Events::from_bits_retain(mask)).is_empty() {
            return false;
        }
        step!(change_polled);
        // Before the mark: a waker that meets it leaves, and its thread must find the set ready. If
        // nothing comes of it, the next harvest puts it right.
        if self.pending_hint.load(Ordering::Relaxed) == 0 && !mutant!("hint_after_mark") {
            self.pending_hint.swap(1, Ordering::SeqCst);
        }
        step!(change_hinted);
        match mark_queued(word) {
            Mark::Ours => {}
            Mark::Listed => {
                self.plan_listed_timer(scan, watch);
                return false;
            }
            Mark::Unfinished => {
                self.wake.incoming.call_attention();
                return true;
            }
        }
        step!(change_marked);
        // What became ready before comes before it.
        if let Some(ring) = self.ring() {
            ring.reclaim(scan, None);
            ring.pending.store(1, Ordering::Relaxed);
        }
        if self.collect(scan) {
            self.wake.incoming.call_attention();
        }
        // SAFETY: as above; we turned QUEUED on.
        unsafe { scan.pending.push_back(watch) };
        self.plan_listed_timer(scan, watch);
        if mutant!("hint_after_mark") {
            self.pending_hint.swap(scan.pending.len, Ordering::SeqCst);
        }
        true
    }
}

/// Whether a watch on a set, or on something else, may be added with these bits as far as
/// `EXCLUSIVE` is concerned.
pub(in crate::set) fn check_exclusive(event: Event, on_a_set: bool) -> Result<(), Error> {
    if event.events.contains(Events::EXCLUSIVE)
        && (on_a_set || !Events::EXCLUSIVE_OK.contains(event.events))
    {
        return Err(Error::Invalid);
    }
    Ok(())
}
