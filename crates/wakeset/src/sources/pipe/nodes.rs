//! The nodes of a pipe: bytes that the word cannot hold.

use crate::sync::{AtomicU64, Ordering};
use alloc::alloc::{Layout, dealloc};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;

/// Words of bytes in a node: with the link a cache line.
#[cfg(not(loom))]
pub(in crate::sources::pipe) const WORDS: usize = 7;
#[cfg(loom)]
pub(in crate::sources::pipe) const WORDS: usize = 1;
/// Bytes in a node; a message of a pipe by messages is no longer.
pub const LONGEST_MESSAGE: usize = WORDS * 8;
/// The nodes of one pipe. 0 is no node.
#[cfg(not(any(loom, shuttle)))]
pub(in crate::sources::pipe) const NODES: usize = 255;
#[cfg(any(loom, shuttle))]
pub(in crate::sources::pipe) const NODES: usize = 3;

/// Some bytes, or the end of a write.
#[derive(Debug)]
pub(in crate::sources::pipe) struct Node {
    /// [`Link`].
    pub(in crate::sources::pipe) link: AtomicU64,
    pub(in crate::sources::pipe) bytes: [AtomicU64; WORDS],
}

/// | bits | what |
/// |---|---|
/// | 0–7 | on the stack: the node below; in the chain: the next one |
/// | 8–15 | how many bytes |
/// | 16 | the last node of its write |
/// | 24–31, 32–48 | the run in front of it: the byte, how many |
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

/// The nodes of a pipe; there are none until one is needed. Of their memory only what has been
/// needed at a time is touched: the first free one is taken, and made when it is taken first.
#[derive(Debug)]
pub(in crate::sources::pipe) struct Nodes {
    /// Those in use. The thread that sets a bit has the node; it clears the bit when it is done.
    pub(in crate::sources::pipe) taken: [AtomicU64; NODES.div_ceil(64)],
    /// Those that have been made. Only the thread that has a node reads its bit.
    pub(in crate::sources::pipe) made: [AtomicU64; NODES.div_ceil(64)],
    pub(in crate::sources::pipe) nodes: [UnsafeCell<MaybeUninit<Node>>; NODES],
}

impl Nodes {
    /// # Safety
    /// `place` is memory for one, and nobody else's.
    pub(in crate::sources::pipe) unsafe fn write_to(place: *mut Self) {
        // SAFETY: by the caller. A node is valid in any state.
        unsafe {
            (&raw mut (*place).taken).write(core::array::from_fn(|_| AtomicU64::new(0)));
            (&raw mut (*place).made).write(core::array::from_fn(|_| AtomicU64::new(0)));
        }
    }

    /// A node that has been taken, by its number.
    pub(in crate::sources::pipe) fn node(&self, number: u8) -> Option<&Node> {
        let place = self.nodes.get(usize::from(number).wrapping_sub(1))?;
        // SAFETY: a number comes from `take`, which has made its node, directly or by way of the
        // pipe's word.
        Some(unsafe { (*place.get()).assume_init_ref() })
    }

    /// Makes a node that the caller has taken, if nobody has.
    pub(in crate::sources::pipe) fn make(&self, number: u8) {
        let index = usize::from(number).wrapping_sub(1);
        let (Some(made), Some(place)) = (self.made.get(index / 64), self.nodes.get(index)) else {
            return;
        };
        // Relaxed, here and below: whoever had the node has given it back, with release, and that
        // was acquired.
        if made.load(Ordering::Relaxed) & 1 << (index % 64) == 0 {
            let fresh = Node {
                link: AtomicU64::new(0),
                bytes: core::array::from_fn(|_| AtomicU64::new(0)),
            };
            // SAFETY: who has a node is alone with it until its number is in the word, and nobody
            // has had this one.
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

    pub(in crate::sources::pipe) fn take(&self) -> Option<u8> {
        for (i, taken) in self.taken.iter().enumerate() {
            let mut now = taken.load(Ordering::Relaxed);
            loop {
                let bit = now.trailing_ones();
                let number = i * 64 + bit as usize + 1;
                if bit == 64 || number > NODES {
                    break;
                }
                // Acquire: whoever had the node is done with its bytes.
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

    /// Puts bytes into new nodes, linked as a stack: the newest one, and the lowest, which will lie
    /// on what is there. `None` if there are not enough nodes.
    pub(in crate::sources::pipe) fn fill(&self, bytes: &[u8]) -> Option<(u8, u8)> {
        let (mut newest, mut lowest) = (0, 0);
        let ends = bytes.len().div_ceil(LONGEST_MESSAGE) - 1;
        for (i, part) in bytes.chunks(LONGEST_MESSAGE).enumerate() {
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

    /// Gives back a stack that no other thread has seen.
    pub(in crate::sources::pipe) fn give_stack(&self, mut number: u8) {
        while number != 0 {
            let next = self.link(number).next();
            self.give(number);
            number = next;
        }
    }

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
                // SAFETY: made, and used by nobody any more.
                unsafe { node.get_mut().assume_init_drop() };
            }
        }
    }
}

/// # Safety
/// Nobody uses it any more.
pub(in crate::sources::pipe) unsafe fn free(nodes: *mut Nodes) {
    // SAFETY: by the caller; `nodes` made it with this layout.
    unsafe {
        ptr::drop_in_place(nodes);
        dealloc(nodes.cast(), Layout::new::<Nodes>());
    }
}
