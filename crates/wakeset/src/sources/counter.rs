//! The counter: eventfd(2) in user space, with exactly its behaviour.

use crate::error::Error;
use crate::events::Events;
use crate::sync::adaptive_spin::joint;
use crate::sync::blocked::{ALL, Blocked, READERS, WRITERS};
use crate::sync::spin::pause;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::testing::steps::step;
use crate::wake::source::Source;
use crate::wake::wait_queue::WaitQueue;
use bitflags::bitflags;
use core::num::NonZeroU32;

bitflags! {
    /// How a [`Counter`] behaves, with the values of `<sys/eventfd.h>` on x86-64.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CounterFlags: u32 {
        /// `EFD_SEMAPHORE`: a read takes 1, not all.
        const SEMAPHORE = 1;
        /// `EFD_NONBLOCK`: an operation that would block fails with EAGAIN.
        const NONBLOCK = 0o4000;
    }
}

/// The largest value a counter holds, 2^64−2.
const MAX: u64 = u64::MAX - 1;
/// The value that says the state lives elsewhere. No counter holds 2^64−1, so no flag is needed,
/// and one compare-and-swap on one word decides between "added here" and "look elsewhere".
const SEALED: u64 = u64::MAX;

/// Pauses of a reader that has lost a race with a writer, doubled the more often that happens: from
/// a quarter of a microsecond, less than a system call, to a few microseconds.
const PAUSES: u32 = 10;
const MOST_DOUBLINGS: u32 = 5;

/// A 64-bit counter that threads add to, take from and wait for: eventfd(2).
///
/// All methods may be called from any thread and from signal handlers; those that block may be
/// interrupted by one. None enters the kernel unless somebody sleeps.
#[derive(Debug)]
#[doc(alias = "eventfd")]
#[cfg_attr(not(any(loom, shuttle)), repr(C, align(64)))]
pub struct Counter {
    value: AtomicU64,
    /// [`CounterFlags`].
    flags: AtomicU32,
    /// How much more often than not reads lose a race with a writer. A guess, like all that is
    /// learnt: relaxed.
    streak: AtomicU32,
    /// Threads that sleep in a blocking read or write.
    blocked: Blocked,
    queue: WaitQueue,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Counter>() == 64);

impl Counter {
    /// A counter that starts at `initial`.
    ///
    /// # Panics
    /// If `initial` is 2^64−1, which no counter can hold. (eventfd(2) takes 32 bits.)
    pub fn new(initial: u64, flags: CounterFlags) -> Self {
        assert!(initial <= MAX, "a counter holds at most 2^64-2");
        Self {
            value: AtomicU64::new(initial),
            flags: AtomicU32::new(flags.bits()),
            streak: AtomicU32::new(0),
            blocked: Blocked::new(),
            queue: WaitQueue::new(),
        }
    }

