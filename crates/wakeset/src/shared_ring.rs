//! An event ring in memory that is shared with another process: one side writes a set's events there, the other takes them without a call.
//!
//! Neither side trusts the other. Each keeps what it knows in memory of its own: its index, how far the other one's may be, how large the ring is. Of
//! the shared memory it reads the other's index, once for each use, and checks that it lies between what it was and what it can be;
//! the reader reads events as well, which are numbers and nothing else. No address and no length is ever taken from there. So the worst that a
//! peer can do which is hostile, or has crashed, is to stop the flow, or to write nonsense into the events of this one ring.
//!
//! | word | written by | read by |
//! |---|---|---|
//! | `tail`: events written so far | writer | reader, which sleeps on it |
//! | `writer_sleeps` | writer | reader: whether to wake |
//! | `head`: events taken so far | reader | writer, which sleeps on it |
//! | `reader_sleeps` | reader | writer: whether to wake |
//!
//! Both sleeps are publish-then-check: who sleeps says so and looks at the index again; who moves an index looks afterwards whether somebody
//! sleeps.
//!
//! The memory is a memfd(2) whose size is sealed, so that nobody can take it away from under the other.

mod memory;

use crate::error::Error;
use crate::event_poll::{EventPoll, Woken};
use crate::event_ring::EventRing;
use crate::events::{Event, Events};
use crate::ready_list::{LockFree, ReadyList};
use crate::sync::{AtomicU32, AtomicU64, Ordering, SharedFutex, Slept, fence_after_rmw};
use crate::time::{Deadline, Timeout};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use memory::Memory;

/// The most slots of a ring.
const MOST_ENTRIES: u32 = 1 << 20;

/// A line of the cache, and its neighbour, which is fetched with it.
#[repr(C, align(128))]
struct Line {
    index: SharedFutex,
    sleeps: AtomicU32,
}

/// What stands in front of the slots.
#[repr(C)]
struct Header {
    writer: Line,
    reader: Line,
}

/// One event. The bits and the data are stored one by one: only a peer that breaks the rules sees them torn.
#[repr(C)]
struct Slot {
    bits: AtomicU64,
    data: AtomicU64,
}

impl Line {
    /// Moves this side's index, and wakes the other side if it sleeps on it. Release: who sees the index sees what came before.
    fn publish(&self, index: u32, other: &Self) {
        self.index.word().swap(index, ordering!(SeqCst, "shared_index_relaxed"));
        if !mutant!("shared_index_without_fence") {
            fence_after_rmw();
        }
        if other.sleeps.load(Ordering::SeqCst) != 0 {
            self.index.wake();
        }
    }

    /// This side sleeps while the other one's index is `seen`. The futex compares it under the kernel's lock, behind the word that says
    /// that we sleep.
    fn sleep_on(&self, other: &Self, seen: u32, deadline: Option<Deadline>) -> Slept {
        if !mutant!("shared_sleeper_is_silent") {
            self.sleeps.swap(1, Ordering::SeqCst);
        }
        fence_after_rmw();
        let slept = other.index.sleep(seen, deadline);
        self.sleeps.store(0, Ordering::SeqCst);
        slept
    }
}

impl Slot {
    fn store(&self, event: Event) {
        self.data.store(event.data, Ordering::Relaxed);
        self.bits.store(event.events.bits().into(), Ordering::Relaxed);
    }

    fn load(&self) -> Event {
        let bits = self.bits.load(Ordering::Relaxed) as u32;
        Event::new(Events::from_bits_retain(bits), self.data.load(Ordering::Relaxed))
    }
}

/// The side that writes: a set's events, into memory that another process reads.
///
/// Level-triggered watches are reported again when the reader has taken their last event and they still hold, so they do not fill the ring. What has been
/// written cannot be taken back: a removed watch may have an event in the ring still, as it may in an array that a wait has filled.
///
/// Nothing else should take events of the set ([`EventPoll::wait`], [`EventRing::take`]): it would get what the reader is owed.
pub struct RingWriter<'a, R: ReadyList = LockFree> {
    #[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "its sleeps are not modelled"))]
    set: &'a EventPoll<R>,
    ring: EventRing<'a, R>,
    memory: Memory,
    /// Events written.
    tail: u32,
    /// Events taken, as far as the reader has said and it can be true.
    head: u32,
    /// Where in the set's own ring each event was that the reader has not taken.
    places: Box<[u64]>,
}

