//! The set as its users see it.

use crate::error::Error;
use crate::events::{Event, Events};
use crate::set::base::set_core::SetCore;
use crate::set::changes::add::check_exclusive;
use crate::set::description::Description;
use crate::set::engine::Engine;
use crate::set::nesting::checks as nesting;
use crate::wake::ready_list::ReadyList;
use crate::wake::source::Source;
use crate::wake::wait_queue::WaitQueue;
use crate::wake::wake_side::SetRef;
use core::fmt;
use core::ptr;

/// An epoll instance: an interest list, a ready list and the threads that wait on it.
///
/// Share it between threads by reference or [`Arc`](alloc::sync::Arc); to nest it in another set,
/// open it as a [`Description`]. Dropping it removes all its watches.
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
pub struct EventPoll {
    pub(in crate::set) core: ptr::NonNull<SetCore>,
    pub(in crate::set) engine: Engine,
}

// SAFETY: the core is in type-stable memory kept alive by `engine`, and is made for sharing.
unsafe impl Send for EventPoll {}
// SAFETY: as above.
unsafe impl Sync for EventPoll {}

impl EventPoll {
    /// An empty set.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(engine: &Engine) -> Result<Self, Error> {
        Self::with_ready_list(engine, ReadyList::LockFree)
    }

    /// An empty set with another ready list than the lock-free one: for benchmarks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this build does not have the list ([`ReadyList::is_available`]);
    /// [`Error::NoMemory`].
    pub fn with_ready_list(engine: &Engine, ready_list: ReadyList) -> Result<Self, Error> {
        if !ready_list.is_available() {
            return Err(Error::Invalid);
        }
        let core = ptr::NonNull::new(engine.shared().sets.take(1)?).ok_or(Error::NoMemory)?;
        // SAFETY: just taken from the pool.
        unsafe { core.as_ref() }.open(engine.shared(), ready_list);
        Ok(Self { core, engine: engine.clone() })
    }

    #[inline]
    pub(in crate::set) fn core(&self) -> &SetCore {
        // SAFETY: ours until drop, and type-stable anyway.
        unsafe { self.core.as_ref() }
    }

    /// The engine whose sources it can watch.
    #[inline]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How many watches it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.core().len()
    }

    /// Whether it has no watch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Watches `source` under the descriptor number `fd`: `EPOLL_CTL_ADD` of epoll_ctl(2).
    ///
    /// The key is the pair of `fd` and description: a clone of the same description may be watched
    /// again under another number. If the source is ready already, that is reported.
    ///
    /// # Errors
    /// [`Error::AlreadyWatched`], [`Error::WatchLimit`], [`Error::NoMemory`]; [`Error::Closed`] for
    /// a source of another engine; [`Error::Invalid`] if the source is this set itself, for
    /// `EXCLUSIVE` on a set or with bits it does not go with, and beyond the path limits;
    /// [`Error::Loop`].
    #[doc(alias = "epoll_ctl")]
    pub fn add<S: Source + 'static>(
        &self,
        fd: i32,
        source: &Description<S>,
        event: Event,
    ) -> Result<(), Error> {
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
    /// `source` stays where it is until [`WaitQueue::close`] has been called on its queue and all
    /// calls of this function with it have returned, and only sets of one engine watch it. That
    /// engine outlives all calls of [`WaitQueue::wake`] on it.
    #[inline]
    pub unsafe fn add_source(
        &self,
        fd: i32,
        source: *const dyn Source,
        event: Event,
    ) -> Result<(), Error> {
        let core = self.core();
        // SAFETY: valid by the caller's contract.
        let target = unsafe { &*source };
        let inner = target.as_set().map(SetCore::of);
        if inner.is_some_and(|inner| ptr::eq(inner, core)) {
            return Err(Error::Invalid);
        }
        check_exclusive(event, inner.is_some())?;
        if inner.is_none() && !core.wake.queue.may_have_watches() {
            // SAFETY: the caller's contract.
            return unsafe { core.add(fd, source, event, || Ok(())) };
        }
        let mut rounds = self.engine.shared().nesting.lock();
        if let Some(inner) = inner {
            nesting::check_loop(&mut rounds, core, inner)?;
            if mutant!("note_before_attach") {
                inner.wake.note_outer();
            }
        }
        let attached = || {
            // Not earlier: a descriptor table may close the inner set and begin the next one in its
            // memory until the watch is in its queue, and the next one begins without the note. Not
            // later: a change that has found no note and ends at the queued watch is one that the
            // poll of this add sees.
            if let Some(inner) = inner
                && !mutant!("note_before_attach")
            {
                inner.wake.note_outer();
            }
            nesting::check_paths(&mut rounds, target)
        };
        // SAFETY: the caller's contract.
        unsafe { core.add(fd, source, event, attached) }
    }

    /// Changes what a watch asks for: `EPOLL_CTL_MOD`. Re-arms it, and reports readiness that is
    /// already there.
    ///
    /// # Errors
    /// [`Error::NotWatched`]; [`Error::Invalid`] if `event` or the watch is `EXCLUSIVE`.
    pub fn modify<S: Source + 'static>(
        &self,
        fd: i32,
        source: &Description<S>,
        event: Event,
    ) -> Result<(), Error> {
        self.modify_source(fd, ptr::from_ref::<S>(source).cast(), event)
    }

    /// [`modify`](Self::modify) by address; it is only compared.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    #[inline]
    pub fn modify_source(&self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        if event.events.contains(Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        self.core().modify(fd, source, event)
    }

    /// Removes a watch: `EPOLL_CTL_DEL`. When it returns, no wait that begins later reports it; one
    /// that has it in its hands already may still.
    ///
    /// # Errors
    /// [`Error::NotWatched`].
    pub fn remove<S: Source + 'static>(
        &self,
        fd: i32,
        source: &Description<S>,
    ) -> Result<(), Error> {
        self.remove_source(fd, ptr::from_ref::<S>(source).cast())
    }

    /// [`remove`](Self::remove) by address; it is only compared.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    #[inline]
    pub fn remove_source(&self, fd: i32, source: *const ()) -> Result<(), Error> {
        self.core().remove(fd, source)
    }
}