    /// The flags it has now.
    pub fn flags(&self) -> CounterFlags {
        CounterFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Turns `O_NONBLOCK` on or off, as fcntl(2) does for an eventfd.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        let bit = CounterFlags::NONBLOCK.bits();
        if nonblocking {
            self.flags.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Adds `n`: write(2) on an eventfd. Blocks while the sum would exceed 2^64−2, unless
    /// non-blocking.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `n` is 2^64−1; [`Error::WouldBlock`]; [`Error::Interrupted`];
    /// [`Error::Sealed`].
    pub fn write(&self, n: u64) -> Result<(), Error> {
        match self.try_write(n) {
            Err(Error::WouldBlock) if !self.flags().contains(CounterFlags::NONBLOCK) => {
                self.block(WRITERS, || self.try_write(n))
            }
            done => done,
        }
    }

    /// Takes the value, or 1 of it in semaphore mode: read(2) on an eventfd. Blocks while it is 0,
    /// unless non-blocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]; [`Error::Interrupted`]; [`Error::Sealed`].
    pub fn read(&self) -> Result<u64, Error> {
        match self.try_read() {
            Err(Error::WouldBlock) if !self.flags().contains(CounterFlags::NONBLOCK) => {
                self.block(READERS, || self.try_read())
            }
            done => done,
        }
    }

    /// [`read`](Self::read) into bytes, as read(2) does it: the value in native byte order in the
    /// first eight.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `buffer` is shorter than 8 bytes; else as [`read`](Self::read).
    pub fn read_bytes(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (first, _) = buffer.split_first_chunk_mut::<8>().ok_or(Error::Invalid)?;
        *first = self.read()?.to_ne_bytes();
        Ok(8)
    }

    /// [`write`](Self::write) from bytes, as write(2) does it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `buffer` is not exactly 8 bytes long (older kernels took longer ones
    /// too); else as [`write`](Self::write).
    pub fn write_bytes(&self, buffer: &[u8]) -> Result<usize, Error> {
        let bytes = buffer.try_into().map_err(|_| Error::Invalid)?;
        self.write(u64::from_ne_bytes(bytes))?;
        Ok(8)
    }

    /// [`write`](Self::write) that never blocks, whatever the flags say.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for [`Error::Interrupted`].
    #[inline(always)]
    pub fn try_write(&self, n: u64) -> Result<(), Error> {
        let mut value = self.value.load(Ordering::Relaxed);
        loop {
            // Sealed (2^64−1) and n = 2^64−1 fail this too: no sum with them fits.
            if value > MAX.wrapping_sub(n) || n > MAX {
                return Err(self.refusal(value, n));
            }
            step!(count_before_write);
            // SeqCst: this publishes the new value. Below, the writer looks for blocked readers
            // ([`Blocked`]) and for watches (`wake_watch`); a reader or harvester that it does not
            // see then sees the value.
            match self.value.compare_exchange(value, value + n, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => value = now,
            }
        }
        step!(count_written);
        joint::signals();
        self.blocked.changed(mutant!("write_without_fence"), 1, READERS);
        self.queue.wake_published(Events::IN);
        Ok(())
    }

    #[cold]
    fn refusal(&self, value: u64, n: u64) -> Error {
        if n > MAX {
            Error::Invalid
        } else if value == SEALED {
            Error::Sealed
        } else {
            Error::WouldBlock
        }
    }

    /// [`read`](Self::read) that never blocks, whatever the flags say.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for [`Error::Interrupted`].
    #[inline(always)]
    pub fn try_read(&self) -> Result<u64, Error> {
        let semaphore = self.flags.load(Ordering::Relaxed) & CounterFlags::SEMAPHORE.bits() != 0;
        let mut value = self.value.load(Ordering::Relaxed);
        let mut raced = false;
        let taken = loop {
            match value {
                0 => return Err(Error::WouldBlock),
                SEALED => return Err(Error::Sealed),
                _ => {}
            }
            let taken = if semaphore { 1 } else { value };
            step!(count_before_read);
            match self.value.compare_exchange(
                value,
                value - taken,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => break taken,
                Err(_) => {
                    value = self.after_race(!raced);
                    raced = true;
                }
            }
        };
        step!(count_read);
        if !raced {
            let streak = self.streak.load(Ordering::Relaxed);
            if streak != 0 {
                self.streak.store(streak - 1, Ordering::Relaxed);
            }
        }
        if self.blocked.any(mutant!("read_without_fence")) {
            self.blocked.wake(ALL, WRITERS);
            if value != taken && !mutant!("read_wakes_no_reader") {
                // One write woke one reader; what it left is for the next.
                self.blocked.wake(1, READERS);
            }
        }
        self.queue.wake_published(Events::OUT);
        Ok(taken)
    }

    /// A writer on another CPU was faster. Each round of the two costs both several transfers of
    /// the cache line, so leave it to the writer for a moment and take what has come together;
    /// for longer if that happens again and again, because then writes come faster than reads
    /// can be made.
    #[cold]
    fn after_race(&self, first: bool) -> u64 {
        let streak = self.streak.load(Ordering::Relaxed);
        if first {
            self.streak.store((streak + 3).min(MOST_DOUBLINGS), Ordering::Relaxed);
        }
        pause(PAUSES << streak);
        self.value.load(Ordering::Relaxed)
    }

    /// The value it has now; `None` once sealed.
    pub fn value(&self) -> Option<u64> {
        Some(self.value.load(Ordering::SeqCst)).filter(|value| *value != SEALED)
    }

    /// What a counter with that value is ready for.
    #[doc(hidden)]
    pub fn events_of(value: u64) -> Events {
        let mut events = Events::empty();
        events.set(Events::IN, value != 0);
        events.set(Events::OUT, value < MAX);
        events
    }

    /// Takes the value out for good: from now on every operation fails with [`Error::Sealed`], at
    /// once, also in threads that are blocked. `None` if it was sealed already.
    ///
    /// For whoever carries the counter's state elsewhere, such as into a kernel eventfd. It wakes
    /// no watch.
    pub fn seal(&self) -> Option<u64> {
        let value = self.seal_with(|_| {});
        self.wake_sealed();
        value
    }

    /// The first half of [`seal`](Self::seal), with the value shown to `carry` *before* the counter
    /// is sealed (and again if it changes until then), so that whoever finds it sealed can know
    /// where its value is.
    #[doc(hidden)]
    pub fn seal_with(&self, mut carry: impl FnMut(u64)) -> Option<u64> {
        let mut value = self.value.load(Ordering::SeqCst);
        loop {
            if value == SEALED {
                return None;
            }
            if !mutant!("carry_after_seal") {
                carry(value);
            }
            match self.value.compare_exchange(value, SEALED, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(_) if mutant!("seal_without_compare") => {
                    break self.value.store(SEALED, Ordering::SeqCst);
                }
                Err(now) => value = now,
            }
        }
        if mutant!("carry_after_seal") {
            carry(value);
        }
        Some(value)
    }

    /// The second half of [`seal`](Self::seal): wakes who is blocked. Returns how many slept.
    #[doc(hidden)]
    #[inline]
    pub fn wake_sealed(&self) -> usize {
        if self.blocked.any(mutant!("seal_without_fence")) {
            let readers = self.blocked.wake(ALL, READERS);
            readers + self.blocked.wake(ALL, WRITERS)
        } else {
            0
        }
    }

    /// Begins another generation of a sealed counter.
    #[doc(hidden)]
    #[inline]
    pub fn unseal(&self, initial: u64, flags: CounterFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
        let reopens_first = mutant!("reopen_before_state");
        if reopens_first {
            self.queue.reopen();
        }
        // Release: a thread from before sees either the seal or the whole of the new generation,
        // and one that has the new object from its owner sees what that was published with.
        self.value.store(initial.min(MAX), Ordering::Release);
        // Last: a thread from before that adds a watch either finds the queue closed, or reports
        // what the new generation begins with.
        if !reopens_first {
            self.queue.reopen();
        }
    }

    /// Repeats a read until it does not block, sleeping in between.
    #[doc(hidden)]
    pub fn block_reader<T>(&self, attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        self.block(READERS, attempt)
    }

    /// Repeats a write until it does not block, sleeping in between.
    #[doc(hidden)]
    pub fn block_writer<T>(&self, attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        self.block(WRITERS, attempt)
    }

    fn block<T>(
        &self,
        class: NonZeroU32,
        attempt: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.blocked.block(|| mutant!("block_without_fence"), class, attempt)
    }
}

impl Source for Counter {
    /// `IN` when the value is not 0, `OUT` when at least 1 can be added.
    #[inline]
    fn poll(&self) -> Events {
        self.value().map_or(Events::empty(), Self::events_of)
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}
