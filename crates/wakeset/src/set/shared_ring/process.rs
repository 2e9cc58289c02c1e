//! What it takes that the two sides are in two processes: passing the memory on, and sleeps in
//! which the writer waits for the set and the reader at once.

use crate::error::Error;
use crate::set::event_poll::handle::EventPoll;
use crate::set::event_poll::pieces::Woken;
use crate::set::ring::event_ring::EventRing;
use crate::set::ring::ring_core::RingCore;
use crate::set::shared_ring::memory::Memory;
use crate::set::shared_ring::reader::RingReader;
use crate::set::shared_ring::writer::RingWriter;
use crate::sync::time::{Deadline, Timeout};
use crate::sync::{AtomicU32, Ordering, Slept};

impl RingWriter<'_> {
    /// The descriptor to pass to the other process (`SCM_RIGHTS`, or inherited), which opens it
    /// with [`RingReader::open`]. It is the writer's, and closed on exec.
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    /// One sleep until there may be something to write and room for it, while `stay`; whoever makes
    /// that false kicks the set.
    #[doc(hidden)]
    pub fn sleep_once(&self, stay: impl Fn() -> bool, deadline: Option<Deadline>) -> Woken {
        let header = self.memory.header();
        // The barrier between this and the checks of `ready` is that of `Waiters::sleep_with`,
        // which asks `ready` after it has counted this thread in.
        header.writer.sleeps.swap(1, Ordering::SeqCst);
        let is_full = self.tail.wrapping_sub(self.head) == self.memory.entries();
        let word = header.reader.index.word();
        let moved = || word.load(Ordering::SeqCst) != self.head;
        // While it is full, only the reader matters; else the set too.
        let ready = || moved() || !stay() || !is_full && self.ring.has_news();
        let slept = self.ring.set.sleep_beside(ready, word, self.head, deadline);
        header.writer.sleeps.store(0, Ordering::SeqCst);
        slept.into()
    }

    /// [`pump`](Self::pump) that waits until there is something to write and room for it. Returns 0
    /// when the time is up.
    ///
    /// # Errors
    /// As [`pump`](Self::pump); [`Error::Interrupted`] if a signal handler ran while it slept.
    pub fn pump_waiting(&mut self, timeout: Timeout) -> Result<usize, Error> {
        let deadline = Deadline::of(timeout);
        loop {
            let written = self.pump()?;
            if written > 0 || timeout == Timeout::Now {
                return Ok(written);
            }
            match self.sleep_once(|| true, deadline) {
                Woken::Kicked => {}
                Woken::TimedOut => return self.pump(),
                Woken::Interrupted => match self.pump()? {
                    0 => return Err(Error::Interrupted),
                    written => return Ok(written),
                },
            }
        }
    }
}

impl RingReader {
    /// Maps the memory behind a descriptor that a [`RingWriter`]'s process has passed on. One
    /// reader for a ring; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none of those: no memfd, one that could still shrink, or of no
    /// size that a ring has; [`Error::NoMemory`]; [`Error::Os`].
    ///
    /// # Safety
    /// `fd` is open, and stays so for the call.
    pub unsafe fn open(fd: i32) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let memory = unsafe { Memory::open(fd) }?;
        let head = memory.header().reader.index.word().load(Ordering::SeqCst);
        Ok(Self { memory, head })
    }
}

impl EventPoll {
    /// One sleep on the set's futex and on a word in shared memory while that is `expected`, unless
    /// `ready`.
    pub(in crate::set) fn sleep_beside(
        &self,
        ready: impl Fn() -> bool,
        word: &AtomicU32,
        expected: u32,
        deadline: Option<Deadline>,
    ) -> Slept {
        let core = self.core();
        core.sleep_with(deadline, |until| {
            core.wake.waiters.sleep_with(ready, |futex, expected_here| {
                futex.sleep_on_both(expected_here, word, expected, until())
            })
        })
    }
}

impl EventRing<'_> {
    /// Whether [`take_keeping`](Self::take_keeping) may find something.
    #[inline]
    pub(in crate::set) fn has_news(&self) -> bool {
        self.set.as_core().has_news(self.ring) && !self.ring.is_blocked()
    }
}

impl RingCore {
    /// Whether all slots are in use, so that a refill has to wait until levels are kept no longer.
    /// A hint.
    fn is_blocked(&self) -> bool {
        self.in_use() >= self.capacity()
    }
}
