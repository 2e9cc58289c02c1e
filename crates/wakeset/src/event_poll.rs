//! The set as its users see it.

use crate::batch::Changes;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::{Event, Events};
use crate::nesting;
use crate::patience::Patience;
use crate::ready_list::{LockFree, ReadyList};
use crate::set::{Minding, SetCore};
use crate::sleepers::Ring;
use crate::source::{Description, Source};
use crate::sync::Slept;
use crate::time::{Deadline, Timeout};
use crate::wait_queue::WaitQueue;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

/// An epoll instance: an interest list, a ready list and the threads that wait on it.
///
/// Share it between threads by reference or [`Arc`](alloc::sync::Arc); to nest it in another set, open it as a
/// [`Description`]. Dropping it removes all its watches.
///
/// `R` is the ready list; leave it at its default unless you measure (see [`ReadyList`]).
///
/// ```
/// use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Timeout};
///
/// let engine = Engine::new();
/// let set = EventPoll::new(&engine)?;
/// let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
/// set.add(5, &counter, Event::new(Events::IN, 42))?;
///
/// counter.write(3)?;
/// let mut events = [Event::default(); 8];
/// assert_eq!(set.wait(&mut events, Timeout::Never)?, 1);
/// assert_eq!(events[0], Event::new(Events::IN, 42));
/// assert_eq!(counter.read()?, 3);
/// # Ok::<(), wakeset::Error>(())
/// ```
#[doc(alias = "epoll_create1")]
pub struct EventPoll<R: ReadyList = LockFree> {
    core: ptr::NonNull<SetCore>,
    engine: Engine,
    patience: Patience,
    ready_list: PhantomData<R>,
}

// SAFETY: the core is in type-stable memory kept alive by `engine`, and is made for sharing.
unsafe impl<R: ReadyList> Send for EventPoll<R> {}
// SAFETY: as above.
unsafe impl<R: ReadyList> Sync for EventPoll<R> {}

impl EventPoll {
    /// An empty set with the lock-free ready list.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(engine: &Engine) -> Result<Self, Error> {
        Self::with_ready_list(engine)
    }
}

