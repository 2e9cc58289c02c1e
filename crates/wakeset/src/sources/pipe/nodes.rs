//! The nodes of a pipe: memory for bytes that the pipe's word cannot hold.

use crate::sync::{AtomicU64, Ordering};
use alloc::alloc::{Layout, dealloc};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;

/// The 8-byte words of data in a node. With the link, they fill a cache line.
#[cfg(not(loom))]
pub(in crate::sources::pipe) const WORDS: usize = 7;
#[cfg(loom)]
pub(in crate::sources::pipe) const WORDS: usize = 1;
/// How many bytes a node holds.
pub(in crate::sources::pipe) const NODE: usize = WORDS * 8;
/// The longest message of [`PipeCapacity::Messages`](super::PipeCapacity). Linux allocates memory
/// for a message in powers of two, and up to this length the same for each.
pub const LONGEST_MESSAGE: usize = if cfg!(loom) { 2 * NODE } else { 192 };
/// How many nodes one pipe has. They are numbered from 1; the number 0 means no node.
#[cfg(not(any(loom, shuttle)))]
pub(in crate::sources::pipe) const NODES: usize = 255;
#[cfg(any(loom, shuttle))]
pub(in crate::sources::pipe) const NODES: usize = 3;

/// Up to [`NODE`] bytes of one write.
#[derive(Debug)]
pub(in crate::sources::pipe) struct Node {
    /// A [`Link`], as a word.
    pub(in crate::sources::pipe) link: AtomicU64,
    pub(in crate::sources::pipe) bytes: [AtomicU64; WORDS],
}

/// What a node says about itself, in one word.
///
/// | bits | what |
/// |---|---|
/// | 0–7 | the number of the node below it on the stack, or of the next one in the chain |
/// | 8–15 | how many bytes are in it |
/// | 16 | whether it is the last node of its write |
/// | 24–31 | the byte that is repeated before the node's own bytes (a run) |
/// | 32–48 | how often |
#[derive(Clone, Copy)]
pub(in crate::sources::pipe) struct Link(u64);

impl Link {
    pub(in crate::sources::pipe) fn new(next: u8, len: usize, ends: bool) -> Self {
        Self(u64::from(next) | (len as u64) << 8 | u64::from(ends) << 16)
    }

    pub(in crate::sources::pipe) fn after_run(self, byte: u8, n: u32) -> Self {
        Self(self.0 | u64::from(byte) << 24 | u64::from(n) << 32)
    }

    pub(in crate::sources::pipe) fn with_next(self, next: u8) -> Self {
        Self(self.0 & !0xff | u64::from(next))
    }

    pub(in crate::sources::pipe) const fn next(self) -> u8 {
        self.0 as u8
    }

    pub(in crate::sources::pipe) const fn len(self) -> u32 {
        (self.0 >> 8) as u8 as u32
    }

    pub(in crate::sources::pipe) const fn ends(self) -> bool {
        self.0 & 1 << 16 != 0
    }

    pub(in crate::sources::pipe) const fn run(self) -> (u8, u32) {
        ((self.0 >> 24) as u8, (self.0 >> 32) as u32)
    }
}

/// The nodes of a pipe. A pipe has none until it needs one. [`take`](Self::take) takes the first
/// free node and initialises it when it is taken for the first time, so a pipe touches only as much
/// memory as it has ever needed at once.
#[derive(Debug)]
pub(in crate::sources::pipe) struct Nodes {
    /// A bit for each node in use. The thread that sets it owns the node; a thread that has taken
    /// the node's bytes clears it.
    pub(in crate::sources::pipe) taken: [AtomicU64; NODES.div_ceil(64)],
    /// A bit for each node that is initialised. Only the thread that owns a node reads its bit.
    pub(in crate::sources::pipe) made: [AtomicU64; NODES.div_ceil(64)],
    pub(in crate::sources::pipe) nodes: [UnsafeCell<MaybeUninit<Node>>; NODES],
}

impl Nodes {
    /// Makes nodes in `place`, all of them free.
    ///
    /// # Safety
    /// `place` is memory for a `Nodes` that no other thread uses.
    pub(in crate::sources::pipe) unsafe fn write_to(place: *mut Self) {
        // SAFETY: the caller's contract. `nodes` may stay uninitialised.
        unsafe {
            (&raw mut (*place).taken).write(core::array::from_fn(|_| AtomicU64::new(0)));
            (&raw mut (*place).made).write(core::array::from_fn(|_| AtomicU64::new(0)));
        }
    }

