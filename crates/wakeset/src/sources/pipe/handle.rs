//! A pipe as its owner has it.

use crate::error::Error;
use crate::sources::pipe::chain::{Chain, Piece};
use crate::sources::pipe::nodes::{Nodes, free};
use crate::sources::pipe::room::Room;
use crate::sources::pipe::word::{PAGES, Word};
use crate::sync::blocked::{ALL, Blocked, READERS, WRITERS};
use crate::sync::lock::ScanLock;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use crate::testing::steps::step;
use alloc::alloc::{Layout, alloc};
use core::ptr;

/// How much fits into a pipe or socket, as Linux counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeCapacity {
    /// A pipe or socket of which nobody has asked yet. No write fits before
    /// [`Pipe::set_capacity`].
    Unasked,
    /// A pipe: 16 pages, each filled to its end before the next.
    Pages,
    /// A stream socket: each write is a message, and each message costs the same.
    Messages {
        /// How many messages fit.
        most: u32,
        /// The socket is writable while there are at most this many.
        writable: u32,
        /// A read that leaves at most this many tells the watches of the writing side.
        telling: u32,
    },
}

/// The state of a pipe at one moment, as [`Pipe::state`] has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeState {
    /// How many bytes are in it.
    pub len: u32,
    /// Whether a poll calls it writable.
    pub writable: bool,
    /// How many messages are in it; for [`PipeCapacity::Pages`], the offset of the first byte in
    /// its page.
    pub offset: u32,
    /// Whether it has been sealed. The other fields are then what they were at the seal.
    pub sealed: bool,
    /// Whether the writing end has been closed, or the pipe shut down: a read that finds nothing
    /// has reached the end.
    pub writer_closed: bool,
    /// Whether the reading end has been closed, or the pipe shut down: no write will be taken.
    pub reader_closed: bool,
}

/// What a read took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes.
    pub n: usize,
    /// Whether the writing side's watches are to be told.
    pub made_room: bool,
}

/// One direction of a pipe or stream socket pair. It owns no wait queue: each end of a pair has its
/// own, and is its owner's to wake.
///
/// A write takes no lock; nor does a read, unless different bytes are in the pipe. None enters the
/// kernel unless a reader or writer sleeps.
#[doc(alias = "pipe")]
#[derive(Debug)]
pub struct Pipe {
    pub(in crate::sources::pipe) word: AtomicU64,
    /// Readers and writers that sleep.
    pub(in crate::sources::pipe) blocked: Blocked,
    /// A [`Room`].
    room: AtomicU64,
    pub(in crate::sources::pipe) chain: ScanLock<Chain>,
    pub(in crate::sources::pipe) nodes: AtomicPtr<Nodes>,
}

// SAFETY: the nodes are shared through atomics and freed only with the pipe.
unsafe impl Send for Pipe {}
// SAFETY: as above.
unsafe impl Sync for Pipe {}

impl Default for Pipe {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipe {
    /// A sealed pipe of generation 0.
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(Word::empty(0).sealed().0),
            blocked: Blocked::new(),
            room: AtomicU64::new(0),
            chain: ScanLock::new(Chain::default()),
            nodes: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The word if this generation lasts. `ordering` acquires: a caller that finds the pipe sealed
    /// goes on where the bytes are now.
    #[inline(always)]
    pub(in crate::sources::pipe) fn word(
        &self,
        generation: u32,
        ordering: Ordering,
    ) -> Result<Word, Error> {
        let word = Word(self.word.load(ordering));
        if word.is_sealed() || word.generation() != generation {
            return Err(Error::Sealed);
        }
        Ok(word)
    }