/// A set is a source: it is readable when one of its watches is ready.
impl Source for EventPoll {
    #[inline]
    fn poll(&self) -> Events {
        self.core().poll()
    }

    #[inline]
    fn wait_queue(&self) -> &WaitQueue {
        &self.core().wake.queue
    }

    #[inline]
    fn as_set(&self) -> Option<SetRef<'_>> {
        Some(self.core().as_ref())
    }
}

impl Drop for EventPoll {
    fn drop(&mut self) {
        let core = self.core.as_ptr();
        self.core().close();
        // SAFETY: whoever takes from the ring borrows the set.
        unsafe { self.core().end_ring() };
        // SAFETY: closed, and this handle was the last way to it but for late wakers.
        unsafe { self.engine.shared().sets.give(core, core) };
    }
}

impl fmt::Debug for EventPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (watches, ready_list) = (self.len(), self.core().wake.ready_list());
        f.debug_struct("EventPoll")
            .field("watches", &watches)
            .field("ready_list", &ready_list)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::events::Events;
    use crate::sources::counter::{Counter, CounterFlags};

    #[test]
    fn an_exclusive_wake_is_taken_by_who_lingers() -> Result<(), Error> {
        let engine = Engine::new();
        let sets = [EventPoll::new(&engine)?, EventPoll::new(&engine)?];
        let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
        for set in &sets {
            set.add(5, &counter, Event::new(Events::IN | Events::EXCLUSIVE, 1))?;
        }
        let told = || sets.each_ref().map(|set| set.harvest(1, |_| true));
        sets[0].core().wake.waiters.while_spinning(|| counter.write(1))?;
        assert_eq!(told(), [1, 0]);
        counter.read()?;
        counter.write(1)?;
        assert_eq!(told(), [1, 1], "with no waiter, all are told");
        Ok(())
    }
}
