//! readv(2), writev(2), recvmsg(2) and sendmsg(2) of several buffers, on streams.

use super::Interpreter;
use super::memory::{ARGUMENT, ARGUMENT_2};
use super::sink::{Outcome, Sink};
use crate::model::Kind;
use crate::program::{Lens, Op};
use crate::world::{Sysno, World};
use libc::{c_int, iovec, msghdr};
use std::mem;

/// How far apart the buffers are, which is more than they are long.
const APART: usize = 64;

impl<W: World> Interpreter<W> {
    /// A call of several buffers.
    pub(super) fn pieces(&mut self, op: &Op, sink: &mut impl Sink) -> Option<Outcome> {
        match *op {
            Op::WritePieces { slot, value, lens, message } => {
                Some(self.write_pieces(slot, value, lens, message, sink)?.into())
            }
            Op::ReadPieces { slot, lens, message } => self.read_pieces(slot, lens, message, sink),
            _ => None,
        }
    }

    /// The number of a stream whose calls with these buffers are made. Of other objects they are
    /// not: what a call of several buffers does with a counter is for [`Interpreter::settle`].
    fn stream(&mut self, slot: u8, lens: Lens, sink: &mut impl Sink) -> Option<c_int> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        if self.model.kind(number) != Some(Kind::Stream) {
            return None;
        }
        if lens == [0; 4] {
            // The stream migrates for that.
            self.settle(number, sink);
        }
        Some(number)
    }

    /// The buffers, and a message with them; the addresses of both.
    fn put_pieces(&self, lens: Lens) -> (usize, usize) {
        let first = self.memory.first();
        let mut at = first;
        let vectors = lens.map(|len| {
            let piece = iovec { iov_base: at as *mut _, iov_len: len.into() };
            at += APART;
            piece
        });
        let vectors = self.memory.put(ARGUMENT, vectors);
        // SAFETY: it is made of numbers and null pointers.
        let mut message: msghdr = unsafe { mem::zeroed() };
        message.msg_iov = vectors as *mut iovec;
        message.msg_iovlen = lens.len();
        (vectors, self.memory.put(ARGUMENT_2, message))
    }

    /// One of the calls.
    fn call_with(
        &mut self,
        calls: [Sysno; 2],
        number: c_int,
        lens: Lens,
        is_message: bool,
    ) -> isize {
        let (vectors, message) = self.put_pieces(lens);
        match is_message {
            true => self.call(calls[1], &[number as usize, message, 0]),
            false => self.call(calls[0], &[number as usize, vectors, lens.len()]),
        }
    }

    fn write_pieces(
        &mut self,
        slot: u8,
        value: u64,
        lens: Lens,
        is_message: bool,
        sink: &mut impl Sink,
    ) -> Option<isize> {
        let number = self.stream(slot, lens, sink)?;
        let first = self.memory.first();
        for (i, len) in lens.into_iter().enumerate() {
            self.memory.fill(first + i * APART, value.rotate_left(8 * i as u32), len);
        }
        let result = self.call_with([Sysno::writev, Sysno::sendmsg], number, lens, is_message);
        let is_full = result > 0 && self.model.wrote_to_stream(number, result as u64);
        if is_full {
            self.settle_anywhere(number, sink);
        }
        // It migrates if a file is kept for the end that was closed.
        if result == -(libc::EPIPE as isize) || self.is_seen(is_message) {
            self.settle(number, sink);
        }
        Some(result)
    }

    /// The outcome has a checksum of the bytes, and of what is said of a message.
    fn read_pieces(
        &mut self,
        slot: u8,
        lens: Lens,
        is_message: bool,
        sink: &mut impl Sink,
    ) -> Option<Outcome> {
        let number = self.stream(slot, lens, sink)?;
        let result = self.call_with([Sysno::readv, Sysno::recvmsg], number, lens, is_message);
        let mut left = result.max(0) as usize;
        let mut beside = 0_u64;
        for (i, len) in lens.into_iter().enumerate() {
            let taken = left.min(len.into());
            left -= taken;
            let sum = self.checksum(self.memory.first() + i * APART, taken);
            beside = beside.wrapping_mul(257 * 257).wrapping_add(sum);
        }
        if is_message && result >= 0 {
            let message = self.memory.first() + ARGUMENT_2;
            let flags = message + mem::offset_of!(msghdr, msg_flags);
            beside = beside.rotate_left(8) ^ u64::from(self.memory.get::<u32>(flags));
        }
        if self.is_seen(is_message) {
            self.settle(number, sink);
        }
        Some(Outcome { result, beside })
    }

    /// Whether a call has made its stream migrate that would stay if the call went through libc.
    fn is_seen(&self, is_message: bool) -> bool {
        is_message && self.by_instruction()
    }
}
