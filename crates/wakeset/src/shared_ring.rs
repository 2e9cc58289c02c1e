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

use crate::error::Error;
use crate::event_poll::EventPoll;
use crate::event_ring::EventRing;
use crate::events::{Event, Events};
use crate::ready_list::{LockFree, ReadyList};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Slept, fence_after_rmw};
use crate::time::{Deadline, Timeout};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex::{self, Flags};

/// The most slots of a ring.
const MOST_ENTRIES: u32 = 1 << 20;
/// The slots begin on a page of their own.
const SLOTS_AT: usize = 4096;

/// A line of the cache, and its neighbour, which is fetched with it.
#[repr(C, align(128))]
struct Line {
    index: AtomicU32,
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

/// The memory, as this process has it.
struct Mapping {
    memory: NonNull<u8>,
    entries: u32,
}

// SAFETY: shared memory that is accessed through atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

fn refused(error: Errno) -> Error {
    if error == Errno::NOMEM { Error::NoMemory } else { Error::Os(error.raw_os_error()) }
}

impl Mapping {
    fn length(entries: u32) -> usize {
        SLOTS_AT + entries as usize * size_of::<Slot>()
    }

    /// Maps a file of that length, whose size is sealed.
    fn new(file: BorrowedFd<'_>, entries: u32) -> Result<Self, Error> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(core::ptr::null_mut(), Self::length(entries), access, MapFlags::SHARED, file, 0)
        };
        let memory = NonNull::new(memory.map_err(refused)?.cast()).ok_or(Error::NoMemory)?;
        Ok(Self { memory, entries })
    }

    fn header(&self) -> &Header {
        // SAFETY: in the mapping, which is page-aligned and longer; any bits are a header.
        unsafe { self.memory.cast().as_ref() }
    }

    fn slot(&self, at: u32) -> &Slot {
        let index = (at & (self.entries - 1)) as usize;
        // SAFETY: `entries` is a power of two, ours, and so many slots were mapped; any bits are a slot.
        unsafe { self.memory.byte_add(SLOTS_AT).cast::<Slot>().add(index).as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), Self::length(self.entries)) };
    }
}

