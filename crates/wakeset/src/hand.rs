//! Who has an event in hand, so that what its data stands for can be freed: a removal that tells.
//!
//! A removal ends the reports of a watch, but a thread may have got one just before, and be about to follow the pointer that it kept in
//! the event's data. `EPOLL_CTL_DISABLE`, proposed to Linux in 2012 and not merged, was to say so for EPOLLONESHOT.
//!
//! An event is **in hand** from its report, which happens under the set's scan lock, until the thread that has the [`Hand`] comes back:
//! waits again, puts it down, or arms that watch again with it. A hand notes what it was given, under that lock; a removal, which
//! has the lock too, looks through the hands. So it is known exactly, for every kind of watch.
//!
//! | `turn` of a hand | means | set by | next |
//! |---|---|---|---|
//! | 4n | empty; what is noted is of no matter | putting down | 4n+1 at the next report |
//! | 4n+1 | holds what is noted | the harvest, scan lock held | 4n+4; 4n+3 if somebody waits |
//! | 4n+3 | the same, and who puts it down wakes those who wait | who waits | 4n+4 |
//!
//! Putting down is one read-modify-write, without the lock, and no system call unless somebody waits.

use crate::counted::Counted;
use crate::error::Error;
use crate::event_poll::EventPoll;
use crate::events::{Event, Events};
use crate::ready_list::{LockFree, ReadyList};
use crate::set::{Kept, Known, SetCore};
use crate::source::{Description, Source};
use crate::sync::{Futex, Ordering, Slept};
use crate::time::{Deadline, Timeout};
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::fmt;
use core::num::NonZeroU32;
use core::ptr;

const EVERY_CLASS: NonZeroU32 = NonZeroU32::MAX;
const HOLDS: u32 = 1;
const AWAITED: u32 = 2;
const ROUND: u32 = 4;

/// A hand as its set knows it.
pub(crate) struct HandCore {
    turn: Futex,
    /// What the current round was given. Guarded by the scan lock of the set.
    held: UnsafeCell<Vec<Known>>,
    /// The next hand of the set. Guarded in the same way.
    next: UnsafeCell<Option<Counted<HandCore>>>,
}

// SAFETY: the cells are touched with the scan lock held only.
unsafe impl Sync for HandCore {}
// SAFETY: as above.
unsafe impl Send for HandCore {}

/// # Safety (of the unsafe methods)
/// The caller holds the scan lock of the set.
impl HandCore {
    fn new() -> Self {
        Self { turn: Futex::new(0), held: UnsafeCell::new(Vec::new()), next: UnsafeCell::new(None) }
    }

    /// Room for one more note; `false` if there is no memory.
    pub(crate) unsafe fn has_room(&self) -> bool {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.held.get() }.try_reserve(1).is_ok()
    }

    /// Notes a report, for which there is room.
    pub(crate) unsafe fn take(&self, known: Known) -> bool {
        // SAFETY: the caller's contract.
        let held = unsafe { &mut *self.held.get() };
        // Only the thread that has the hand changes these bits, and it is here.
        let turn = self.turn.word().load(Ordering::Relaxed);
        if turn & HOLDS == 0 {
            held.clear();
            // Relaxed: who looks for it does so under the lock.
            self.turn.word().store(turn | HOLDS, Ordering::Relaxed);
        }
        if !mutant!("report_is_not_noted") {
            held.push(known);
        }
        true
    }

    /// Forgets a report of this round.
    pub(crate) unsafe fn give_back(&self, known: Known) {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.held.get() }.retain(|held| *held != known);
    }

    /// Whether it holds an event of the watch, and since which turn.
    unsafe fn holds(&self, known: Known) -> Option<u32> {
        // Acquire: what was done with the event, if it has been put down.
        let turn = self.turn.word().load(ordering!(Acquire, "hand_look_relaxed"));
        // SAFETY: the caller's contract.
        (turn & HOLDS != 0 && unsafe { &*self.held.get() }.contains(&known)).then_some(turn)
    }

    fn put_down(&self) {
        let turn = self.turn.word().load(Ordering::Relaxed);
        if turn & HOLDS == 0 {
            return;
        }
        let empty = (turn & !(HOLDS | AWAITED)).wrapping_add(ROUND);
        // Release: what was done with the events comes before.
        let turn = self.turn.word().swap(empty, ordering!(Release, "put_down_relaxed"));
        if turn & AWAITED != 0 {
            self.turn.wake(u32::MAX >> 1, EVERY_CLASS);
        }
    }

    /// Waits until what it held at `turn` is put down; `false` if the time is up before.
    fn wait_past(&self, turn: u32, deadline: Option<Deadline>) -> bool {
        loop {
            // Relaxed: who waits looks through the hands again, under the lock.
            let now = self.turn.word().load(Ordering::Relaxed);
            if now & !AWAITED != turn & !AWAITED {
                return true;
            }
            let awaited = now | AWAITED;
            let marked = now == awaited
                || mutant!("wait_without_mark")
                || self.turn.word().compare_exchange(now, awaited, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            let expected = if mutant!("wait_without_mark") { now } else { awaited };
            if marked && self.turn.sleep(expected, deadline, EVERY_CLASS) == Slept::TimedOut {
                return false;
            }
        }
    }
}

