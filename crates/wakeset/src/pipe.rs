//! The pipe: bytes on their way from writers to readers, pipe(7) or one direction of a unix(7) stream, while both ends are open.
//!
//! One word says what is in it, as a counter's does, so a write or a seal is one compare-and-swap, and so is a read in the usual
//! case: the bytes that wake a loop are mostly all the same, and then the word holds them (a *run*). Other bytes stand in *nodes*, a
//! stack that writers push to and that one reader at a time takes whole and reverses.
//!
//! | bits of the word | what |
//! |---|---|
//! | 0–16 | how many bytes are in it |
//! | 17–28 | by pages: where in its page the first of them stands; by messages: how many messages they are |
//! | 29–36 | a run: the byte; nodes: the newest node on the stack, 0 for none (the reader's chain has them all) |
//! | 37 | nodes, not a run |
//! | 38 | sealed: the bytes are elsewhere, and these were the last |
//! | 39–60 | the life: who comes late, from an earlier one, finds another number and is told "sealed" |
//!
//! Only what Linux would hold in the same way is held here. A write for which that cannot be said fails with [`Error::Unfit`], and
//! the pipe's owner carries it elsewhere; so does whoever closes an end.

use crate::error::Error;
use crate::lock::ScanLock;
use crate::steps::step;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Futex, Ordering, Slept, fence, fence_after_rmw};
use alloc::alloc::{Layout, alloc, dealloc};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::num::NonZeroU32;
use core::ptr;

/// A page, as Linux's pipes count.
const PAGE: u32 = 4096;
/// How many pages a pipe holds (`F_GETPIPE_SZ` says 65,536).
const PAGES: u32 = 16;
/// The bytes that a pipe holds at most.
pub const PIPE_CAPACITY: u32 = PAGE * PAGES;
/// The longest write, `PIPE_BUF`: it is one write, or none.
pub const LONGEST_WRITE: usize = PAGE as usize;

/// Words of bytes in a node: with the link a cache line.
#[cfg(not(loom))]
const WORDS: usize = 7;
#[cfg(loom)]
const WORDS: usize = 1;
/// Bytes in a node; a message of a pipe by messages is no longer.
pub const LONGEST_MESSAGE: usize = WORDS * 8;
/// The nodes of one pipe. 0 is no node.
#[cfg(not(any(loom, shuttle)))]
const NODES: usize = 255;
#[cfg(any(loom, shuttle))]
const NODES: usize = 3;

const READERS: NonZeroU32 = NonZeroU32::new(1).unwrap();

/// How Linux counts what is in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A pipe: 16 pages, each filled to its end before the next.
    Pages,
    /// A stream socket: each write is a message, and each message costs the same.
    Messages {
        /// As many fit.
        most: u32,
        /// The socket is writable with as many.
        writable: u32,
        /// A read that leaves no more than these tells the writing side.
        telling: u32,
    },
}

/// The word of a [`Pipe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const LEN: u64 = (1 << 17) - 1;
    const PLACE_SHIFT: u32 = 17;
    const PLACE: u64 = (1 << 12) - 1;
    const ITEM_SHIFT: u32 = 29;
    const NODES: u64 = 1 << 37;
    const SEALED: u64 = 1 << 38;
    const LIFE_SHIFT: u32 = 39;
    const LIFE: u64 = (1 << 22) - 1;

    const fn empty(life: u32) -> Self {
        Self((life as u64 & Self::LIFE) << Self::LIFE_SHIFT)
    }

    const fn life(self) -> u32 {
        (self.0 >> Self::LIFE_SHIFT & Self::LIFE) as u32
    }

    const fn len(self) -> u32 {
        (self.0 & Self::LEN) as u32
    }

    /// Where the first byte stands in its page, or how many messages there are.
    const fn place(self) -> u32 {
        (self.0 >> Self::PLACE_SHIFT & Self::PLACE) as u32
    }

    const fn item(self) -> u8 {
        (self.0 >> Self::ITEM_SHIFT) as u8
    }

    const fn is_run(self) -> bool {
        self.0 & Self::NODES == 0
    }

    const fn is_sealed(self) -> bool {
        self.0 & Self::SEALED != 0
    }

    const fn with(self, len: u32, place: u32) -> Self {
        let kept = self.0 & !(Self::LEN | Self::PLACE << Self::PLACE_SHIFT);
        Self(kept | len as u64 | (place as u64) << Self::PLACE_SHIFT)
    }

    const fn with_item(self, item: u8) -> Self {
        Self(self.0 & !(0xff << Self::ITEM_SHIFT) | (item as u64) << Self::ITEM_SHIFT)
    }

    const fn with_node(self, node: u8) -> Self {
        Self(self.with_item(node).0 | Self::NODES)
    }

    const fn sealed(self) -> Self {
        Self(self.0 | Self::SEALED)
    }

    /// Pages in use.
    const fn pages(self) -> u32 {
        (self.place() + self.len()).div_ceil(PAGE)
    }

    /// Without the first `n` bytes, which were `messages` messages.
    fn without(self, n: u32, messages: u32, by_messages: bool) -> Self {
        let left = self.len() - n;
        if left == 0 {
            return Self::empty(self.life());
        }
        self.with(left, if by_messages { self.place() - messages } else { (self.place() + n) % PAGE })
    }
}