/// The side that writes: a set's events, into memory that another process reads.
///
/// Level-triggered watches are reported again when the reader has taken their last event and they still hold, so they do not fill the ring. What has been
/// written cannot be taken back: a removed watch may have an event in the ring still, as it may in an array that a wait has filled.
///
/// Nothing else should take events of the set ([`EventPoll::wait`], [`EventRing::take`]): it would get what the reader is owed.
pub struct RingWriter<'a, R: ReadyList = LockFree> {
    set: &'a EventPoll<R>,
    ring: EventRing<'a, R>,
    file: OwnedFd,
    map: Mapping,
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
        let file = memfd_create(c"wakeset-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(refused)?;
        ftruncate(&file, Mapping::length(entries) as u64).map_err(refused)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(refused)?;
        let map = Mapping::new(file.as_fd(), entries)?;
        Ok(Self { set, ring, file, map, tail: 0, head: 0, places: places.into_boxed_slice() })
    }

    /// The descriptor to pass to the other process (`SCM_RIGHTS`, or inherited), which opens it with [`RingReader::open`]. It is the writer's, and
    /// closed on exec.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// How many events it holds.
    pub fn capacity(&self) -> usize {
        self.map.entries as usize
    }

    /// Writes what is ready and fits, without waiting; how many.
    ///
    /// # Errors
    /// [`Error::BrokenPeer`] if what the reader says it has taken cannot be; nothing is written then, now or later.
    pub fn pump(&mut self) -> Result<usize, Error> {
        let head = self.map.header().reader.index.load(Ordering::SeqCst);
        let taken = head.wrapping_sub(self.head);
        if taken > self.tail.wrapping_sub(self.head) {
            return Err(Error::BrokenPeer);
        }
        self.head = head;
        let mask = self.map.entries - 1;
        // Levels that the reader has not taken are not looked at.
        let oldest = if head == self.tail { u64::MAX } else { self.places[(head & mask) as usize] };
        let room = self.map.entries - self.tail.wrapping_sub(head);
        let (map, places, tail) = (&self.map, &mut self.places, &mut self.tail);
        let before = *tail;
        self.ring.take_keeping(room as usize, oldest, |event, place| {
            let slot = map.slot(*tail);
            slot.data.store(event.data, Ordering::Relaxed);
            slot.bits.store(event.events.bits().into(), Ordering::Relaxed);
            places[(*tail & mask) as usize] = place;
            *tail = tail.wrapping_add(1);
        });
        let written = self.tail.wrapping_sub(before);
        if written > 0 {
            let header = self.map.header();
            // Release: who sees it sees the events.
            header.writer.index.swap(self.tail, Ordering::SeqCst);
            fence_after_rmw();
            if header.reader.sleeps.load(Ordering::SeqCst) != 0 {
                let _ = futex::wake(&header.writer.index, Flags::empty(), 1);
            }
        }
        Ok(written as usize)
    }

    /// [`pump`](Self::pump) that waits until there is something to write and room for it. Returns 0 when the time is up.
    ///
    /// # Errors
    /// As [`pump`](Self::pump); [`Error::Interrupted`] if a signal handler ran while it slept.
    pub fn pump_waiting(&mut self, timeout: Timeout) -> Result<usize, Error> {
        let deadline = Deadline::of(timeout);
        loop {
            let written = self.pump()?;
            if written > 0 || timeout == Timeout::Now {
                return Ok(written);
            }
            let header = self.map.header();
            header.writer.sleeps.swap(1, Ordering::SeqCst);
            fence_after_rmw();
            let is_full = self.tail.wrapping_sub(self.head) == self.map.entries;
            let moved = || header.reader.index.load(Ordering::SeqCst) != self.head;
            // While it is full, only the reader matters; else the set too.
            let slept = self.set.sleep_beside(
                || moved() || !is_full && self.ring.has_news(),
                &header.reader.index,
                self.head,
                deadline,
            );
            header.writer.sleeps.store(0, Ordering::SeqCst);
            match slept {
                Slept::Woken => {}
                Slept::TimedOut => return self.pump(),
                Slept::Interrupted => match self.pump()? {
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
    map: Mapping,
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
    pub unsafe fn open(fd: i32) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let seals = fcntl_get_seals(file).map_err(|_| Error::Invalid)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::Invalid);
        }
        // From here on it does not get shorter.
        let size = fstat(file).map_err(refused)?.st_size;
        let slots = usize::try_from(size).ok().and_then(|size| size.checked_sub(SLOTS_AT)).ok_or(Error::Invalid)?;
        let entries = u32::try_from(slots / size_of::<Slot>()).map_err(|_| Error::Invalid)?;
        if !entries.is_power_of_two() || entries > MOST_ENTRIES || Mapping::length(entries) as i64 != size {
            return Err(Error::Invalid);
        }
        let map = Mapping::new(file, entries)?;
        let head = map.header().reader.index.load(Ordering::SeqCst);
        Ok(Self { map, head })
    }

    /// How many events the ring holds.
    pub fn capacity(&self) -> usize {
        self.map.entries as usize
    }

    /// Takes events without waiting; how many. Makes no system call unless the writer sleeps.
    ///
    /// # Errors
    /// [`Error::BrokenPeer`] if what the writer says it has written cannot be; nothing is taken then, now or later.
    pub fn take(&mut self, events: &mut [Event]) -> Result<usize, Error> {
        let header = self.map.header();
        let tail = header.writer.index.load(Ordering::SeqCst);
        let filled = tail.wrapping_sub(self.head);
        if filled > self.map.entries {
            return Err(Error::BrokenPeer);
        }
        let n = events.len().min(filled as usize);
        if n == 0 {
            return Ok(0);
        }
        for event in &mut events[..n] {
            let slot = self.map.slot(self.head);
            let bits = slot.bits.load(Ordering::Relaxed) as u32;
            *event = Event::new(Events::from_bits_retain(bits), slot.data.load(Ordering::Relaxed));
            self.head = self.head.wrapping_add(1);
        }
        // Release: the slots have been read.
        header.reader.index.swap(self.head, Ordering::SeqCst);
        fence_after_rmw();
        if header.writer.sleeps.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&header.reader.index, Flags::empty(), 1);
        }
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
            let header = self.map.header();
            header.reader.sleeps.swap(1, Ordering::SeqCst);
            // FUTEX_WAIT compares the index under the kernel's lock, behind the word that says that we sleep.
            let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
            let slept = futex::wait_bitset(
                &header.writer.index,
                Flags::empty(),
                self.head,
                Some(&limit),
                core::num::NonZeroU32::MAX,
            );
            header.reader.sleeps.store(0, Ordering::SeqCst);
            match slept {
                Err(Errno::TIMEDOUT) => return self.take(events),
                Err(Errno::INTR) => match self.take(events)? {
                    0 => return Err(Error::Interrupted),
                    taken => return Ok(taken),
                },
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl fmt::Debug for RingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
