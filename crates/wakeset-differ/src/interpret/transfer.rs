//! Calls that read and write: read(2), write(2), their vector forms, pread(2) and splice(2).

use super::Interpreter;
use super::memory::ARGUMENT;
use super::sink::{Outcome, Sink};
use crate::model::Kind;
use crate::program::At;
use crate::world::{Sysno, World};

/// Whether the first `len` bytes can be accessed; `read_only`: by a call that only reads them.
fn is_accessible(at: At, len: u8, read_only: bool) -> bool {
    match at {
        At::Good => true,
        At::ReadOnly => read_only,
        At::Before(n) => n >= len,
        _ => false,
    }
}

/// Addresses for which Wakeset leaves the call, and with it the object, to the kernel.
fn is_left_to_the_kernel(at: At) -> bool {
    matches!(at, At::Null | At::Low | At::High)
}

impl<W: World> Interpreter<W> {
    pub(super) fn write(
        &mut self,
        slot: u8,
        value: u64,
        len: u8,
        at: At,
        sink: &mut impl Sink,
    ) -> Option<isize> {
        let number = self.number(slot);
        let place = self.memory.place(at, 1);
        let readable = is_accessible(at, len, true);
        // The page that cannot be written holds zeros.
        let value = if at == At::ReadOnly { 0 } else { value };
        if readable && at != At::ReadOnly {
            self.memory.fill(place, value, len);
        }
        if self.model.kind(number) == Some(Kind::Counter) && len >= 8 {
            if readable && self.model.write_blocks(number, value) {
                return None;
            }
            if len != 8 || is_left_to_the_kernel(at) {
                self.model.migrate(number);
            }
        }
        let is_stream = self.model.kind(number) == Some(Kind::Stream);
        if is_stream && !readable {
            // The stream migrates if it has room.
            self.settle(number, sink);
        }
        let result = self.call(Sysno::write, &[number as usize, place, len.into()]);
        if is_stream {
            if result > 0 && self.model.wrote_to_stream(number, result as u64) {
                self.settle_anywhere(number, sink);
            } else if result == -(libc::EPIPE as isize) {
                // It migrates if a file is kept for the end that was closed.
                self.settle(number, sink);
            }
        } else if result >= 8 {
            self.model.wrote(number, value);
        }
        Some(result)
    }

    /// read(2). The outcome has the value of a counter, or a checksum of a stream's bytes.
    pub(super) fn read(
        &mut self,
        slot: u8,
        len: u8,
        at: At,
        sink: &mut impl Sink,
    ) -> Option<Outcome> {
        let number = self.number(slot);
        let place = self.memory.place(at, 1);
        let kind = self.model.kind(number);
        let is_counter = matches!(kind, Some(Kind::Counter | Kind::Timer));
        if kind == Some(Kind::Timer) && !self.model.can_set_timer(number) {
            return None;
        }
        if is_counter && len >= 8 {
            if self.model.read_blocks(number) {
                return None;
            }
            if is_left_to_the_kernel(at) {
                self.model.migrate(number);
            }
        }
        let is_stream = kind == Some(Kind::Stream);
        if is_stream && !is_accessible(at, len, false) {
            // The stream migrates if it has bytes, or if the address is in no page at all.
            self.settle(number, sink);
        }
        let result = self.call(Sysno::read, &[number as usize, place, len.into()]);
        // A missing buffer at a user address is found only when the value has been taken.
        let taken = result > 0 || result == -(libc::EFAULT as isize) && at != At::High;
        if is_counter && taken {
            self.model.has_read(number);
        }
        let beside = if is_stream && at == At::Good && result > 0 {
            self.checksum(place, result as usize)
        } else if result == 8 && !is_stream {
            self.memory.get(place)
        } else {
            0
        };
        Some(Outcome { result, beside })
    }

    pub(super) fn write_vector(
        &mut self,
        slot: u8,
        value: u64,
        sink: &mut impl Sink,
    ) -> Option<isize> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        if self.model.write_blocks(number, value) {
            return None;
        }
        let (vector, _) = self.memory.put_vector(ARGUMENT, value);
        let result = self.call(Sysno::writev, &[number as usize, vector, 1]);
        if result == 8 {
            self.model.wrote(number, value);
        }
        self.settle(number, sink);
        Some(result)
    }

    pub(super) fn read_vector(&mut self, slot: u8, sink: &mut impl Sink) -> Option<Outcome> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        if self.model.read_blocks(number) {
            return None;
        }
        let (vector, piece) = self.memory.put_vector(ARGUMENT, 0_u64);
        let result = self.call(Sysno::readv, &[number as usize, vector, 1]);
        let mut beside = 0;
        if result == 8 {
            self.model.has_read(number);
            beside = self.memory.get(piece);
        }
        self.settle(number, sink);
        Some(Outcome { result, beside })
    }

    /// pread(2). The outcome has a checksum of the bytes of a file.
    pub(super) fn read_at(&mut self, slot: u8, sink: &mut impl Sink) -> Option<Outcome> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        let place = self.memory.place(At::Good, 1);
        let result = self.call(Sysno::pread64, &[number as usize, place, 8, 0]);
        let beside = self.checksum(place, result.max(0) as usize);
        self.settle(number, sink);
        Some(Outcome { result, beside })
    }

    /// A checksum of bytes; 0 for none.
    pub(super) fn checksum(&self, place: usize, len: usize) -> u64 {
        let bytes = self.memory.bytes(place, len);
        bytes.iter().fold(len as u64, |sum, byte| sum.wrapping_mul(257) + u64::from(*byte))
    }

    pub(super) fn splice(&mut self, from: u8, to: u8) -> Option<isize> {
        let (from, to) = (self.number(from), self.number(to));
        self.no_doorbell(from)?;
        self.no_doorbell(to)?;
        if self.model.read_blocks(from) {
            return None;
        }
        self.model.migrate(from);
        self.model.migrate(to);
        let flags = libc::SPLICE_F_NONBLOCK as usize;
        let result = self.call(Sysno::splice, &[from as usize, 0, to as usize, 0, 8, flags]);
        if result == 8 {
            self.model.has_read(from);
        }
        Some(result)
    }
}