impl<R: ReadyList> EventPoll<R> {
    /// An empty set with the ready list `R`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn with_ready_list(engine: &Engine) -> Result<Self, Error> {
        let core = ptr::NonNull::new(engine.shared().sets.take(1)?).ok_or(Error::NoMemory)?;
        // SAFETY: just taken from the pool.
        unsafe { core.as_ref() }.open(engine.shared(), R::POLICY);
        Ok(Self { core, engine: engine.clone(), patience: Patience::new(), ready_list: PhantomData })
    }

    #[inline]
    fn core(&self) -> &SetCore {
        // SAFETY: ours until drop, and type-stable anyway.
        unsafe { self.core.as_ref() }
    }

    /// The engine whose sources it can watch.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How many watches it has.
    pub fn len(&self) -> usize {
        self.core().len()
    }

    /// Whether it has no watch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Watches `source` under the descriptor number `fd`: `EPOLL_CTL_ADD` of epoll_ctl(2).
    ///
    /// The key is the pair of `fd` and description: a clone of the same description may be watched again under another
    /// number. If the source is ready already, that is reported.
    ///
    /// # Errors
    /// [`Error::AlreadyWatched`], [`Error::WatchLimit`], [`Error::NoMemory`]; [`Error::Closed`] for a source of another
    /// engine; [`Error::Invalid`] if the source is this set itself, for `EXCLUSIVE` on a set or with bits it does not
    /// go with, and beyond the path limits; [`Error::Loop`].
    #[doc(alias = "epoll_ctl")]
    pub fn add<S: Source + 'static>(&self, fd: i32, source: &Description<S>, event: Event) -> Result<(), Error> {
        if !source.engine().is(&self.engine) {
            return Err(Error::Closed);
        }
        let source: &dyn Source = &**source;
        // SAFETY: a description closes its source's queue before the source goes.
        unsafe { self.add_source(fd, source, event) }
    }

    /// [`add`](Self::add) for sources that are kept by other means than a [`Description`].
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Safety
    /// `source` stays where it is until [`WaitQueue::close`] has been called on its queue, and only sets of one engine
    /// watch it. That engine outlives all calls of [`WaitQueue::wake`] on it.
    pub unsafe fn add_source(&self, fd: i32, source: *const dyn Source, event: Event) -> Result<(), Error> {
        let core = self.core();
        // SAFETY: valid by the caller's contract.
        let target = unsafe { &*source };
        let inner = target.as_set();
        if inner.is_some_and(|inner| ptr::eq(inner, core)) {
            return Err(Error::Invalid);
        }
        check_exclusive(event, inner.is_some())?;
        if inner.is_none() && !core.queue.may_have_watches() {
            // SAFETY: the caller's contract.
            return unsafe { core.add(fd, source, event, || Ok(())) };
        }
        let mut rounds = self.engine.shared().nesting.lock();
        if let Some(inner) = inner {
            nesting::check_loop(&mut rounds, core, inner)?;
            inner.note_outer();
        }
        // SAFETY: the caller's contract.
        unsafe { core.add(fd, source, event, || nesting::check_paths(&mut rounds, target)) }
    }

    /// Changes what a watch asks for: `EPOLL_CTL_MOD`. Re-arms it, and reports readiness that is already there.
    ///
    /// # Errors
    /// [`Error::NotWatched`]; [`Error::Invalid`] if `event` or the watch is `EXCLUSIVE`.
    pub fn modify<S: Source + 'static>(&self, fd: i32, source: &Description<S>, event: Event) -> Result<(), Error> {
        self.modify_source(fd, ptr::from_ref::<S>(source).cast(), event)
    }

    /// [`modify`](Self::modify) by address; it is only compared.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn modify_source(&self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        if event.events.contains(Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        self.core().modify(fd, source, event)
    }

    /// Removes a watch: `EPOLL_CTL_DEL`. When it returns, no wait that begins later reports it; one that has it in its
    /// hands already may still.
    ///
    /// # Errors
    /// [`Error::NotWatched`].
    pub fn remove<S: Source + 'static>(&self, fd: i32, source: &Description<S>) -> Result<(), Error> {
        self.remove_source(fd, ptr::from_ref::<S>(source).cast())
    }

    /// [`remove`](Self::remove) by address; it is only compared.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_source(&self, fd: i32, source: *const ()) -> Result<(), Error> {
        self.core().remove(fd, source)
    }

    /// Waits for events: epoll_wait(2) and epoll_pwait2(2). Fills `events` from the front; how many.
    ///
    /// Returns 0 only when the time is up, never earlier. Several threads may wait; one event wakes one of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `events` is empty; [`Error::Interrupted`] if a signal handler ran while it slept.
    #[doc(alias = "epoll_wait")]
    #[doc(alias = "epoll_pwait2")]
    pub fn wait(&self, events: &mut [Event], timeout: Timeout) -> Result<usize, Error> {
        if events.is_empty() {
            return Err(Error::Invalid);
        }
        let mut n = 0;
        self.wait_with(events.len(), timeout, &mut |event| {
            events[n] = event;
            n += 1;
            true
        })
    }

    /// [`wait`](Self::wait) that hands up to `room` events to `report`, which must not call into a set. If `report` says
    /// `false`, it has not taken the event: that one is delivered again, first, and the wait ends (with 0 if it was the first).
    ///
    /// # Errors
    /// As [`wait`](Self::wait); `room` 0 is invalid.
    pub fn wait_with(
        &self,
        room: usize,
        timeout: Timeout,
        report: &mut dyn FnMut(Event) -> bool,
    ) -> Result<usize, Error> {
        if room == 0 {
            return Err(Error::Invalid);
        }
        let core = self.core();
        self.wait_by(timeout, report, |report| core.harvest(room, report))
    }

    /// A wait whose harvests are `harvest`'s.
    pub(crate) fn wait_by(
        &self,
        timeout: Timeout,
        report: &mut dyn FnMut(Event) -> bool,
        harvest: impl Fn(&mut dyn FnMut(Event) -> bool) -> usize,
    ) -> Result<usize, Error> {
        let refused = Cell::new(false);
        let mut harvest = || {
            harvest(&mut |event| {
                refused.set(!report(event));
                !refused.get()
            })
        };
        let reported = harvest();
        if reported != 0 || refused.get() || timeout == Timeout::Now {
            return Ok(reported);
        }
        let deadline = Deadline::of(timeout);
        let _minding = Minding(self.core());
        loop {
            let reported = self.linger(&mut harvest);
            if reported != 0 || refused.get() {
                return Ok(reported);
            }
            let slept = self.sleep(deadline);
            // Whatever ended the sleep: a kick may have come with it, and what it was for must not lie.
            match (harvest(), slept) {
                (0, _) if refused.get() => return Ok(0),
                (0, Slept::TimedOut) => return Ok(0),
                (0, Slept::Interrupted) => return Err(Error::Interrupted),
                (0, Slept::Woken) => {}
                (reported, _) => return Ok(reported),
            }
        }
    }

    fn sleep(&self, deadline: Option<Deadline>) -> Slept {
        let core = self.core();
        self.patience.asleep(|| core.sleep_unless(|| core.may_be_ready(), deadline))
    }

    // The pieces a descriptor table builds its own waits from.

    /// Delivers what is ready now, without waiting.
    #[doc(hidden)]
    #[inline]
    pub fn harvest(&self, room: usize, report: impl FnMut(Event) -> bool) -> usize {
        self.core().harvest(room, report)
    }

    /// Whether a harvest could find something; never a wrong "no".
    #[doc(hidden)]
    #[inline]
    pub fn may_be_ready(&self) -> bool {
        self.core().may_be_ready()
    }

    /// Wakes all who sleep in [`wait`](Self::wait), to look again.
    #[doc(hidden)]
    pub fn kick_all(&self) {
        self.core().sleepers.kick_all();
    }

    /// Wakes one who sleeps, here or elsewhere.
    #[doc(hidden)]
    pub fn kick(&self) {
        crate::sync::full_fence();
        self.core().sleepers.kick();
    }

    /// Counts in a waiter that will sleep in a kernel call and wants the bell rung. It must look at
    /// [`may_be_ready`](Self::may_be_ready) afterwards.
    #[doc(hidden)]
    pub fn enter_elsewhere(&self) {
        self.core().sleepers.enter_elsewhere();
    }

    /// Whether such a waiter is counted in.
    #[doc(hidden)]
    pub fn someone_is_elsewhere(&self) -> bool {
        self.core().sleepers.someone_is_elsewhere()
    }

    /// Counts it out.
    #[doc(hidden)]
    pub fn leave_elsewhere(&self) {
        self.core().sleepers.leave_elsewhere();
    }

    /// Installs the bell for such waiters.
    #[doc(hidden)]
    pub fn set_bell(&self, bell: Option<(Ring, usize)>) {
        self.core().sleepers.set_bell(bell);
    }

    /// For a waiter counted in as [`enter_elsewhere`](Self::enter_elsewhere) does: until when it has to sleep at most, because nobody
    /// else minds the timers. It calls [`stop_leading`](Self::stop_leading) with that when it is awake.
    #[doc(hidden)]
    pub fn lead(&self) -> Option<Deadline> {
        self.core().lead().map(Deadline::from_nanos)
    }

    /// It no longer sleeps.
    #[doc(hidden)]
    pub fn stop_leading(&self, led: Option<Deadline>) {
        self.core().stop_leading(led.map(Deadline::as_nanos));
    }

    /// Before a waiter that has slept leaves: wakes another one if nobody minds the timers any more.
    #[doc(hidden)]
    pub fn mind_deadline(&self) {
        self.core().mind_deadline();
    }

    /// One sleep on the set's futex unless something may be ready or `stay` says no; it may end early.
    #[doc(hidden)]
    pub fn sleep_once(&self, stay: impl Fn() -> bool, deadline: Option<Deadline>) -> Woken {
        let core = self.core();
        let slept = self.patience.asleep(|| core.sleep_unless(|| core.may_be_ready() || !stay(), deadline));
        slept.into()
    }

    /// One sleep on the set's futex and on a word in shared memory while that is `expected`, unless `ready`.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn sleep_beside(
        &self,
        ready: impl Fn() -> bool,
        word: &crate::sync::AtomicU32,
        expected: u32,
        deadline: Option<Deadline>,
    ) -> Slept {
        let core = self.core();
        core.sleep_with(deadline, |until| {
            core.sleepers.sleep_with(ready, |turn, of_turn| turn.sleep_on_both(of_turn, word, expected, until()))
        })
    }

    /// The adaptive wait before a sleep: what `harvest` gets, 0 if it is better to sleep.
    #[doc(hidden)]
    pub fn linger(&self, harvest: impl FnMut() -> usize) -> usize {
        let core = self.core();
        self.patience.linger(&core.sleepers, || core.may_be_ready(), harvest)
    }

    /// Takes the scan lock for several changes: what a descriptor table builds its batches from.
    #[doc(hidden)]
    pub fn begin_changes(&self) -> Changes<'_> {
        Changes::begin(self.core())
    }

    /// Calls `f(descriptor, source, interest, data)` for each watch, with the scan lock held.
    #[doc(hidden)]
    pub fn for_each(&self, f: impl FnMut(i32, *const dyn Source, Events, u64)) {
        self.core().for_each(f);
    }

    /// Calls `f` while nobody harvests or changes the set: nobody who had the scan lock at the call has it any more.
    #[doc(hidden)]
    pub fn between_scans<T>(&self, f: impl FnOnce() -> T) -> T {
        self.core().between_scans(f)
    }

    /// Removes every watch and every watch on it, and takes no more until [`reopen`](Self::reopen).
    #[doc(hidden)]
    pub fn close(&self) {
        self.core().close();
    }

    /// Makes a closed set an empty open one.
    #[doc(hidden)]
    pub fn reopen(&self) {
        self.core().open(self.engine.shared(), R::POLICY);
    }

    /// What [`WaitQueue::hand_over`] tells of this set.
    #[doc(hidden)]
    pub fn set_owner(&self, owner: usize) {
        self.core().set_owner(owner);
    }

    /// The core, for [`Source::as_set`] of a wrapper.
    #[doc(hidden)]
    pub fn as_core(&self) -> &SetCore {
        self.core()
    }
}