/// Some bytes, or the end of a write.
#[derive(Debug)]
struct Node {
    /// [`Link`].
    link: AtomicU64,
    bytes: [AtomicU64; WORDS],
}

/// | bits | what |
/// |---|---|
/// | 0–7 | on the stack: the node below; in the chain: the one behind |
/// | 8–15 | how many bytes |
/// | 16 | the last node of its write |
/// | 24–31, 32–48 | the run in front of it: the byte, how many |
#[derive(Clone, Copy)]
struct Link(u64);

impl Link {
    fn new(next: u8, len: usize, ends: bool) -> Self {
        Self(u64::from(next) | (len as u64) << 8 | u64::from(ends) << 16)
    }

    fn behind_run(self, byte: u8, n: u32) -> Self {
        Self(self.0 | u64::from(byte) << 24 | u64::from(n) << 32)
    }

    fn with_next(self, next: u8) -> Self {
        Self(self.0 & !0xff | u64::from(next))
    }

    const fn next(self) -> u8 {
        self.0 as u8
    }

    const fn len(self) -> u32 {
        (self.0 >> 8) as u8 as u32
    }

    const fn ends(self) -> bool {
        self.0 & 1 << 16 != 0
    }

    const fn run(self) -> (u8, u32) {
        ((self.0 >> 24) as u8, (self.0 >> 32) as u32)
    }
}

/// The nodes of a pipe; there are none until one is needed. Of their memory only what has been needed at a time is touched: the first free one
/// is taken, and made when it is taken first.
#[derive(Debug)]
struct Nodes {
    /// Those in use. Who sets a bit has the node; who clears it is done with it.
    taken: [AtomicU64; NODES.div_ceil(64)],
    /// Those that have been made. Only who has a node looks at its bit.
    made: [AtomicU64; NODES.div_ceil(64)],
    nodes: [UnsafeCell<MaybeUninit<Node>>; NODES],
}

impl Nodes {
    /// # Safety
    /// `place` is memory for one, and nobody else's.
    unsafe fn write_to(place: *mut Self) {
        // SAFETY: by the caller. A node is valid in any state.
        unsafe {
            (&raw mut (*place).taken).write(core::array::from_fn(|_| AtomicU64::new(0)));
            (&raw mut (*place).made).write(core::array::from_fn(|_| AtomicU64::new(0)));
        }
    }

    /// A node that has been taken, by its number.
    fn node(&self, number: u8) -> Option<&Node> {
        let place = self.nodes.get(usize::from(number).wrapping_sub(1))?;
        // SAFETY: a number comes from `take`, which has made its node, directly or by way of the pipe's word.
        Some(unsafe { (*place.get()).assume_init_ref() })
    }

    /// Makes a node that the caller has taken, if nobody has.
    fn make(&self, number: u8) {
        let index = usize::from(number).wrapping_sub(1);
        let (Some(made), Some(place)) = (self.made.get(index / 64), self.nodes.get(index)) else { return };
        // Relaxed, here and below: whoever had the node has given it back, with release, and that was acquired.
        if made.load(Ordering::Relaxed) & 1 << (index % 64) == 0 {
            let fresh = Node { link: AtomicU64::new(0), bytes: core::array::from_fn(|_| AtomicU64::new(0)) };
            // SAFETY: who has a node is alone with it until its number is in the word, and nobody has had this one.
            unsafe { (*place.get()).write(fresh) };
            made.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }

    fn link(&self, number: u8) -> Link {
        Link(self.node(number).map_or(0, |node| node.link.load(Ordering::Relaxed)))
    }

    fn set_link(&self, number: u8, link: Link) {
        if let Some(node) = self.node(number) {
            node.link.store(link.0, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Option<u8> {
        for (i, taken) in self.taken.iter().enumerate() {
            let mut now = taken.load(Ordering::Relaxed);
            loop {
                let bit = now.trailing_ones();
                let number = i * 64 + bit as usize + 1;
                if bit == 64 || number > NODES {
                    break;
                }
                // Acquire: whoever had the node is done with its bytes.
                match taken.compare_exchange(now, now | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        self.make(number as u8);
                        return Some(number as u8);
                    }
                    Err(other) => now = other,
                }
            }
        }
        None
    }

    fn give(&self, number: u8) {
        let index = usize::from(number).wrapping_sub(1);
        if let Some(taken) = self.taken.get(index / 64) {
            taken.fetch_and(!(1 << (index % 64)), ordering!(Release, "node_given_relaxed"));
        }
    }
}

/// What the reader has taken off the stack, oldest first.
#[derive(Debug, Default)]
struct Chain {
    first: u8,
    last: u8,
    /// What has been read of the first node: bytes of the run in front of it, then its own.
    read_of_run: u32,
    read: u32,
}

/// What a look at a pipe shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Bytes in it.
    pub len: u32,
    /// Whether a poll calls it writable.
    pub writable: bool,
    /// The messages in it; for a pipe by pages, where the first byte stands in its page.
    pub place: u32,
    /// It has been sealed; the rest is what it then was.
    pub sealed: bool,
}

/// What a read took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes.
    pub n: usize,
    /// Whether the writing side's watches are to be told.
    pub made_room: bool,
}

/// What a seal finds, in order.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// The same byte, written so many times.
    Run(u8, u32),
    /// The bytes of one write, or a part of them.
    Bytes {
        /// The bytes.
        bytes: &'a [u8],
        /// As many were in front of them and have been read.
        read: usize,
    },
}

