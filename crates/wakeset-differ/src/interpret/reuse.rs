//! A regular file, and a number that comes to stand for one.

use super::Interpreter;
use super::memory::ARGUMENT;
use super::sink::{Outcome, Sink};
use crate::model::Kind;
use crate::program::{Op, Road};
use crate::world::{Sysno, World};

/// What is written to a file whose number stood for something else.
const TEXT: [u8; 14] = *b"fourteen bytes";

impl<W: World> Interpreter<W> {
    pub(super) fn open_file(&mut self, slot: u8) -> Option<isize> {
        self.can_make(1)?;
        let flags = libc::O_RDWR | libc::O_TMPFILE;
        let result = self.call(Sysno::open, &[c"/tmp".as_ptr().addr(), flags as usize, 0o600]);
        self.made(result, slot, Kind::Other);
        Some(result)
    }

    /// Closes the number of a slot, opens a file, writes to it and reads the bytes, each by a road
    /// of its own. The outcomes are those of the four calls; the last one has the bytes.
    pub(super) fn reuse(
        &mut self,
        op: &Op,
        slot: u8,
        roads: [Road; 4],
        sink: &mut impl Sink,
    ) -> Option<Outcome> {
        let number = self.number(slot);
        if !self.model.is_open(number) {
            return None;
        }
        self.can_make(1)?;
        let unseen = roads[0] == Road::Instruction && !self.instructions;
        if unseen && !(self.is_alone() && self.model.may_be_closed_unseen(number)) {
            return None;
        }
        self.before_close(number, sink);
        self.world.take(roads[0]);
        let closed = self.call(Sysno::close, &[number as usize]);
        sink.outcome(op, closed, 0);
        self.closed(number);
        self.world.take(roads[1]);
        let opened = self.open_file(slot)?;
        sink.outcome(op, self.shown(opened), 0);
        let file = self.number(slot);
        let place = self.memory.put(ARGUMENT, TEXT);
        self.world.take(roads[2]);
        let written = self.call(Sysno::write, &[file as usize, place, TEXT.len()]);
        sink.outcome(op, written, 0);
        self.memory.put(ARGUMENT, [0_u8; TEXT.len()]);
        self.world.take(roads[3]);
        let read = self.call(Sysno::pread64, &[file as usize, place, TEXT.len(), 0]);
        self.world.take(self.road);
        Some(Outcome { result: read, beside: self.checksum(place, TEXT.len()) })
    }
}