/// Whether a watch on a set, or on something else, may be added with these bits as far as `EXCLUSIVE` is concerned.
pub(crate) fn check_exclusive(event: Event, on_a_set: bool) -> Result<(), Error> {
    if event.events.contains(Events::EXCLUSIVE) && (on_a_set || !Events::EXCLUSIVE_OK.contains(event.events)) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// How one sleep ended.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Kicked, or there was no need to sleep.
    Kicked,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

impl From<Slept> for Woken {
    fn from(slept: Slept) -> Self {
        match slept {
            Slept::Woken => Self::Kicked,
            Slept::TimedOut => Self::TimedOut,
            Slept::Interrupted => Self::Interrupted,
        }
    }
}

/// A set is a source: it is readable when one of its watches is ready.
impl<R: ReadyList> Source for EventPoll<R> {
    fn poll(&self) -> Events {
        self.core().poll()
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.core().queue
    }

    fn as_set(&self) -> Option<&SetCore> {
        Some(self.core())
    }
}

impl<R: ReadyList> Drop for EventPoll<R> {
    fn drop(&mut self) {
        let core = self.core.as_ptr();
        self.core().close();
        // SAFETY: whoever takes from the ring borrows the set.
        unsafe { self.core().end_ring() };
        // SAFETY: closed, and this handle was the last way to it but for late wakers.
        unsafe { self.engine.shared().sets.give(core, core) };
    }
}

impl<R: ReadyList> fmt::Debug for EventPoll<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (watches, ready_list) = (self.len(), self.core().policy());
        f.debug_struct("EventPoll").field("watches", &watches).field("ready_list", &ready_list).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::counter::{Counter, CounterFlags};
    use crate::events::Events;

    #[test]
    fn an_exclusive_wake_is_taken_by_who_lingers() -> Result<(), Error> {
        let engine = Engine::new();
        let sets = [EventPoll::new(&engine)?, EventPoll::new(&engine)?];
        let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
        for set in &sets {
            set.add(5, &counter, Event::new(Events::IN | Events::EXCLUSIVE, 1))?;
        }
        let told = || sets.each_ref().map(|set| set.harvest(1, |_| true));
        sets[0].core().sleepers.lingering(|| counter.write(1))?;
        assert_eq!(told(), [1, 0]);
        counter.read()?;
        counter.write(1)?;
        assert_eq!(told(), [1, 1], "with no waiter, all are told");
        Ok(())
    }
}