/// One direction of a pipe or stream socket pair. It owns no wait queue: each end of a pair has its own, and is its owner's to wake.
///
/// A write takes no lock; nor does a read, unless different bytes are in the pipe. None enters the kernel unless somebody sleeps.
#[doc(alias = "pipe")]
#[derive(Debug)]
pub struct Pipe {
    word: AtomicU64,
    /// Readers that sleep.
    blocked: AtomicU32,
    /// [`Room::Messages`]; `most` is 0 for a pipe by pages.
    most: AtomicU32,
    writable: AtomicU32,
    telling: AtomicU32,
    /// What they sleep on.
    turn: Futex,
    chain: ScanLock<Chain>,
    nodes: AtomicPtr<Nodes>,
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
    /// A sealed pipe of life 0.
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(Word::empty(0).sealed().0),
            blocked: AtomicU32::new(0),
            most: AtomicU32::new(0),
            writable: AtomicU32::new(0),
            telling: AtomicU32::new(0),
            turn: Futex::new(0),
            chain: ScanLock::new(Chain::default()),
            nodes: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The word if this life lasts.
    #[inline(always)]
    fn word(&self, life: u32, ordering: Ordering) -> Result<Word, Error> {
        let word = Word(self.word.load(ordering));
        if word.is_sealed() || word.life() != life {
            return Err(self.sealed());
        }
        Ok(word)
    }

    /// What the mover has said before the seal, of where to look instead, is to be seen by whoever has found it sealed.
    #[cold]
    fn sealed(&self) -> Error {
        if !mutant!("pipe_sealed_unfenced") {
            fence(Ordering::Acquire);
        }
        Error::Sealed
    }

    /// SeqCst: the change of publish-then-check with a harvester (see `wake_watch`) and a sleeper (see `block_reader`); release of the
    /// nodes pushed, acquire of those taken.
    fn change(&self, from: Word, to: Word) -> bool {
        self.word.compare_exchange(from.0, to.0, ordering!(SeqCst, "pipe_change_relaxed"), Ordering::Relaxed).is_ok()
    }

    /// The word with `n` more bytes, if Linux's has room for them.
    #[inline(always)]
    fn with_more(&self, word: Word, n: u32) -> Result<Word, Error> {
        let most = self.most.load(Ordering::Relaxed);
        if most != 0 {
            return match word.place() {
                messages if messages >= most => Err(Error::WouldBlock),
                messages if messages >= Word::PLACE as u32 => Err(Error::Unfit),
                messages => Ok(word.with(word.len() + n, messages + 1)),
            };
        }
        // A write goes on in the last page if it fits there in whole; else it begins a page, of which there may be none.
        let filled = (word.place() + word.len()) % PAGE;
        if word.len() != 0 && (filled == 0 || filled + n > PAGE) {
            if word.pages() >= PAGES {
                return Err(Error::WouldBlock);
            }
            if filled != 0 {
                // The last page keeps a gap.
                return Err(Error::Unfit);
            }
        }
        Ok(word.with(word.len() + n, word.place()))
    }

    /// Puts bytes in, all or none.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if Linux's would; [`Error::Sealed`], also if `life` is over; [`Error::Unfit`] if they cannot be held here.
    pub fn try_write(&self, life: u32, bytes: &[u8]) -> Result<(), Error> {
        let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
        // A run may be several writes, or one: only messages must be told apart.
        if rest.is_empty() || self.is_run_by_pages(*first, rest) {
            match self.try_write_run(life, *first, bytes.len() as u32) {
                Err(Error::Unfit) => {}
                done => return done,
            }
        }
        self.write_nodes(life, bytes)
    }

    /// [`try_write`](Self::try_write) of one byte, without memory being made for it.
    ///
    /// # Errors
    /// As those, and [`Error::Unfit`] if that takes memory.
    #[inline(always)]
    pub fn try_write_byte(&self, life: u32, byte: u8) -> Result<(), Error> {
        self.try_write_run(life, byte, 1)
    }

