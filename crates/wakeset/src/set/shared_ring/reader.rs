//! The side of the shared ring that reads, usually in another process.

use crate::error::Error;
use crate::events::Event;
use crate::set::shared_ring::memory::Memory;
use crate::sync::Slept;
use crate::sync::time::{Deadline, Timeout};
use core::fmt;

/// The side that reads, usually in another process than the set.
pub struct RingReader {
    pub(in crate::set) memory: Memory,
    /// Events taken.
    pub(in crate::set) head: u32,
}

impl RingReader {
    /// How many events the ring holds.
    pub fn capacity(&self) -> usize {
        self.memory.entries() as usize
    }

    /// Takes events without waiting; how many. Makes no system call unless the writer sleeps.
    ///
    /// # Errors
    /// [`Error::BrokenPeer`] if what the writer says it has written cannot be; nothing is taken
    /// then, now or later.
    pub fn take(&mut self, events: &mut [Event]) -> Result<usize, Error> {
        let header = self.memory.header();
        let tail = header.writer.index.word().load(ordering!(SeqCst, "shared_tail_relaxed"));
        let filled = tail.wrapping_sub(self.head);
        if filled > self.memory.entries() {
            return Err(Error::BrokenPeer);
        }
        let n = events.len().min(filled as usize);
        if n == 0 {
            return Ok(0);
        }
        if mutant!("shared_head_before_slots") {
            header.reader.publish(self.head.wrapping_add(n as u32), &header.writer);
        }
        for event in &mut events[..n] {
            *event = self.memory.slot(self.head).load();
            self.head = self.head.wrapping_add(1);
        }
        // The slots have been read.
        header.reader.publish(self.head, &header.writer);
        Ok(n)
    }

    /// Takes events, and waits for one if there is none. Returns 0 when the time is up. A writer
    /// that is gone is not noticed: give a limit.
    ///
    /// # Errors
    /// As [`take`](Self::take); [`Error::Invalid`] if `events` is empty; [`Error::Interrupted`] if
    /// a signal handler ran while it slept.
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
            let header = self.memory.header();
            match header.reader.sleep_on(&header.writer, self.head, deadline) {
                Slept::Woken => {}
                Slept::TimedOut => return self.take(events),
                Slept::Interrupted => match self.take(events)? {
                    0 => return Err(Error::Interrupted),
                    taken => return Ok(taken),
                },
            }
        }
    }
}

impl fmt::Debug for RingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