    /// SeqCst: it publishes the change before the caller looks for blocked readers (`Blocked`) and
    /// for watches (`wake_watch`). It also releases the nodes pushed, and acquires those taken.
    pub(in crate::sources::pipe) fn change(&self, from: Word, to: Word) -> bool {
        self.word
            .compare_exchange(
                from.0,
                to.0,
                ordering!(SeqCst, "pipe_change_relaxed"),
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// The state of the pipe; `None` if `generation` is not its generation any more.
    #[inline]
    pub fn state(&self, generation: u32) -> Option<PipeState> {
        let word = Word(self.word.load(Ordering::SeqCst));
        (word.generation() == generation).then(|| PipeState {
            len: word.len(),
            writable: match self.room() {
                room if room.is_by_pages() => word.pages() < PAGES,
                room => room.is_writable_with(word.offset()),
            },
            offset: word.offset(),
            sealed: word.is_sealed(),
            writer_closed: word.has_no_writer() || word.is_shut(),
            reader_closed: word.has_no_reader() || word.is_shut(),
        })
    }

    /// Takes everything out for good, and gives it to `carry` in order: from now on every operation
    /// of this generation fails with [`Error::Sealed`]. What it was like shows in
    /// [`state`](Self::state) still. Returns whether this call sealed it. Threads that sleep are
    /// woken by [`wake_sealed`](Self::wake_sealed).
    pub fn seal(&self, generation: u32, mut carry: impl FnMut(Piece<'_>)) -> bool {
        // No reader is at work on bytes of a run, but for one that takes it off the word.
        if let Ok(word) = self.word(generation, Ordering::SeqCst)
            && word.is_run()
            && !mutant!("pipe_seal_without_compare")
            && self.change(word, word.sealed())
        {
            step!(pipe_sealed);
            if word.len() != 0 {
                carry(Piece::Run(word.item(), word.len()));
            }
            return true;
        }
        self.seal_nodes(generation, carry)
    }

    /// [`seal`](Self::seal) of a pipe that has, or had, nodes.
    fn seal_nodes(&self, generation: u32, mut carry: impl FnMut(Piece<'_>)) -> bool {
        // Before the word: a reader at work on the chain hands bytes out before it takes them off
        // the word.
        let mut chain = self.chain.lock();
        let word = loop {
            let Ok(word) = self.word(generation, Ordering::SeqCst) else { return false };
            if mutant!("pipe_seal_without_compare") {
                self.word.store(word.sealed().0, Ordering::SeqCst);
                break word;
            }
            if self.change(word, word.sealed()) {
                break word;
            }
        };
        step!(pipe_sealed);
        if word.is_run() {
            if word.len() != 0 {
                carry(Piece::Run(word.item(), word.len()));
            }
            return true;
        }
        // SAFETY: as in `read_nodes`.
        let Some(nodes) = (unsafe { self.nodes.load(Ordering::Acquire).as_ref() }) else {
            return true;
        };
        chain.append(nodes, word.item());
        chain.empty(nodes, &mut carry);
        true
    }

    /// Wakes the threads that are blocked in a sealed pipe. Returns how many of them slept.
    pub fn wake_sealed(&self) -> usize {
        self.wake_all(mutant!("pipe_seal_without_fence"))
    }

    /// Wakes every thread that is blocked; `weakened` as in [`Blocked::any`].
    pub(in crate::sources::pipe) fn wake_all(&self, weakened: bool) -> usize {
        if !self.blocked.any(weakened) {
            return 0;
        }
        let readers = self.blocked.wake(ALL, READERS);
        if mutant!("pipe_wake_forgets_writers") {
            return readers;
        }
        readers + self.blocked.wake(ALL, WRITERS)
    }

    /// The number of the next generation of a sealed pipe.
    pub fn next_generation(&self) -> u32 {
        (Word(self.word.load(Ordering::SeqCst)).generation() + 1) & Word::GENERATION as u32
    }

    /// Begins the given generation of a sealed pipe, empty.
    pub fn unseal(&self, generation: u32, capacity: PipeCapacity) {
        // A swap: a late answer for the generation before comes before it, or finds it.
        self.room.swap(Room::of(generation, capacity).0, Ordering::Relaxed);
        // Release: with the word goes what has been said of the room.
        self.word.store(Word::empty(generation).0, Ordering::Release);
    }

    /// Whether this generation's room has not been asked for ([`PipeCapacity::Unasked`]).
    pub fn is_unasked(&self, generation: u32) -> bool {
        self.room() == Room::unasked(generation)
    }

    /// The answer for this generation. Of no effect if there is an answer, or another generation.
    pub fn set_capacity(&self, generation: u32, capacity: PipeCapacity) {
        let (unasked, room) = (Room::unasked(generation), Room::of(generation, capacity));
        if mutant!("pipe_room_of_any_generation") {
            return self.room.store(room.0, Ordering::Relaxed);
        }
        let relaxed = Ordering::Relaxed;
        let _ = self.room.compare_exchange(unasked.0, room.0, relaxed, relaxed);
    }

    /// Whether a write finds room in the pipe as it is now.
    fn has_room_after(&self, word: Word) -> bool {
        let room = self.room();
        if room.is_by_pages() { word.pages() < PAGES } else { word.offset() < room.most() }
    }

    #[inline(always)]
    pub(in crate::sources::pipe) fn room(&self) -> Room {
        Room(self.room.load(Ordering::Relaxed))
    }

    /// Repeats a read until it does not block, sleeping in between.
    ///
    /// # Errors
    /// Those of `attempt` but for [`Error::WouldBlock`]; [`Error::Interrupted`].
    #[cold]
    pub fn block_reader<T>(&self, attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        self.blocked.block(|| mutant!("pipe_block_without_fence"), READERS, attempt)
    }

    /// Repeats a write until it does not block, sleeping in between.
    ///
    /// # Errors
    /// Those of `attempt` but for [`Error::WouldBlock`]; [`Error::Interrupted`].
    #[cold]
    pub fn block_writer<T>(&self, attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        self.blocked.block(|| mutant!("pipe_block_without_fence"), WRITERS, attempt)
    }

    /// Wakes a writer that sleeps, if a write or read has left room for it. It wakes the next one:
    /// each write, whatever its length, waits for the same room.
    #[cold]
    pub(in crate::sources::pipe) fn wake_writer(&self, left: Word) {
        if self.has_room_after(left) {
            self.blocked.wake(1, WRITERS);
        }
    }

    /// The nodes, made when first asked for; `None` when there is no memory for them.
    pub(in crate::sources::pipe) fn nodes(&self) -> Option<&Nodes> {
        let mut nodes = self.nodes.load(Ordering::Acquire);
        if nodes.is_null() {
            // SAFETY: the layout is not empty.
            let fresh = unsafe { alloc(Layout::new::<Nodes>()) }.cast::<Nodes>();
            if fresh.is_null() {
                return None;
            }
            // SAFETY: fresh memory of that layout.
            unsafe { Nodes::write_to(fresh) };
            match self.nodes.compare_exchange(
                ptr::null_mut(),
                fresh,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => nodes = fresh,
                Err(first) => {
                    // SAFETY: made above, and nobody has seen it.
                    unsafe { free(fresh) };
                    nodes = first;
                }
            }
        }
        // SAFETY: made above or by another call, and freed only with the pipe.
        Some(unsafe { &*nodes })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let nodes = self.nodes.load(Ordering::Acquire);
        if !nodes.is_null() {
            // SAFETY: nobody uses the pipe any more.
            unsafe { free(nodes) };
        }
    }
}
