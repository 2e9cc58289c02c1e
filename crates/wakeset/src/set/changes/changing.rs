//! Changes of the interest list under one hold of the scan lock.

use crate::error::Error;
use crate::events::{Event, Events};
use crate::set::base::scan::{Scan, hash};
use crate::set::base::set_core::SetCore;
use crate::set::changes::add::{NewlyReady, asked};
use crate::set::changes::forget::Quiet;
use crate::set::lease::leases::{Known, LeaseCore};
use crate::sync::Ordering;
use crate::sync::lock::ScanGuard;
use crate::testing::steps::step;
use crate::wake::source::Source;
use crate::wake::state::State;
use crate::wake::waiters::Published;
use crate::wake::watch::shared;

/// Changes of a set's interest list under one hold of its scan lock.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    set: &'a SetCore,
    scan: ScanGuard<'a, Scan>,
    /// Behind the lock: dropped when it is free.
    quiet: Quiet<'a>,
    /// Whether one of the changes made a watch ready that was not on the ready list.
    newly_ready: NewlyReady,
    /// Whether one of them was of a watch in the ring.
    in_ring: bool,
}

impl Changing<'_> {
    /// As [`SetCore::add`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn add(
        &mut self,
        fd: i32,
        source: *const dyn Source,
        event: Event,
        attached: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (set, scan) = (self.set, &mut *self.scan);
        if set.is_closed() {
            return Err(Error::Closed);
        }
        let key = hash(fd, source.cast());
        if scan.find(key, fd, source.cast()).is_some() {
            return Err(Error::AlreadyWatched);
        }
        if !set.home().count_in() {
            return Err(Error::WatchLimit);
        }
        // SAFETY: the caller's contract, passed on.
        let added = unsafe { set.add_counted(scan, key, fd, source, event, attached) };
        let newly_ready = added.inspect_err(|_| set.home().count_out())?;
        self.newly_ready |= newly_ready;
        Ok(())
    }

    /// As [`SetCore::modify`].
    pub(crate) fn modify(&mut self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        // SAFETY: on the interest list of this set, whose lock we hold.
        let word = &unsafe { shared(watch) }.state;
        if State(word.load(Ordering::Relaxed)).flags().contains(Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        step!(modify_before_state);
        let in_ring = self.set.change_interest(watch, asked(event.events), event.data);
        step!(modified);
        // In the ring it is marked as it is on the list, so the sets around this one hear nothing
        // of it. But a taker may have gone past it meanwhile, so somebody has to look.
        if in_ring {
            self.set.plan_by(&mut self.scan, watch, SetCore::earliest);
        }
        self.in_ring |= in_ring;
        self.newly_ready |= !in_ring && self.set.queue_if_ready(&mut self.scan, watch);
        Ok(())
    }

    /// [`modify`](Self::modify) by a lease, which gives back the event it has of the watch.
    pub(crate) fn modify_from(
        &mut self,
        lease: &LeaseCore,
        fd: i32,
        source: *const (),
        event: Event,
    ) -> Result<(), Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        self.modify(fd, source, event)?;
        // SAFETY: we hold the scan lock.
        unsafe { lease.give_back(Known::of(watch)) };
        Ok(())
    }

    /// Removes a watch and says which lease has an event of it, `but` not asked.
    pub(crate) fn retire(
        &mut self,
        fd: i32,
        source: *const (),
        but: Option<&LeaseCore>,
    ) -> Result<LastEvent, Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        // SAFETY: on the interest list of this set, whose lock we hold.
        let state = State(unsafe { shared(watch) }.state.load(Ordering::SeqCst));
        let known = Known::of(watch);
        let kept = if self.scan.leases.holder(known, but).is_some() {
            LastEvent::Leased(known)
        } else if self.set.untracked.load(Ordering::Relaxed) == 0 {
            LastEvent::Idle
        } else if state.has_been_unbounded() && !mutant!("tell_without_history") {
            LastEvent::Untracked
        } else if state.is_disarmed() {
            LastEvent::Spent
        } else {
            LastEvent::Idle
        };
        self.set.forget(&mut self.scan, watch);
        self.quiet.0 = self.set.ring();
        Ok(kept)
    }

    /// As [`SetCore::remove`].
    pub(crate) fn remove(&mut self, fd: i32, source: *const ()) -> Result<(), Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        self.set.forget(&mut self.scan, watch);
        self.quiet.0 = self.set.ring();
        Ok(())
    }

    /// Unlocks, and tells a waiter and the outer sets if something was made ready.
    pub(crate) fn end(self) {
        let Self { set, scan, quiet, newly_ready, in_ring } = self;
        let published = set.publish_deadline(&scan);
        drop(scan);
        drop(quiet);
        step!(change_unlocked);
        if !newly_ready {
            set.mind_published(published);
            if published == Published::Earlier {
                set.plan_outer();
            }
        }
        if (newly_ready || in_ring) && !mutant!("changes_kick_nobody") {
            // One for all: a waiter that leaves something over wakes the next.
            set.wake.waiters.kick();
            step!(change_kicked);
            if newly_ready {
                set.wake.wake_outer();
            }
        }
    }
}

impl SetCore {
    /// Takes the scan lock for changes of the interest list.
    pub(crate) fn begin_changes(&self) -> Changing<'_> {
        Changing {
            set: self,
            scan: self.scan.lock(),
            quiet: Quiet(None),
            newly_ready: false,
            in_ring: false,
        }
    }

    /// Adds a watch. `attached` runs once the watch is in the source's queue and may refuse it.
    ///
    /// # Safety
    /// `source` stays valid until its queue is closed, and only sets of this engine watch it.
    pub(crate) unsafe fn add(
        &self,
        fd: i32,
        source: *const dyn Source,
        event: Event,
        attached: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut changing = self.begin_changes();
        // SAFETY: the caller's contract, passed on.
        unsafe { changing.add(fd, source, event, attached) }?;
        changing.end();
        Ok(())
    }

    /// Changes what a watch asks for, and reports it at once if that holds already.
    pub(crate) fn modify(&self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        let mut changing = self.begin_changes();
        changing.modify(fd, source, event)?;
        changing.end();
        Ok(())
    }

    /// Removes a watch; when it returns no harvest reports it any more.
    pub(crate) fn remove(&self, fd: i32, source: *const ()) -> Result<(), Error> {
        self.begin_changes().remove(fd, source)
    }
}

/// Where an event of a watch is when the watch is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastEvent {
    /// Nowhere.
    Idle,
    /// With a lease.
    Leased(Known),
    /// It was a one-shot one, with a thread that has no lease.
    Spent,
    /// A thread without a lease may have it.
    Untracked,
}