/// The hands of a set; guarded by its scan lock.
pub(crate) struct Hands {
    first: Option<Counted<HandCore>>,
}

impl Hands {
    pub(crate) const fn new() -> Self {
        Self { first: None }
    }

    /// The first hand but `but` that holds an event of the watch, and since when.
    pub(crate) fn holder(&self, known: Known, but: Option<&HandCore>) -> Option<(Counted<HandCore>, u32)> {
        let mut next = &self.first;
        while let Some(hand) = next {
            // SAFETY: whoever has the list holds the scan lock.
            let (turn, after) = unsafe { (hand.holds(known), &*hand.next.get()) };
            if let Some(turn) = turn
                && !but.is_some_and(|but| ptr::eq(but, &**hand))
            {
                return Some((hand.clone(), turn));
            }
            next = after;
        }
        None
    }

    fn insert(&mut self, hand: Counted<HandCore>) {
        // SAFETY: as above.
        unsafe { *hand.next.get() = self.first.take() };
        self.first = Some(hand);
    }

    fn remove(&mut self, hand: &HandCore) {
        let mut place = &mut self.first;
        while let Some(other) = place {
            // SAFETY: as above. Nobody else has a reference into the list.
            let after = unsafe { &mut *other.next.get() };
            if ptr::eq(&raw const **other, hand) {
                let after = after.take();
                *place = after;
                return;
            }
            place = after;
        }
    }
}

impl fmt::Debug for Hands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hands").field("any", &self.first.is_some()).finish()
    }
}

