//! The reader's chain: the nodes that it has taken off the stack, oldest first.

use crate::sources::pipe::nodes::{NODE, Nodes};
use crate::sync::Ordering;

/// What a seal finds, in order.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// The same byte, written so many times.
    Run(u8, u32),
    /// The bytes of one write, or a part of them.
    Bytes {
        /// The bytes.
        bytes: &'a [u8],
        /// As many of the same write were in front of them and have been read.
        read: usize,
        /// Whether the write ends with them.
        ends: bool,
    },
}

/// What the reader has taken off the stack, oldest first.
#[derive(Debug, Default)]
pub(in crate::sources::pipe) struct Chain {
    first: u8,
    last: u8,
    /// What has been read of the first node: bytes of the run in front of it, then its own.
    read_of_run: u32,
    read: u32,
    /// How many bytes of the same write were in nodes before the first one.
    before: u32,
}

impl Chain {
    /// A read of what is in it so far.
    pub(in crate::sources::pipe) fn begin(&self) -> Cursor {
        Cursor {
            number: self.first,
            read_of_run: self.read_of_run,
            read: self.read,
            before: self.before,
            bytes: 0,
            messages: 0,
        }
    }

    /// Appends a stack to the chain in reverse order, and returns its oldest node.
    pub(in crate::sources::pipe) fn append(&mut self, nodes: &Nodes, newest: u8) -> u8 {
        let (mut number, mut after) = (newest, 0);
        while number != 0 {
            let link = nodes.link(number);
            nodes.set_link(number, link.with_next(after));
            after = number;
            number = link.next();
        }
        match nodes.node(self.last) {
            Some(_) => nodes.set_link(self.last, nodes.link(self.last).with_next(after)),
            None => self.first = after,
        }
        if newest != 0 {
            self.last = newest;
        }
        after
    }

    /// Gives back the nodes that a read has left.
    pub(in crate::sources::pipe) fn drop_to(&mut self, nodes: &Nodes, done: &Cursor) {
        while self.first != 0 && self.first != done.number {
            let next = nodes.link(self.first).next();
            nodes.give(self.first);
            self.first = next;
        }
        if self.first == 0 {
            self.last = 0;
        }
        (self.read_of_run, self.read, self.before) = (done.read_of_run, done.read, done.before);
    }

    /// Gives everything to `carry`, and the nodes back.
    pub(in crate::sources::pipe) fn empty(
        &mut self,
        nodes: &Nodes,
        carry: &mut dyn FnMut(Piece<'_>),
    ) {
        while self.first != 0 {
            let link = nodes.link(self.first);
            let (byte, run) = link.run();
            if run > self.read_of_run {
                carry(Piece::Run(byte, run - self.read_of_run));
            }
            let bytes = bytes_of(nodes, self.first);
            let (read, len) = (self.read as usize, link.len() as usize);
            carry(Piece::Bytes {
                bytes: bytes.get(read..len).unwrap_or(&[]),
                read: self.before as usize + read,
                ends: link.ends(),
            });
            nodes.give(self.first);
            *self = Self { first: link.next(), last: self.last, ..Self::default() };
        }
        *self = Self::default();
    }
}

/// How far a read has come in the chain.
pub(in crate::sources::pipe) struct Cursor {
    /// The node it stands in; 0: at the end.
    pub(in crate::sources::pipe) number: u8,
    pub(in crate::sources::pipe) read_of_run: u32,
    pub(in crate::sources::pipe) read: u32,
    /// Bytes of the write it stands in that were in nodes before.
    before: u32,
    /// Bytes so far, and messages that ended with them.
    pub(in crate::sources::pipe) bytes: u32,
    pub(in crate::sources::pipe) messages: u32,
}

impl Cursor {
    /// Goes on to `most` bytes, or to the end; whether `sink` took them all.
    pub(in crate::sources::pipe) fn go_on(
        &mut self,
        nodes: &Nodes,
        most: u32,
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
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
                if !sink(bytes.get(self.read as usize..(self.read + part) as usize).unwrap_or(&[]))
                {
                    return false;
                }
                self.read += part;
                self.bytes += part;
            }
            if self.read == link.len() {
                self.messages += u32::from(link.ends());
                self.before = if link.ends() { 0 } else { self.before + link.len() };
                (self.number, self.read_of_run, self.read) = (link.next(), 0, 0);
            }
        }
        true
    }
}

pub(in crate::sources::pipe) fn give_run(
    byte: u8,
    n: u32,
    sink: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
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

fn bytes_of(nodes: &Nodes, number: u8) -> [u8; NODE] {
    let mut bytes = [0; NODE];
    if let Some(node) = nodes.node(number) {
        for (place, word) in bytes.chunks_exact_mut(8).zip(&node.bytes) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
    bytes
}
