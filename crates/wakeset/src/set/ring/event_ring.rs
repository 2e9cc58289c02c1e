//! The event ring as its users see it.

use crate::error::Error;
use crate::events::Event;
use crate::set::deadlines::leader::Minding;
use crate::set::event_poll::handle::EventPoll;
use crate::set::event_poll::pieces::Woken;
use crate::set::ring::ring_core::{MOST_ENTRIES, RingCore};
use crate::sync::time::{Deadline, Timeout};
use core::fmt;

/// A set's events, taken from memory by any number of threads at once: the same events as
/// [`EventPoll::wait`] reports, without its lock.
///
/// A taker that finds events in the ring takes no lock and makes no system call; one that finds it
/// empty refills it from the set, under the set's lock and without a system call too. A thread that
/// is stopped while it takes keeps nothing from the others. What is taken is what holds at
/// that moment: every watch is polled as its event is taken, so what has been drained, changed or
/// removed meanwhile is not reported.
///
/// A call may give fewer events than are ready: no more than the ring has slots, and not what lies
/// after events in it that no longer hold; but it gives none only if nothing is ready.
///
/// Level-triggered watches are reported again as long as they hold, edges once for each change,
/// `ONESHOT` once for each arming. A set with more ready watches than the ring has slots loses
/// none: they wait on the ready list.
///
/// [`EventPoll::wait`] may be used on the same set; each time it puts what is in the ring back in
/// line, so do it seldom. A set in another set works as ever, and a poll of it has the same price.
///
/// [`EventPoll::remove`], and the close of a source, wait for threads that are taking at that
/// moment (not for those that sleep), because these may be about to poll the source. So a
/// [`Source`](crate::Source)'s `poll` must not end sources or remove watches.
///
/// ```
/// use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Timeout};
///
/// let engine = Engine::new();
/// let set = EventPoll::new(&engine)?;
/// let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
/// set.add(5, &counter, Event::new(Events::IN, 42))?;
/// let ring = set.make_ring(64)?;
///
/// assert_eq!(ring.pop(), None);
/// counter.write(3)?;
/// assert_eq!(ring.pop(), Some(Event::new(Events::IN, 42)));
/// assert_eq!(counter.read()?, 3);
/// let mut events = [Event::default(); 8];
/// assert_eq!(ring.wait(&mut events, Timeout::Now)?, 0);
/// # Ok::<(), wakeset::Error>(())
/// ```
pub struct EventRing<'a> {
    pub(in crate::set) set: &'a EventPoll,
    pub(in crate::set) ring: &'a RingCore,
}

impl Clone for EventRing<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for EventRing<'_> {}

impl EventPoll {
    /// The set's event ring, made if it has none, with `entries` slots rounded up to a power of two
    /// (each takes 64 bytes). The ring stays as long as the set, with the size that the first
    /// call has given it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `entries` is 0 or more than 2^20; [`Error::NoMemory`].
    pub fn make_ring(&self, entries: usize) -> Result<EventRing<'_>, Error> {
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(Error::Invalid);
        }
        let ring = self.as_core().make_ring(entries.next_power_of_two())?;
        Ok(EventRing { set: self, ring })
    }

    /// The set's event ring, if [`make_ring`](Self::make_ring) has made one.
    #[inline]
    pub fn ring(&self) -> Option<EventRing<'_>> {
        self.as_core().ring().map(|ring| EventRing { set: self, ring })
    }

    /// Ends the ring; what is in it goes back in line.
    ///
    /// # Safety
    /// No [`EventRing`] of this set is used any more.
    #[doc(hidden)]
    pub unsafe fn end_ring(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.as_core().end_ring() };
    }
}

impl EventRing<'_> {
    /// How many slots it has.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// The addresses of the pins: the locks that a taker holds and a removal waits for.
    #[cfg(wakeset_steps)]
    #[doc(hidden)]
    pub fn pins(&self) -> core::ops::Range<usize> {
        self.ring.pins()
    }

    /// Takes one event; `None` if nothing is ready. Never sleeps for an event and makes no system
    /// call, but for a wake of another thread that sleeps and is needed, and a sleep while
    /// another thread refills the ring.
    #[inline]
    pub fn pop(&self) -> Option<Event> {
        let mut event = [Event::default()];
        (self.take(&mut event) == 1).then_some(event[0])
    }

    /// Takes as many ready events as `events` can hold, as [`pop`](Self::pop) takes one. Returns
    /// how many it took.
    #[inline]
    pub fn take(&self, events: &mut [Event]) -> usize {
        let mut places = events.iter_mut();
        self.take_with(places.len(), |event| {
            if let Some(place) = places.next() {
                *place = event;
            }
        })
    }

    /// [`take`](Self::take) that gives up to `maxevents` events to `report`, which must not call
    /// into a set.
    #[doc(hidden)]
    #[inline]
    pub fn take_with(&self, maxevents: usize, mut report: impl FnMut(Event)) -> usize {
        self.set.as_core().take(self.ring, maxevents, &mut |event, _| report(event))
    }

    /// [`take_with`](Self::take_with) for a caller that passes events on: levels taken from `kept`
    /// on are not polled again. `report` also gets the index of each event in the ring.
    #[inline]
    pub(crate) fn take_keeping(
        &self,
        maxevents: usize,
        kept: u64,
        mut report: impl FnMut(Event, u64),
    ) -> usize {
        self.set.as_core().take_keeping(self.ring, maxevents, kept, &mut report)
    }

    /// From now on any taker may report again what [`take_keeping`](Self::take_keeping) has
    /// reported.
    pub(crate) fn keep_nothing(&self) {
        self.ring.keep_nothing();
    }

    /// Takes events as [`take`](Self::take) does, and waits for one if there is none: epoll_wait(2)
    /// on the ring.
    ///
    /// Returns 0 only when the time is up, never earlier. One event wakes one of the threads that
    /// wait.
    ///
    /// # Errors
    /// As [`EventPoll::wait`]: [`Error::Invalid`] if `events` is empty; [`Error::Interrupted`] if a
    /// signal handler ran while it slept.
    #[inline]
    pub fn wait(&self, events: &mut [Event], timeout: Timeout) -> Result<usize, Error> {
        if events.is_empty() {
            return Err(Error::Invalid);
        }
        let taken = self.take(events);
        if taken != 0 || timeout == Timeout::Now {
            return Ok(taken);
        }
        let deadline = Deadline::of(timeout);
        let _minding = Minding(self.set.as_core());
        loop {
            let taken = self.set.spin(deadline, || true, || self.take(events));
            if taken != 0 {
                return Ok(taken);
            }
            let woken = self.set.sleep_once(|| true, deadline);
            // Whatever ended the sleep: a kick may have come with it, and what it was for must not
            // lie.
            match (self.take(events), woken) {
                (0, Woken::TimedOut) => return Ok(0),
                (0, Woken::Interrupted) => return Err(Error::Interrupted),
                (0, Woken::Kicked) => {}
                (taken, _) => return Ok(taken),
            }
        }
    }
}

impl fmt::Debug for EventRing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRing")
            .field("set", self.set)
            .field("capacity", &self.capacity())
            .finish()
    }
}
