//! Writes into a pipe that have to wait for room: a second thread makes them, and the program
//! reads.
//!
//! How far the second thread is at each read is a matter of luck, and what the reads return. What
//! has to be the same is that all bytes come, in order, and that both threads come to an end; and
//! what sets report afterwards, of an empty pipe that has been full.

use super::Interpreter;
use super::sink::{Outcome, Sink};
use crate::program::Op;
use crate::world::{Sysno, World, Write};
use libc::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of each write. They are all the same, and a part of a page, so that no write makes the
/// pipe migrate.
const PIECE: usize = 512;
/// Writes that an empty pipe has room for, unless it has been made smaller.
const ROOM: usize = 65_536 / PIECE;
/// Writes beyond that.
const MORE: usize = 24;
/// Longest that a read may have nothing to take while the second thread is not done: more than a
/// busy machine needs.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the second thread has done.
struct Progress {
    writes: AtomicUsize,
    /// Its last result, once it is done; [`GOES_ON`] before.
    result: AtomicIsize,
}

const GOES_ON: isize = isize::MIN;

impl Progress {
    fn result(&self) -> Option<isize> {
        let result = self.result.load(Ordering::SeqCst);
        (result != GOES_ON).then_some(result)
    }
}

impl<W: World> Interpreter<W> {
    /// Empties the pipe, and has a second thread write more than there is room for, while this one
    /// reads four times `len` bytes at a time. With `late` it begins when the other is likely to
    /// sleep. The outcome has a checksum of all bytes.
    pub(super) fn write_waiting(&mut self, op: &Op, sink: &mut impl Sink) -> Option<Outcome> {
        let Op::WriteWaiting { slot, value, len, late } = *op else { return None };
        let number = self.number(slot);
        let (reader, writer) = self.model.pipe(number)?;
        // The calls are read(2), write(2) and fcntl(2) with `F_SETFL`, of which only the first two
        // are seen by instruction.
        if self.by_instruction() {
            self.settle(reader, sink);
        }
        let write = self.world.write()?;
        let mut taken = Taken { total: 0, sum: 0 };
        self.take_all(reader, len, &mut taken);
        self.model.emptied(writer);
        if self.set_blocking(writer, true) != 0 {
            return None;
        }
        let drained = taken.total;
        let progress =
            Arc::new(Progress { writes: AtomicUsize::new(0), result: AtomicIsize::new(GOES_ON) });
        let theirs = Arc::clone(&progress);
        let helper = thread::spawn(move || write_pieces(write, writer, value, &theirs));
        wait_until_full(&progress);
        if late {
            thread::sleep(Duration::from_micros(200));
        }
        let result = self.take_until_done(reader, len, &progress, &mut taken);
        // A thread that still sleeps ends when its pipe is closed.
        let is_over = progress.result().is_some() && helper.join().is_ok();
        let reset = self.set_blocking(writer, false);
        let result = if is_over && reset == 0 { result } else { -(libc::ETIMEDOUT as isize) };
        let beside = taken.sum.rotate_left(17) ^ (taken.total - drained);
        Some(Outcome { result, beside })
    }

    fn set_blocking(&mut self, number: c_int, on: bool) -> isize {
        let flags = if on { 0 } else { libc::O_NONBLOCK };
        self.call(Sysno::fcntl, &[number as usize, libc::F_SETFL as usize, flags as usize])
    }

    /// Reads what there is. Returns the result of the last read, which is 0 or less.
    fn take_all(&mut self, reader: c_int, len: u8, taken: &mut Taken) -> isize {
        loop {
            let place = self.memory.first();
            // Enough at a time that the whole takes few reads.
            let len = usize::from(len.max(1)) * 4;
            let result = self.call(Sysno::read, &[reader as usize, place, len]);
            if result <= 0 {
                return result;
            }
            taken.add(self.memory.bytes(place, result as usize));
        }
    }

    /// Reads until the second thread is done and nothing is left. Returns that thread's result.
    fn take_until_done(
        &mut self,
        reader: c_int,
        len: u8,
        progress: &Progress,
        taken: &mut Taken,
    ) -> isize {
        let mut until = Instant::now() + PATIENCE;
        loop {
            let done = progress.result();
            let before = taken.total;
            let last = self.take_all(reader, len, taken);
            if let Some(result) = done {
                return result;
            }
            if last != -(libc::EAGAIN as isize) {
                return last;
            }
            if taken.total != before {
                until = Instant::now() + PATIENCE;
            } else if Instant::now() > until {
                return -(libc::ETIMEDOUT as isize);
            }
            thread::yield_now();
        }
    }
}

/// What has been read.
struct Taken {
    total: u64,
    sum: u64,
}

impl Taken {
    fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let add = |sum: u64, byte: &u8| sum.wrapping_mul(257).wrapping_add(u64::from(*byte));
        self.sum = bytes.iter().fold(self.sum, add);
    }
}

/// The second thread.
fn write_pieces(write: Write, writer: c_int, value: u8, progress: &Progress) {
    let bytes = [value; PIECE];
    let mut result = 0;
    for _ in 0..ROOM + MORE {
        result = write(writer, &bytes);
        if result != PIECE as isize {
            break;
        }
        progress.writes.fetch_add(1, Ordering::SeqCst);
    }
    progress.result.store(result, Ordering::SeqCst);
}

/// Until the second thread has filled the pipe, or has failed to. A pipe that has been made smaller
/// is full when there is no progress.
fn wait_until_full(progress: &Progress) {
    let mut seen = 0;
    let mut since = Instant::now();
    while seen < ROOM && progress.result().is_none() && since.elapsed() < Duration::from_secs(1) {
        thread::yield_now();
        let writes = progress.writes.load(Ordering::SeqCst);
        if writes != seen {
            (seen, since) = (writes, Instant::now());
        }
    }
}