/// A thread's hand for the events of one set: waits through it are known to
/// [`remove_telling`](EventPoll::remove_telling) for as long as their events are in it.
///
/// Each thread that waits has its own. What a wait reports is in hand until the next wait, [`put_down`](Self::put_down), or the hand's
/// end. With [`modify`](Self::modify) an event is given back singly, which is how one-shot watches are armed again.
///
/// # Freeing what the data stands for
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Timeout, Told};
///
/// struct Connection {
///     bell: Description<Counter>,
///     served: AtomicU64,
/// }
///
/// let engine = Engine::new();
/// let set = EventPoll::new(&engine)?;
/// let bell = Description::new(&engine, Counter::new(1, CounterFlags::NONBLOCK));
/// let connection = Box::into_raw(Box::new(Connection { bell: bell.clone(), served: AtomicU64::new(0) }));
/// set.add(5, &bell, Event::new(Events::IN, connection as u64))?;
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut hand = set.hand().unwrap();
///         let mut events = [Event::default(); 8];
///         // Each wait puts down what the one before it gave.
///         while let Ok(n @ 1..) = hand.wait(&mut events, Timeout::from_millis(100)) {
///             for event in &events[..n] {
///                 // SAFETY: not freed before it is out of this hand.
///                 let connection = unsafe { &*(event.data as *const Connection) };
///                 connection.served.fetch_add(1, Ordering::Relaxed);
///                 let _ = connection.bell.read();
///             }
///         }
///     });
///     match set.remove_telling(5, &bell).unwrap() {
///         Told::Free => {}
///         // Another thread is at it. It will come back, and gets no further event of this watch.
///         Told::InHand(holders) => assert!(holders.wait(Timeout::Never)),
///         Told::Disarmed | Told::Unknown => unreachable!("all who wait have a hand"),
///     }
///     // SAFETY: from `into_raw`, out of the set, and in nobody's hand.
///     drop(unsafe { Box::from_raw(connection) });
/// });
/// # Ok::<(), wakeset::Error>(())
/// ```
pub struct Hand<'a, R: ReadyList = LockFree> {
    set: &'a EventPoll<R>,
    core: Counted<HandCore>,
}

impl<R: ReadyList> EventPoll<R> {
    /// A hand to wait with, empty.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn hand(&self) -> Result<Hand<'_, R>, Error> {
        let core = Counted::try_new(HandCore::new())?;
        self.as_core().scan.lock().hands.insert(core.clone());
        Ok(Hand { set: self, core })
    }

    /// [`remove`](Self::remove) that says whether an event of the watch is in somebody's hands: the `EPOLL_CTL_DISABLE` that Linux
    /// never got, and for every kind of watch.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    #[doc(alias = "EPOLL_CTL_DISABLE")]
    pub fn remove_telling<S: Source + 'static>(&self, fd: i32, source: &Description<S>) -> Result<Told<'_>, Error> {
        self.remove_source_telling(fd, ptr::from_ref::<S>(source).cast(), None)
    }

    /// [`remove_telling`](Self::remove_telling) by address; it is only compared.
    #[doc(hidden)]
    pub fn remove_source_telling(
        &self,
        fd: i32,
        source: *const (),
        but: Option<&Hand<'_, R>>,
    ) -> Result<Told<'_>, Error> {
        let but = but.map(|hand| hand.core.clone());
        let set = self.as_core();
        let kept = set.begin_changes().remove_telling(fd, source, but.as_deref())?;
        Ok(match kept {
            Kept::Nowhere => Told::Free,
            Kept::InHand(known) => Told::InHand(Holders { set, known, but }),
            Kept::Disarmed => Told::Disarmed,
            Kept::Unknown => Told::Unknown,
        })
    }
}

