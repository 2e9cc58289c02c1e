//! A thread's lease, as its users see it.

use crate::error::Error;
use crate::events::{Event, Events};
use crate::memory::counted::Counted;
use crate::set::changes::changing::LastEvent;
use crate::set::description::Description;
use crate::set::event_poll::handle::EventPoll;
use crate::set::lease::leases::{HOLDS, LeaseCore};
use crate::set::lease::removal::{LeaseHolders, Removal};
use crate::sync::Ordering;
use crate::sync::time::Timeout;
use crate::wake::source::Source;
use core::fmt;
use core::ptr;

/// A thread's lease on the events of one set: [`retire`](EventPoll::retire) knows which events the
/// thread got from its waits and still uses.
///
/// Each thread that waits has its own. What a wait reports is leased until the next wait,
/// [`release`](Self::release), or the drop of the lease. [`modify`](Self::modify) gives back a
/// single event, which is how one-shot watches are re-armed.
///
/// # Freeing what the data stands for
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use wakeset::{
///     Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Removal, Timeout,
/// };
///
/// struct Connection {
///     bell: Description<Counter>,
///     served: AtomicU64,
/// }
///
/// let engine = Engine::new();
/// let set = EventPoll::new(&engine)?;
/// let bell = Description::new(&engine, Counter::new(1, CounterFlags::NONBLOCK));
/// let connection = Connection { bell: bell.clone(), served: AtomicU64::new(0) };
/// let connection = Box::into_raw(Box::new(connection));
/// set.add(5, &bell, Event::new(Events::IN, connection as u64))?;
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut lease = set.lease().unwrap();
///         let mut events = [Event::default(); 8];
///         // Each wait releases what the one before it gave.
///         while let Ok(n @ 1..) = lease.wait(&mut events, Timeout::from_millis(100)) {
///             for event in &events[..n] {
///                 // SAFETY: not freed before this lease releases it.
///                 let connection = unsafe { &*(event.data as *const Connection) };
///                 connection.served.fetch_add(1, Ordering::Relaxed);
///                 let _ = connection.bell.read();
///             }
///         }
///     });
///     match set.retire(5, &bell).unwrap() {
///         Removal::Idle => {}
///         // Another thread is at it. It will come back, and gets no further event of this watch.
///         Removal::InUse(holders) => assert!(holders.wait(Timeout::Never)),
///         Removal::Disarmed | Removal::Unknown => unreachable!("every waiter has a lease"),
///     }
///     // SAFETY: from `into_raw`, out of the set, and not leased.
///     drop(unsafe { Box::from_raw(connection) });
/// });
/// # Ok::<(), wakeset::Error>(())
/// ```
pub struct Lease<'a> {
    set: &'a EventPoll,
    core: Counted<LeaseCore>,
}

impl EventPoll {
    /// A lease to wait with, empty.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn lease(&self) -> Result<Lease<'_>, Error> {
        let core = Counted::try_new(LeaseCore::new())?;
        self.as_core().scan.lock().leases.insert(core.clone());
        Ok(Lease { set: self, core })
    }

    /// [`remove`](Self::remove) that says whether a thread still uses an event of the watch: the
    /// `EPOLL_CTL_DISABLE` that Linux never got, and for every kind of watch.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    #[doc(alias = "EPOLL_CTL_DISABLE")]
    pub fn retire<S: Source + 'static>(
        &self,
        fd: i32,
        source: &Description<S>,
    ) -> Result<Removal<'_>, Error> {
        self.retire_source(fd, ptr::from_ref::<S>(source).cast(), None)
    }

    /// [`retire`](Self::retire) by address; it is only compared.
    #[doc(hidden)]
    pub fn retire_source(
        &self,
        fd: i32,
        source: *const (),
        but: Option<&Lease<'_>>,
    ) -> Result<Removal<'_>, Error> {
        let but = but.map(|lease| lease.core.clone());
        let set = self.as_core();
        let kept = set.begin_changes().retire(fd, source, but.as_deref())?;
        Ok(match kept {
            LastEvent::Idle => Removal::Idle,
            LastEvent::Leased(known) => Removal::InUse(LeaseHolders { set, known, but }),
            LastEvent::Spent => Removal::Disarmed,
            LastEvent::Untracked => Removal::Unknown,
        })
    }
}

impl Lease<'_> {
    /// [`EventPoll::wait`], with what it reports in this lease. Releases what was leased before,
    /// also if it fails.
    ///
    /// # Errors
    /// As [`EventPoll::wait`].
    #[inline]
    pub fn wait(&mut self, events: &mut [Event], timeout: Timeout) -> Result<usize, Error> {
        if events.is_empty() {
            self.release();
            return Err(Error::Invalid);
        }
        let mut n = 0;
        self.wait_with(events.len(), timeout, &mut |event| {
            events[n] = event;
            n += 1;
            true
        })
    }

    /// [`EventPoll::wait_with`] in the same way. An event that `report` does not take is not
    /// leased.
    ///
    /// # Errors
    /// As [`EventPoll::wait_with`].
    #[inline]
    pub fn wait_with(
        &mut self,
        maxevents: usize,
        timeout: Timeout,
        report: &mut dyn FnMut(Event) -> bool,
    ) -> Result<usize, Error> {
        self.release();
        if maxevents == 0 {
            return Err(Error::Invalid);
        }
        let (set, lease) = (self.set.as_core(), &*self.core);
        self.set.wait_by(timeout, report, |report| set.harvest_into(lease, maxevents, report))
    }

    /// [`EventPoll::harvest`] into this lease.
    #[doc(hidden)]
    #[inline]
    pub fn harvest(&self, maxevents: usize, report: impl FnMut(Event) -> bool) -> usize {
        self.set.as_core().harvest_into(&self.core, maxevents, report)
    }

    /// [`modify`](Self::modify) by address; it is only compared.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    #[doc(hidden)]
    #[inline]
    pub fn modify_source(&mut self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        if event.events.contains(Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        let mut changing = self.set.as_core().begin_changes();
        changing.modify_from(&self.core, fd, source, event)?;
        changing.end();
        Ok(())
    }

    /// Says that this thread is done with all its events of this set. Costs one instruction, and a
    /// system call only if a thread waits for it.
    pub fn release(&mut self) {
        self.core.release();
    }

    /// [`EventPoll::modify`] that gives back the event of that watch, if this lease has one: "I am
    /// done with it, report the next".
    ///
    /// # Errors
    /// As [`EventPoll::modify`]; the event stays leased. [`Error::NotWatched`] says that the watch
    /// has been removed.
    pub fn modify<S: Source + 'static>(
        &mut self,
        fd: i32,
        source: &Description<S>,
        event: Event,
    ) -> Result<(), Error> {
        self.modify_source(fd, ptr::from_ref::<S>(source).cast(), event)
    }

    /// [`EventPoll::retire`] by a thread that may hold an event of the watch itself: only
    /// other leases count.
    ///
    /// # Errors
    /// As [`EventPoll::remove`].
    pub fn retire<S: Source + 'static>(
        &self,
        fd: i32,
        source: &Description<S>,
    ) -> Result<Removal<'_>, Error> {
        self.set.retire_source(fd, ptr::from_ref::<S>(source).cast(), Some(self))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.set.as_core().scan.lock().leases.remove(&self.core);
        // A thread that has found it before, and waits for its release, is woken.
        self.core.release();
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.core.round.word().load(Ordering::Relaxed) & HOLDS != 0;
        f.debug_struct("Lease").field("holds", &holds).finish_non_exhaustive()
    }
}
