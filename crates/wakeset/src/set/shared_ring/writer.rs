//! The side of the shared ring that writes.

use crate::error::Error;
use crate::events::Event;
use crate::set::event_poll::handle::EventPoll;
use crate::set::event_poll::pieces::Woken;
use crate::set::ring::event_ring::EventRing;
use crate::set::shared_ring::layout::MOST_ENTRIES;
use crate::set::shared_ring::memory::Memory;
use crate::sync::Ordering;
use crate::sync::time::Deadline;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The side that writes: a set's events, into memory that another process reads.
///
/// Level-triggered watches are reported again when the reader has taken their last event and they
/// still hold, so they do not fill the ring. What has been written cannot be taken back: a removed
/// watch may have an event in the ring still, as it may in an array that a wait has filled.
///
/// Nothing else should take events of the set ([`EventPoll::wait`], [`EventRing::take`]): it would
/// get what the reader is owed.
pub struct RingWriter<'a> {
    pub(in crate::set) ring: EventRing<'a>,
    pub(in crate::set) memory: Memory,
    /// Events written.
    pub(in crate::set) tail: u32,
    /// Events taken, as far as the reader has said and it can be true.
    pub(in crate::set) head: u32,
    /// Where in the set's own ring each event was that the reader has not taken.
    pub(in crate::set) places: Box<[u64]>,
}

impl<'a> RingWriter<'a> {
    /// Shared memory for `entries` events of `set`, rounded up to a power of two. The set gets an
    /// event ring of its own (see [`EventPoll::make_ring`]), which other takers must not use.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `entries` is 0 or more than 2^20; [`Error::NoMemory`]; [`Error::Os`]
    /// with the errno of memfd_create(2) (EMFILE, ENFILE), ftruncate(2) or mmap(2).
    pub fn new(set: &'a EventPoll, entries: u32) -> Result<Self, Error> {
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(Error::Invalid);
        }
        let entries = entries.next_power_of_two();
        let ring = set.make_ring(entries as usize)?;
        let mut places = Vec::new();
        places.try_reserve_exact(entries as usize).map_err(|_| Error::NoMemory)?;
        places.resize(entries as usize, 0);
        let memory = Memory::new(entries)?;
        Ok(Self { ring, memory, tail: 0, head: 0, places: places.into_boxed_slice() })
    }

    /// How many events it holds.
    pub fn capacity(&self) -> usize {
        self.memory.entries() as usize
    }

    /// Writes what is ready and fits, without waiting; how many.
    ///
    /// # Errors
    /// [`Error::BrokenPeer`] if what the reader says it has taken cannot be; nothing is written
    /// then, now or later.
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

    /// Whether the reader has taken everything. Then levels that were written are the set's again,
    /// whoever takes from it.
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
}

impl fmt::Debug for RingWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.tail.wrapping_sub(self.head);
        f.debug_struct("RingWriter")
            .field("capacity", &self.capacity())
            .field("in_flight", &in_flight)
            .finish()
    }
}