impl<R: ReadyList> Hand<'_, R> {
    /// [`EventPoll::wait`], with what it reports in this hand. Puts down what was in it before, also if it fails.
    ///
    /// # Errors
    /// As [`EventPoll::wait`].
    pub fn wait(&mut self, events: &mut [Event], timeout: Timeout) -> Result<usize, Error> {
        if events.is_empty() {
            self.put_down();
            return Err(Error::Invalid);
        }
        let mut n = 0;
        self.wait_with(events.len(), timeout, &mut |event| {
            events[n] = event;
            n += 1;
            true
        })
    }

    /// [`EventPoll::wait_with`] in the same way. An event that `report` does not take is not in hand.
    ///
    /// # Errors
    /// As [`EventPoll::wait_with`].
    pub fn wait_with(
        &mut self,
        room: usize,
        timeout: Timeout,
        report: &mut dyn FnMut(Event) -> bool,
    ) -> Result<usize, Error> {
        self.put_down();
        if room == 0 {
            return Err(Error::Invalid);
        }
        let (set, hand) = (self.set.as_core(), &*self.core);
        self.set.wait_by(timeout, report, |report| set.harvest_into(hand, room, report))
    }

    /// [`EventPoll::harvest`] into this hand.
    #[doc(hidden)]
    #[inline]
    pub fn harvest(&self, room: usize, report: impl FnMut(Event) -> bool) -> usize {
        self.set.as_core().harvest_into(&self.core, room, report)
    }

    /// [`modify`](Self::modify) by address; it is only compared.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    #[doc(hidden)]
    pub fn modify_source(&mut self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        if event.events.contains(Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        let mut changing = self.set.as_core().begin_changes();
        changing.modify_from(&self.core, fd, source, event)?;
        changing.end();
        Ok(())
    }

    /// Says that this thread is done with all its events of this set. Costs one instruction, and a system call only if somebody waits
    /// for it.
    pub fn put_down(&mut self) {
        self.core.put_down();
    }

    /// [`EventPoll::modify`] that gives back the event of that watch, if this hand has one: "I am done with it, report the next".
    ///
    /// # Errors
    /// As [`EventPoll::modify`]; the event stays in hand. [`Error::NotWatched`] says that the watch has been removed.
    pub fn modify<S: Source + 'static>(&mut self, fd: i32, source: &Description<S>, event: Event) -> Result<(), Error> {
        self.modify_source(fd, ptr::from_ref::<S>(source).cast(), event)
    }

    /// [`EventPoll::remove_telling`] by a thread that may have an event of the watch itself: only other hands count.
    ///
    /// # Errors
    /// As [`EventPoll::remove`].
    pub fn remove_telling<S: Source + 'static>(&self, fd: i32, source: &Description<S>) -> Result<Told<'_>, Error> {
        self.set.remove_source_telling(fd, ptr::from_ref::<S>(source).cast(), Some(self))
    }
}

impl<R: ReadyList> Drop for Hand<'_, R> {
    fn drop(&mut self) {
        self.set.as_core().scan.lock().hands.remove(&self.core);
        // Who has found it before and waits is woken.
        self.core.put_down();
    }
}

impl<R: ReadyList> fmt::Debug for Hand<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.core.turn.word().load(Ordering::Relaxed) & HOLDS != 0;
        f.debug_struct("Hand").field("holds", &holds).finish_non_exhaustive()
    }
}

/// Where an event of a watch is that has just been removed. No later wait reports one.
#[derive(Debug)]
#[must_use = "the answer says whether what the data stands for can be freed"]
pub enum Told<'a> {
    /// In nobody's hands: what its data stands for can be freed.
    Free,
    /// In the hands of these; they can be waited for.
    InHand(Holders<'a>),
    /// The watch was one-shot, and somebody who waited without a [`Hand`] was told of it and has not armed it again. That thread
    /// finds out: arming it fails with [`Error::NotWatched`], and then the freeing is its business. Exact as long as only those
    /// arm a watch who have its event.
    Disarmed,
    /// Somebody has waited without a [`Hand`], and the watch was not one-shot all its life: it cannot be said.
    Unknown,
}

/// The hands that have an event of a removed watch.
pub struct Holders<'a> {
    set: &'a SetCore,
    known: Known,
    /// The hand of who asked.
    but: Option<Counted<HandCore>>,
}

impl Holders<'_> {
    fn holder(&self) -> Option<(Counted<HandCore>, u32)> {
        self.set.scan.lock().hands.holder(self.known, self.but.as_deref())
    }

    /// Whether none has one any more. Once yes, it stays so.
    pub fn are_done(&self) -> bool {
        self.holder().is_none()
    }

    /// Waits until none has one any more: each has waited again, put it down, or is gone. `false` if the time is up before.
    ///
    /// Two threads that wait for each other's hands wait for ever: put down first what is in your own.
    pub fn wait(&self, timeout: Timeout) -> bool {
        let deadline = Deadline::of(timeout);
        while let Some((hand, turn)) = self.holder() {
            if timeout == Timeout::Now || !hand.wait_past(turn, deadline) {
                return false;
            }
        }
        true
    }
}

impl fmt::Debug for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holders").field("done", &self.are_done()).finish()
    }
}