impl<'a, R: ReadyList> RingWriter<'a, R> {
    /// Shared memory for `entries` events of `set`, rounded up to a power of two. The set gets an event ring of its own (see
    /// [`EventPoll::make_ring`]), which other takers must not use.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `entries` is 0 or more than 2^20; [`Error::NoMemory`]; [`Error::Os`] with the errno of memfd_create(2) (EMFILE, ENFILE),
    /// ftruncate(2) or mmap(2).
    pub fn new(set: &'a EventPoll<R>, entries: u32) -> Result<Self, Error> {
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(Error::Invalid);
        }
        let entries = entries.next_power_of_two();
        let ring = set.make_ring(entries as usize)?;
        let mut places = Vec::new();
        places.try_reserve_exact(entries as usize).map_err(|_| Error::NoMemory)?;
        places.resize(entries as usize, 0);
        let memory = Memory::new(entries)?;
        Ok(Self { set, ring, memory, tail: 0, head: 0, places: places.into_boxed_slice() })
    }

    /// The descriptor to pass to the other process (`SCM_RIGHTS`, or inherited), which opens it with [`RingReader::open`]. It is the writer's, and
    /// closed on exec.
    #[cfg(not(any(loom, shuttle)))]
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    /// The other side, for a model: memory that is shared with a thread only.
    #[cfg(any(loom, shuttle))]
    #[doc(hidden)]
    pub fn reader(&self) -> RingReader {
        RingReader { memory: self.memory.clone(), head: 0 }
    }

    /// How many events it holds.
    pub fn capacity(&self) -> usize {
        self.memory.entries() as usize
    }

    /// Writes what is ready and fits, without waiting; how many.
    ///
    /// # Errors
    /// [`Error::BrokenPeer`] if what the reader says it has taken cannot be; nothing is written then, now or later.
    pub fn pump(&mut self) -> Result<usize, Error> {
        self.look()?;
        let mask = self.memory.entries() - 1;
        // Levels that the reader has not taken are not looked at.
        let is_drained = self.head == self.tail || mutant!("shared_levels_are_not_kept");
        let oldest = if is_drained { u64::MAX } else { self.places[(self.head & mask) as usize] };
        let room = self.memory.entries() - self.tail.wrapping_sub(self.head);
        let (memory, places, tail) = (&self.memory, &mut self.places, &mut self.tail);
        let before = *tail;
        self.ring.take_keeping(room as usize, oldest, |event, place| {
            memory.slot(*tail).store(event);
            places[(*tail & mask) as usize] = place;
            *tail = tail.wrapping_add(1);
        });
        Ok(self.publish(before))
    }

    /// Looks how far the reader is.
    fn look(&mut self) -> Result<(), Error> {
        let head = self.memory.header().reader.index.word().load(Ordering::SeqCst);
        if head.wrapping_sub(self.head) > self.tail.wrapping_sub(self.head) {
            return Err(Error::BrokenPeer);
        }
        self.head = head;
        Ok(())
    }

    /// Shows the reader what has been written behind `before`; how many.
    fn publish(&mut self, before: u32) -> usize {
        let written = self.tail.wrapping_sub(before);
        if written > 0 {
            let header = self.memory.header();
            header.writer.publish(self.tail, &header.reader);
        }
        written as usize
    }

    /// Whether the reader has taken everything. Then levels that were written are the set's again, whoever takes from it.
    ///
    /// # Errors
    /// As [`pump`](Self::pump).
    #[doc(hidden)]
    pub fn is_drained(&mut self) -> Result<bool, Error> {
        self.look()?;
        let is_drained = self.head == self.tail;
        if is_drained {
            self.ring.keep_nothing();
        }
        Ok(is_drained)
    }

    /// Writes events that the caller has of the set, as many as fit; how many.
    ///
    /// # Errors
    /// As [`pump`](Self::pump).
    #[doc(hidden)]
    pub fn write(&mut self, events: impl Iterator<Item = Event>) -> Result<usize, Error> {
        self.look()?;
        let room = self.memory.entries() - self.tail.wrapping_sub(self.head);
        let before = self.tail;
        for event in events.take(room as usize) {
            self.memory.slot(self.tail).store(event);
            self.places[(self.tail & (self.memory.entries() - 1)) as usize] = u64::MAX;
            self.tail = self.tail.wrapping_add(1);
        }
        Ok(self.publish(before))
    }

    /// One sleep until the reader has moved on from where it was last seen.
    #[doc(hidden)]
    pub fn sleep_for_reader(&self, deadline: Option<Deadline>) -> Woken {
        let header = self.memory.header();
        header.writer.sleep_on(&header.reader, self.head, deadline).into()
    }

    /// One sleep until there may be something to write and room for it, while `stay`; whoever makes that false kicks the set.
    #[cfg(not(any(loom, shuttle)))]
    #[doc(hidden)]
    pub fn sleep_once(&self, stay: impl Fn() -> bool, deadline: Option<Deadline>) -> Woken {
        let header = self.memory.header();
        header.writer.sleeps.swap(1, Ordering::SeqCst);
        fence_after_rmw();
        let is_full = self.tail.wrapping_sub(self.head) == self.memory.entries();
        let word = header.reader.index.word();
        let moved = || word.load(Ordering::SeqCst) != self.head;
        // While it is full, only the reader matters; else the set too.
        let ready = || moved() || !stay() || !is_full && self.ring.has_news();
        let slept = self.set.sleep_beside(ready, word, self.head, deadline);
        header.writer.sleeps.store(0, Ordering::SeqCst);
        slept.into()
    }

    /// [`pump`](Self::pump) that waits until there is something to write and room for it. Returns 0 when the time is up.
    ///
    /// # Errors
    /// As [`pump`](Self::pump); [`Error::Interrupted`] if a signal handler ran while it slept.
    #[cfg(not(any(loom, shuttle)))]
    pub fn pump_waiting(&mut self, timeout: Timeout) -> Result<usize, Error> {
        let deadline = Deadline::of(timeout);
        loop {
            let written = self.pump()?;
            if written > 0 || timeout == Timeout::Now {
                return Ok(written);
            }
            match self.sleep_once(|| true, deadline) {
                Woken::Kicked => {}
                Woken::TimedOut => return self.pump(),
                Woken::Interrupted => match self.pump()? {
                    0 => return Err(Error::Interrupted),
                    written => return Ok(written),
                },
            }
        }
    }
}