    #[inline(always)]
    fn try_write_run(&self, life: u32, byte: u8, n: u32) -> Result<(), Error> {
        loop {
            let word = self.word(life, Ordering::Relaxed)?;
            if !word.is_run() || word.len() != 0 && word.item() != byte {
                return Err(Error::Unfit);
            }
            let more = self.with_more(word, n)?.with_item(byte);
            step!(pipe_before_write);
            if self.change(word, more) {
                self.told_readers();
                return Ok(());
            }
        }
    }

    #[cold]
    fn is_run_by_pages(&self, first: u8, rest: &[u8]) -> bool {
        self.most.load(Ordering::Relaxed) == 0 && rest.len() < LONGEST_WRITE && rest.iter().all(|byte| *byte == first)
    }

    #[cold]
    fn write_nodes(&self, life: u32, bytes: &[u8]) -> Result<(), Error> {
        let most = if self.most.load(Ordering::Relaxed) != 0 { LONGEST_MESSAGE } else { LONGEST_WRITE };
        if bytes.len() > most {
            return Err(Error::Unfit);
        }
        if mutant!("pipe_write_in_parts") && bytes.len() > LONGEST_MESSAGE {
            return bytes.chunks(LONGEST_MESSAGE).try_for_each(|part| self.write_nodes(life, part));
        }
        let nodes = self.nodes().ok_or(Error::Unfit)?;
        // Linked already, the newest first; `lowest` will lie on what is there.
        let (mut newest, mut lowest) = (0, 0);
        let give_back = |mut number: u8| {
            while number != 0 {
                let next = nodes.link(number).next();
                nodes.give(number);
                number = next;
            }
        };
        let ends = bytes.len().div_ceil(LONGEST_MESSAGE) - 1;
        for (i, part) in bytes.chunks(LONGEST_MESSAGE).enumerate() {
            let Some(number) = nodes.take() else {
                give_back(newest);
                return Err(Error::Unfit);
            };
            let node = nodes.node(number).ok_or(Error::Unfit)?;
            for (place, eight) in node.bytes.iter().zip(part.chunks(8)) {
                let mut word = [0; 8];
                word[..eight.len()].copy_from_slice(eight);
                place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
            nodes.set_link(number, Link::new(newest, part.len(), i == ends));
            if newest == 0 {
                lowest = number;
            }
            newest = number;
        }
        let link = nodes.link(lowest);
        let written = loop {
            let more = self
                .word(life, Ordering::Relaxed)
                .and_then(|word| Ok((word, self.with_more(word, bytes.len() as u32)?)));
            let (word, more) = match more {
                Ok(words) => words,
                Err(error) => break Err(error),
            };
            let below = match word.is_run() {
                true if word.len() != 0 => link.behind_run(word.item(), word.len()),
                true => link,
                false => link.with_next(word.item()),
            };
            nodes.set_link(lowest, below);
            step!(pipe_before_push);
            if self.change(word, more.with_node(newest)) {
                break Ok(());
            }
        };
        match written {
            Ok(()) => self.told_readers(),
            Err(_) => {
                nodes.set_link(lowest, link);
                give_back(newest);
            }
        }
        written
    }

    /// Behind a write: a reader that sleeps.
    #[inline(always)]
    fn told_readers(&self) {
        step!(pipe_written);
        if !mutant!("pipe_write_without_fence") {
            fence_after_rmw();
        }
        if self.blocked.load(Ordering::SeqCst) != 0 {
            self.wake_blocked(1);
        }
    }

    /// Takes up to `most` bytes out and gives them to `sink`, in order and in one or more pieces. `sink` may say that it has no place for
    /// them; then none is taken if that can be helped.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if it is empty; [`Error::Sealed`], also if `life` is over; [`Error::Unfit`] if `sink` refuses.
    #[inline(always)]
    pub fn try_read(&self, life: u32, most: usize, mut sink: impl FnMut(&[u8]) -> bool) -> Result<Taken, Error> {
        loop {
            let word = self.word(life, Ordering::SeqCst)?;
            if word.len() == 0 || most == 0 {
                return Err(Error::WouldBlock);
            }
            if !word.is_run() {
                match self.read_nodes(life, most, &mut sink) {
                    None => continue,
                    Some(taken) => return taken,
                }
            }
            let n = word.len().min(u32::try_from(most).unwrap_or(u32::MAX));
            let by_messages = self.most.load(Ordering::Relaxed) != 0;
            let left = word.without(n, n, by_messages);
            step!(pipe_before_read);
            if self.change(word, left) {
                self.taken(left);
                let filled = give_run(word.item(), n, &mut sink);
                return match filled {
                    true => Ok(Taken { n: n as usize, made_room: self.made_room(word, left, true) }),
                    // Gone: whoever gives memory that it takes away meanwhile gets what it gets.
                    false => Err(Error::Unfit),
                };
            }
        }
    }

    /// Whether a read that left `after` of `before` tells the writing side. `freed`: at least one message is read to its end.
    fn made_room(&self, before: Word, after: Word, freed: bool) -> bool {
        if self.most.load(Ordering::Relaxed) != 0 {
            return freed && after.place() <= self.telling.load(Ordering::Relaxed);
        }
        before.pages() >= PAGES && after.pages() < PAGES
    }

    /// Behind a read: what it has left is the next reader's, whom the write may not have woken.
    fn taken(&self, left: Word) {
        step!(pipe_read);
        if left.len() != 0 && !mutant!("pipe_read_wakes_no_reader") {
            fence_after_rmw();
            if self.blocked.load(Ordering::SeqCst) != 0 {
                self.wake_blocked(1);
            }
        }
    }

    /// `None`: they are no nodes any more.
    #[cold]
    #[inline(never)]
    fn read_nodes(&self, life: u32, most: usize, sink: &mut dyn FnMut(&[u8]) -> bool) -> Option<Result<Taken, Error>> {
        let mut chain = self.chain.lock();
        // SAFETY: somebody has pushed nodes, so they are there; they go with the pipe.
        let nodes = unsafe { self.nodes.load(Ordering::Acquire).as_ref() };
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let mut done = chain.begin();
        loop {
            let word = match self.word(life, Ordering::SeqCst) {
                Ok(word) => word,
                Err(error) => return Some(Err(error)),
            };
            let (false, Some(nodes)) = (word.is_run(), nodes) else { return None };
            if word.item() != 0 && done.bytes < most {
                step!(pipe_before_take);
                if !self.change(word, word.with_node(0)) {
                    continue;
                }
                let appended = chain.append(nodes, word.item());
                if done.number == 0 {
                    done.number = appended;
                }
            }
            if done.bytes == 0 {
                done = chain.begin();
            }
            if !done.go_on(nodes, most, sink) {
                return Some(Err(Error::Unfit));
            }
            // What came meanwhile is read as well, as long as there is room.
            let word = match self.word(life, Ordering::SeqCst) {
                Ok(word) if word.item() != 0 && done.bytes < most => continue,
                Ok(word) => word,
                Err(error) => return Some(Err(error)),
            };
            let by_messages = self.most.load(Ordering::Relaxed) != 0;
            let left = word.without(done.bytes, done.messages, by_messages);
            step!(pipe_before_read);
            if self.change(word, left) {
                chain.drop_to(nodes, &done);
                drop(chain);
                self.taken(left);
                let made_room = self.made_room(word, left, done.messages != 0);
                return Some(Ok(Taken { n: done.bytes as usize, made_room }));
            }
        }
    }

    /// What is in it; `None` once `life` is over.
    #[inline]
    pub fn look(&self, life: u32) -> Option<Look> {
        let word = Word(self.word.load(Ordering::SeqCst));
        (word.life() == life).then(|| Look {
            len: word.len(),
            writable: match self.most.load(Ordering::Relaxed) {
                0 => word.pages() < PAGES,
                _ => word.place() <= self.writable.load(Ordering::Relaxed),
            },
            place: word.place(),
            sealed: word.is_sealed(),
        })
    }

    /// Takes everything out for good, and gives it to `carry` in order: from now on every operation of this life fails with [`Error::Sealed`].
    /// What it was like shows in [`look`](Self::look) still. Whether it was this call that did. Who sleeps is woken by
    /// [`wake_sealed`](Self::wake_sealed).
    pub fn seal(&self, life: u32, mut carry: impl FnMut(Piece<'_>)) -> bool {
        let mut chain = self.chain.lock();
        let word = loop {
            let Ok(word) = self.word(life, Ordering::SeqCst) else { return false };
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
        let Some(nodes) = (unsafe { self.nodes.load(Ordering::Acquire).as_ref() }) else { return true };
        chain.append(nodes, word.item());
        chain.empty(nodes, &mut carry);
        true
    }

    /// Wakes who is blocked in a sealed pipe.
    pub fn wake_sealed(&self) {
        if !mutant!("pipe_seal_without_fence") {
            fence_after_rmw();
        }
        if self.blocked.load(Ordering::SeqCst) != 0 {
            self.wake_blocked(u32::MAX >> 1);
        }
    }

    /// The number of the next life of a sealed pipe.
    pub fn next_life(&self) -> u32 {
        (Word(self.word.load(Ordering::SeqCst)).life() + 1) & Word::LIFE as u32
    }

    /// Begins another life of a sealed pipe, empty.
    pub fn unseal(&self, life: u32, room: Room) {
        let (most, writable, telling) = match room {
            Room::Pages => (0, 0, 0),
            Room::Messages { most, writable, telling } => (most.max(1), writable, telling),
        };
        self.most.store(most, Ordering::Relaxed);
        self.writable.store(writable, Ordering::Relaxed);
        self.telling.store(telling, Ordering::Relaxed);
        self.word.store(Word::empty(life).0, Ordering::SeqCst);
    }

    #[cold]
    fn wake_blocked(&self, n: u32) {
        step!(blocked_before_turn);
        self.turn.word().fetch_add(1, Ordering::SeqCst);
        step!(blocked_turned);
        self.turn.wake(n, READERS);
        step!(blocked_woken);
    }

    /// Repeats a read until it does not block, sleeping in between.
    ///
    /// # Errors
    /// Those of `attempt` but for [`Error::WouldBlock`]; [`Error::Interrupted`].
    #[cold]
    pub fn block_reader<T>(&self, attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            // Before the attempt: a change after it changes the word, and the sleep does not begin.
            let turn = self.turn.word().load(Ordering::SeqCst);
            if !mutant!("pipe_block_without_fence") {
                fence_after_rmw();
            }
            step!(block_looked);
            match attempt() {
                Err(Error::WouldBlock) => {}
                done => break done,
            }
            step!(block_before_sleep);
            if self.turn.sleep_restarting(turn, READERS) == Slept::Interrupted {
                break Err(Error::Interrupted);
            }
        };
        self.blocked.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// The nodes, made when first asked for; `None` when there is no memory for them.
    fn nodes(&self) -> Option<&Nodes> {
        let mut nodes = self.nodes.load(Ordering::Acquire);
        if nodes.is_null() {
            // SAFETY: the layout is not empty.
            let fresh = unsafe { alloc(Layout::new::<Nodes>()) }.cast::<Nodes>();
            if fresh.is_null() {
                return None;
            }
            // SAFETY: fresh memory of that layout.
            unsafe { Nodes::write_to(fresh) };
            match self.nodes.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
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

impl Drop for Nodes {
    fn drop(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let made = self.made.get(index / 64).map_or(0, |made| made.load(Ordering::Relaxed));
            if made & 1 << (index % 64) != 0 {
                // SAFETY: made, and used by nobody any more.
                unsafe { node.get_mut().assume_init_drop() };
            }
        }
    }
}

/// # Safety
/// Nobody uses it any more.
unsafe fn free(nodes: *mut Nodes) {
    // SAFETY: by the caller; `nodes` made it with this layout.
    unsafe {
        ptr::drop_in_place(nodes);
        dealloc(nodes.cast(), Layout::new::<Nodes>());
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

fn give_run(byte: u8, n: u32, sink: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    if n == 1 {
        return sink(&[byte]);
    }
    let run = [byte; 256];
    let mut left = n as usize;
    while left > 0 {
        let part = left.min(run.len());
        if !sink(run.get(..part).unwrap_or(&[])) {
            return false;
        }
        left -= part;
    }
    true
}

/// How far a read has come in the chain.
struct Cursor {
    /// The node it stands in; 0: at the end.
    number: u8,
    read_of_run: u32,
    read: u32,
    /// Bytes so far, and messages that ended with them.
    bytes: u32,
    messages: u32,
}

impl Cursor {
    /// Goes on to `most` bytes, or to the end; whether `sink` took them all.
    fn go_on(&mut self, nodes: &Nodes, most: u32, sink: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        while self.number != 0 && self.bytes < most {
            let link = nodes.link(self.number);
            let (byte, run) = link.run();
            let part = (run - self.read_of_run).min(most - self.bytes);
            if part != 0 {
                if !give_run(byte, part, sink) {
                    return false;
                }
                self.read_of_run += part;
                self.bytes += part;
                // By messages, each byte of a run is one.
                self.messages += part;
            }
            let part = (link.len() - self.read).min(most - self.bytes);
            if part != 0 {
                let bytes = bytes_of(nodes, self.number);
                if !sink(bytes.get(self.read as usize..(self.read + part) as usize).unwrap_or(&[])) {
                    return false;
                }
                self.read += part;
                self.bytes += part;
            }
            if self.read == link.len() {
                self.messages += u32::from(link.ends());
                (self.number, self.read_of_run, self.read) = (link.next(), 0, 0);
            }
        }
        true
    }
}

fn bytes_of(nodes: &Nodes, number: u8) -> [u8; LONGEST_MESSAGE] {
    let mut bytes = [0; LONGEST_MESSAGE];
    if let Some(node) = nodes.node(number) {
        for (place, word) in bytes.chunks_exact_mut(8).zip(&node.bytes) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
    bytes
}

impl Chain {
    /// A read of what is in it so far.
    fn begin(&self) -> Cursor {
        Cursor { number: self.first, read_of_run: self.read_of_run, read: self.read, bytes: 0, messages: 0 }
    }

    /// Puts a stack behind the chain, turned round; its oldest node.
    fn append(&mut self, nodes: &Nodes, newest: u8) -> u8 {
        let (mut number, mut behind) = (newest, 0);
        while number != 0 {
            let link = nodes.link(number);
            nodes.set_link(number, link.with_next(behind));
            behind = number;
            number = link.next();
        }
        match nodes.node(self.last) {
            Some(_) => nodes.set_link(self.last, nodes.link(self.last).with_next(behind)),
            None => self.first = behind,
        }
        if newest != 0 {
            self.last = newest;
        }
        behind
    }

    /// Gives back what a read has left behind.
    fn drop_to(&mut self, nodes: &Nodes, done: &Cursor) {
        while self.first != 0 && self.first != done.number {
            let next = nodes.link(self.first).next();
            nodes.give(self.first);
            self.first = next;
        }
        if self.first == 0 {
            self.last = 0;
        }
        (self.read_of_run, self.read) = (done.read_of_run, done.read);
    }

    /// Gives everything to `carry`, and the nodes back.
    fn empty(&mut self, nodes: &Nodes, carry: &mut dyn FnMut(Piece<'_>)) {
        while self.first != 0 {
            let link = nodes.link(self.first);
            let (byte, run) = link.run();
            if run > self.read_of_run {
                carry(Piece::Run(byte, run - self.read_of_run));
            }
            let bytes = bytes_of(nodes, self.first);
            let (read, len) = (self.read as usize, link.len() as usize);
            carry(Piece::Bytes { bytes: bytes.get(read..len).unwrap_or(&[]), read });
            nodes.give(self.first);
            *self = Self { first: link.next(), last: self.last, ..Self::default() };
        }
        *self = Self::default();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn pipe(room: Room) -> (Pipe, u32) {
        let pipe = Pipe::new();
        let life = pipe.next_life();
        pipe.unseal(life, room);
        (pipe, life)
    }

    fn read(pipe: &Pipe, life: u32, most: usize) -> Result<(Vec<u8>, bool), Error> {
        let mut bytes = Vec::new();
        let taken = pipe.try_read(life, most, |part| {
            bytes.extend_from_slice(part);
            true
        })?;
        assert_eq!(taken.n, bytes.len());
        Ok((bytes, taken.made_room))
    }

    fn sealed(pipe: &Pipe, life: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(pipe.seal(life, |piece| match piece {
            Piece::Run(byte, n) => bytes.extend((0..n).map(|_| byte)),
            Piece::Bytes { bytes: more, .. } => bytes.extend_from_slice(more),
        }));
        bytes
    }

    const FEW: Room = Room::Messages { most: 5, writable: 2, telling: 1 };

    /// What a queue of bytes would do, driven by a simple generator.
    #[test]
    fn bytes_come_out_in_order() {
        let mut seed = 1_u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let (pipe, mut life) = pipe(Room::Pages);
        let mut model = std::collections::VecDeque::new();
        let mut next = 0_u8;
        for _ in 0..200_000 {
            match random(20) {
                0..9 => {
                    let len = [1, 1, 1, 2, 8, 57, 300][random(7) as usize];
                    next = next.wrapping_add(random(2) as u8);
                    let bytes: Vec<u8> = (0..len).map(|i| next.wrapping_add(random(3) as u8 * (i as u8 & 1))).collect();
                    match pipe.try_write(life, &bytes) {
                        Ok(()) => model.extend(bytes),
                        Err(Error::Unfit | Error::WouldBlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                9..19 => {
                    let most = 1 + random(130) as usize;
                    let expected: Vec<u8> = model.iter().copied().take(most).collect();
                    match read(&pipe, life, most) {
                        Ok((bytes, _)) => assert_eq!(bytes, expected),
                        Err(error) => assert_eq!((error, expected.len()), (Error::WouldBlock, 0)),
                    }
                    model.drain(..expected.len());
                }
                _ if random(50) == 0 => {
                    assert_eq!(sealed(&pipe, life), model.drain(..).collect::<Vec<u8>>());
                    assert_eq!(pipe.try_write(life, b"x"), Err(Error::Sealed));
                    life = pipe.next_life();
                    pipe.unseal(life, Room::Pages);
                    assert_eq!(pipe.try_write(life.wrapping_sub(1), b"x"), Err(Error::Sealed), "an earlier life");
                }
                _ => {}
            }
            assert_eq!(pipe.look(life).map(|look| look.len as usize), Some(model.len()));
        }
        // Every node has come back.
        let _ = sealed(&pipe, life);
        assert!(pipe.nodes().unwrap().taken.iter().all(|taken| taken.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn holds_sixteen_pages_of_single_bytes() {
        let (pipe, life) = pipe(Room::Pages);
        let writable = |pipe: &Pipe| pipe.look(life).unwrap().writable;
        for i in 0..PIPE_CAPACITY {
            assert_eq!(writable(&pipe), i <= PIPE_CAPACITY - PAGE, "{i}");
            assert_eq!(pipe.try_write(life, b"x"), Ok(()));
        }
        assert_eq!(pipe.try_write(life, b"x"), Err(Error::WouldBlock));
        assert_eq!(pipe.try_write(life, b"y"), Err(Error::WouldBlock));
        assert_eq!(read(&pipe, life, 4095).map(|(bytes, room)| (bytes.len(), room)), Ok((4095, false)));
        assert_eq!(pipe.try_write(life, b"x"), Err(Error::WouldBlock));
        assert_eq!(read(&pipe, life, 1).map(|(bytes, room)| (bytes.len(), room)), Ok((1, true)));
        assert_eq!(pipe.try_write(life, &[b'x'; 4096]), Ok(()));
        assert_eq!(pipe.try_write(life, b"x"), Err(Error::WouldBlock));
        let (bytes, room) = read(&pipe, life, usize::MAX).unwrap();
        assert_eq!((bytes.len(), room), (PIPE_CAPACITY as usize, true));
    }

    /// A write that leaves a gap at the end of a page is not held here.
    #[test]
    fn what_would_leave_a_gap_is_unfit() {
        let (pipe, life) = pipe(Room::Pages);
        for _ in 0..40 {
            assert_eq!(pipe.try_write(life, &[7; 100]), Ok(()));
        }
        assert_eq!(pipe.try_write(life, &[7; 100]), Err(Error::Unfit));
        assert_eq!(pipe.try_write(life, &[7; 96]), Ok(()));
        assert_eq!(pipe.try_write(life, &[7; 100]), Ok(()));
        assert_eq!(pipe.try_write(life, &[7; 4097]), Err(Error::Unfit));
    }

    #[test]
    fn messages_count_until_their_last_byte_is_read() {
        let (pipe, life) = pipe(FEW);
        let look = |pipe: &Pipe| pipe.look(life).map(|look| (look.len, look.place, look.writable)).unwrap();
        assert_eq!(pipe.try_write(life, b"a"), Ok(()));
        assert_eq!(pipe.try_write(life, b"a"), Ok(()));
        assert_eq!(pipe.try_write(life, b"bcd"), Ok(()));
        assert_eq!(look(&pipe), (5, 3, false));
        assert_eq!(pipe.try_write(life, b"e"), Ok(()));
        assert_eq!(pipe.try_write(life, b"e"), Ok(()));
        assert_eq!(pipe.try_write(life, b"e"), Err(Error::WouldBlock));
        assert_eq!(read(&pipe, life, 3), Ok((b"aab".to_vec(), false)));
        assert_eq!(look(&pipe), (4, 3, false));
        assert_eq!(read(&pipe, life, 1), Ok((b"c".to_vec(), false)));
        assert_eq!(look(&pipe), (3, 3, false));
        assert_eq!(read(&pipe, life, 1), Ok((b"d".to_vec(), false)));
        assert_eq!(look(&pipe), (2, 2, true));
        assert_eq!(read(&pipe, life, 1), Ok((b"e".to_vec(), true)));
        assert_eq!(read(&pipe, life, 9), Ok((b"e".to_vec(), true)));
    }

    /// What a seal says of a message that is half read, so that it can be made again elsewhere.
    #[test]
    fn a_seal_tells_the_messages_apart() {
        let (pipe, life) = pipe(FEW);
        for message in [&b"abcd"[..], b"e", b"f"] {
            pipe.try_write(life, message).unwrap();
        }
        assert_eq!(read(&pipe, life, 2), Ok((b"ab".to_vec(), false)));
        let mut pieces = Vec::new();
        pipe.seal(life, |piece| match piece {
            Piece::Run(byte, n) => panic!("{n} of {byte}"),
            Piece::Bytes { bytes, read } => pieces.push((bytes.to_vec(), read)),
        });
        assert_eq!(pieces, [(b"cd".to_vec(), 2), (b"e".to_vec(), 0), (b"f".to_vec(), 0)]);
        assert_eq!(pipe.look(life).map(|look| (look.len, look.place, look.sealed)), Some((4, 3, true)));
    }

    /// A read whose memory is not there takes nothing.
    #[test]
    fn a_refused_read_takes_nothing() {
        let (pipe, life) = pipe(Room::Pages);
        pipe.try_write(life, b"abc").unwrap();
        assert_eq!(pipe.try_read(life, 2, |_| false), Err(Error::Unfit));
        assert_eq!(read(&pipe, life, 9), Ok((b"abc".to_vec(), false)));
    }

    /// A pipe whose memory was all touched at once cost four pages more.
    #[test]
    fn only_nodes_that_were_needed_are_made() {
        let (pipe, life) = pipe(Room::Pages);
        let made = |pipe: &Pipe| -> u32 {
            pipe.nodes().unwrap().made.iter().map(|made| made.load(Ordering::Relaxed).count_ones()).sum()
        };
        assert_eq!(made(&pipe), 0);
        for _ in 0..2 * NODES {
            assert_eq!(pipe.try_write(life, b"ab"), Ok(()));
            assert_eq!(pipe.try_write(life, b"cd"), Ok(()));
            assert_eq!(read(&pipe, life, 9), Ok((b"abcd".to_vec(), false)));
            assert_eq!(made(&pipe), 2);
        }
    }

    #[test]
    fn without_nodes_left_a_write_is_unfit() {
        let (pipe, life) = pipe(Room::Pages);
        let mut written = 0;
        while pipe.try_write(life, &[0, 1]).is_ok() {
            written += 1;
        }
        assert_eq!(written, NODES);
        assert_eq!(read(&pipe, life, 2), Ok(([0, 1].to_vec(), false)));
        assert_eq!(pipe.try_write(life, &[0, 1]), Ok(()));
        assert_eq!(pipe.try_write(life, &[0; LONGEST_MESSAGE + 1]), Err(Error::Unfit));
    }
}