    /// The node of this number, which has been taken. `None` for 0.
    pub(in crate::sources::pipe) fn node(&self, number: u8) -> Option<&Node> {
        let place = self.nodes.get(usize::from(number).wrapping_sub(1))?;
        // SAFETY: a number comes from `take`, which has made its node, directly or by way of the
        // pipe's word.
        Some(unsafe { (*place.get()).assume_init_ref() })
    }

    /// Initialises a node that the caller has taken, unless it is initialised already.
    pub(in crate::sources::pipe) fn make(&self, number: u8) {
        let index = usize::from(number).wrapping_sub(1);
        let (Some(made), Some(place)) = (self.made.get(index / 64), self.nodes.get(index)) else {
            return;
        };
        // Relaxed, here and below: the node's last owner gave it back with release, and `take`
        // acquired that.
        if made.load(Ordering::Relaxed) & 1 << (index % 64) == 0 {
            let fresh = Node {
                link: AtomicU64::new(0),
                bytes: core::array::from_fn(|_| AtomicU64::new(0)),
            };
            // SAFETY: only the caller uses the node until its number is in the pipe's word, and no
            // thread has used it before.
            unsafe { (*place.get()).write(fresh) };
            made.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }

    pub(in crate::sources::pipe) fn link(&self, number: u8) -> Link {
        Link(self.node(number).map_or(0, |node| node.link.load(Ordering::Relaxed)))
    }

    pub(in crate::sources::pipe) fn set_link(&self, number: u8, link: Link) {
        if let Some(node) = self.node(number) {
            node.link.store(link.0, Ordering::Relaxed);
        }
    }

    /// Takes the first free node. `None` if all are in use.
    pub(in crate::sources::pipe) fn take(&self) -> Option<u8> {
        for (i, taken) in self.taken.iter().enumerate() {
            let mut now = taken.load(Ordering::Relaxed);
            loop {
                let bit = now.trailing_ones();
                let number = i * 64 + bit as usize + 1;
                if bit == 64 || number > NODES {
                    break;
                }
                // Acquire: the last owner has finished with the bytes.
                match taken.compare_exchange(
                    now,
                    now | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
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

    /// Puts bytes into new nodes that are linked as a stack. Returns the numbers of the newest node
    /// and of the lowest, whose link the caller sets to the node that was on top before. `None` if
    /// there are not enough nodes.
    pub(in crate::sources::pipe) fn fill(&self, bytes: &[u8]) -> Option<(u8, u8)> {
        let (mut newest, mut lowest) = (0, 0);
        let ends = bytes.len().div_ceil(NODE) - 1;
        for (i, part) in bytes.chunks(NODE).enumerate() {
            let number = self.take();
            let Some((number, node)) = number.and_then(|number| Some((number, self.node(number)?)))
            else {
                self.give_stack(newest);
                return None;
            };
            for (slot, eight) in node.bytes.iter().zip(part.chunks(8)) {
                let mut word = [0; 8];
                word[..eight.len()].copy_from_slice(eight);
                slot.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
            self.set_link(number, Link::new(newest, part.len(), i == ends));
            if newest == 0 {
                lowest = number;
            }
            newest = number;
        }
        Some((newest, lowest))
    }

    /// Gives back the nodes of a stack that no other thread has seen.
    pub(in crate::sources::pipe) fn give_stack(&self, mut number: u8) {
        while number != 0 {
            let next = self.link(number).next();
            self.give(number);
            number = next;
        }
    }

    /// Gives back a node that the caller owns.
    pub(in crate::sources::pipe) fn give(&self, number: u8) {
        let index = usize::from(number).wrapping_sub(1);
        if let Some(taken) = self.taken.get(index / 64) {
            taken.fetch_and(!(1 << (index % 64)), ordering!(Release, "node_given_relaxed"));
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let made = self.made.get(index / 64).map_or(0, |made| made.load(Ordering::Relaxed));
            if made & 1 << (index % 64) != 0 {
                // SAFETY: it is initialised, and `&mut self` says that no other thread uses it.
                unsafe { node.get_mut().assume_init_drop() };
            }
        }
    }
}

/// Frees the nodes of a pipe.
///
/// # Safety
/// They come from `Pipe::nodes`, and no thread uses them from now on.
pub(in crate::sources::pipe) unsafe fn free(nodes: *mut Nodes) {
    // SAFETY: the caller's contract; `Pipe::nodes` allocated them with this layout.
    unsafe {
        ptr::drop_in_place(nodes);
        dealloc(nodes.cast(), Layout::new::<Nodes>());
    }
}