impl<R: ReadyList> fmt::Debug for RingWriter<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.tail.wrapping_sub(self.head);
        f.debug_struct("RingWriter").field("capacity", &self.capacity()).field("in_flight", &in_flight).finish()
    }
}

/// The side that reads, usually in another process than the set.
pub struct RingReader {
    memory: Memory,
    /// Events taken.
    head: u32,
}

impl RingReader {
    /// Maps the memory behind a descriptor that a [`RingWriter`]'s process has passed on. One reader for a ring; the descriptor may be closed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none of those: no memfd, one that could still shrink, or of no size that a ring has;
    /// [`Error::NoMemory`]; [`Error::Os`].
    ///
    /// # Safety
    /// `fd` is open, and stays so for the call.
    #[cfg(not(any(loom, shuttle)))]
    pub unsafe fn open(fd: i32) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let memory = unsafe { Memory::open(fd) }?;
        let head = memory.header().reader.index.word().load(Ordering::SeqCst);
        Ok(Self { memory, head })
    }

    /// How many events the ring holds.
    pub fn capacity(&self) -> usize {
        self.memory.entries() as usize
    }

    /// Takes events without waiting; how many. Makes no system call unless the writer sleeps.
    ///
    /// # Errors
    /// [`Error::BrokenPeer`] if what the writer says it has written cannot be; nothing is taken then, now or later.
    pub fn take(&mut self, events: &mut [Event]) -> Result<usize, Error> {
        let header = self.memory.header();
        let tail = header.writer.index.word().load(ordering!(SeqCst, "shared_tail_relaxed"));
        let filled = tail.wrapping_sub(self.head);
        if filled > self.memory.entries() {
            return Err(Error::BrokenPeer);
        }
        let n = events.len().min(filled as usize);
        if n == 0 {
            return Ok(0);
        }
        if mutant!("shared_head_before_slots") {
            header.reader.publish(self.head.wrapping_add(n as u32), &header.writer);
        }
        for event in &mut events[..n] {
            *event = self.memory.slot(self.head).load();
            self.head = self.head.wrapping_add(1);
        }
        // The slots have been read.
        header.reader.publish(self.head, &header.writer);
        Ok(n)
    }

    /// Takes events, and waits for one if there is none. Returns 0 when the time is up. A writer that is gone is not noticed: give a limit.
    ///
    /// # Errors
    /// As [`take`](Self::take); [`Error::Invalid`] if `events` is empty; [`Error::Interrupted`] if a signal handler ran while it slept.
    pub fn wait(&mut self, events: &mut [Event], timeout: Timeout) -> Result<usize, Error> {
        if events.is_empty() {
            return Err(Error::Invalid);
        }
        let deadline = Deadline::of(timeout);
        loop {
            let taken = self.take(events)?;
            if taken > 0 || timeout == Timeout::Now {
                return Ok(taken);
            }
            let header = self.memory.header();
            match header.reader.sleep_on(&header.writer, self.head, deadline) {
                Slept::Woken => {}
                Slept::TimedOut => return self.take(events),
                Slept::Interrupted => match self.take(events)? {
                    0 => return Err(Error::Interrupted),
                    taken => return Ok(taken),
                },
            }
        }
    }
}

impl fmt::Debug for RingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
