//! Rings shared with another process, by descriptor number: [`wakeset::RingWriter`] for the sets of the descriptor table.
//!
//! While a set has in-process watches only, its events go from its ready list straight into the shared memory. One that has a kernel half, or has moved
//! into the kernel, is asked by epoll_wait(2) whenever the reader has taken all there was: so a level is not written a second time before it has been
//! taken, here neither.

use crate::calls;
use crate::section::Section;
use crate::set::FdSet;
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Using};
use crate::wait::Settled;
use core::ffi::c_int;
use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::epoll_event;
use wakeset::{Deadline, Error, Event, Events, RingReader, Timeout, Woken};

/// Events that go from a kernel half to the reader at a time.
const BATCH: usize = 64;

/// The side that writes. See [`wakeset::RingWriter`].
///
/// It keeps the set alive, as a wait does; drop it before the set's number is closed. A forked child must not use it.
pub struct Writer {
    // Dropped first: it borrows from the set that `set` keeps.
    writer: wakeset::RingWriter<'static>,
    set: Using<FdSet>,
    epfd: c_int,
}

/// How to get at what is ready.
enum Way {
    /// Straight from the ready list.
    Direct,
    /// By epoll_wait(2).
    Wait,
}

fn errno(error: Error) -> Errno {
    Errno::new(error.errno())
}

impl Writer {
    /// Shared memory for `entries` events of the set `epfd`, rounded up to a power of two. Nobody else should take events of that set from now on.
    ///
    /// # Errors
    /// EBADF; EOPNOTSUPP if it is no set, or one that lives in the kernel; EINVAL if `entries` is 0 or more than 2^20; EMFILE, ENFILE, ENOMEM.
    pub fn new(epfd: c_int, entries: u32) -> Result<Self, Errno> {
        let _section = Section::enter();
        loop {
            let slot = match table::get(epfd) {
                Entry::Set(slot) => slot,
                Entry::Bell => return Err(Errno::EBADF),
                _ => {
                    sys::fcntl(epfd, libc::F_GETFD, 0)?;
                    return Err(Errno::EOPNOTSUPP);
                }
            };
            let Some(set) = Using::begin(epfd, slot) else { continue };
            let writer = wakeset::RingWriter::new(&slot.set, entries).map_err(errno)?;
            return Ok(Self { writer, set, epfd });
        }
    }

    /// The descriptor to pass to the other process, which opens it with [`open_reader`]. It is the writer's, and closed on exec.
    pub fn fd(&self) -> c_int {
        self.writer.fd()
    }

    /// How many events it holds.
    pub fn capacity(&self) -> usize {
        self.writer.capacity()
    }

    fn way(&self) -> Result<Way, Errno> {
        match table::get(self.epfd) {
            _ if self.set.closed.load(Ordering::SeqCst) => Err(Errno::EBADF),
            Entry::Set(set) if ptr::eq(set, &*self.set) => Ok(if set.is_pure() { Way::Direct } else { Way::Wait }),
            Entry::Kernel if self.set.in_kernel.load(Ordering::SeqCst) => Ok(Way::Wait),
            _ => Err(Errno::EBADF),
        }
    }

    /// Writes what is ready and fits, without waiting; how many.
    ///
    /// # Errors
    /// EBADF: the number stands for another set by now. EPROTO: what the reader says it has taken cannot be; nothing is written as long as it says so. ENOMEM.
    pub fn pump(&mut self) -> Result<usize, Errno> {
        match self.way()? {
            Way::Direct => {
                let settled = Settled::now(&self.set);
                let section = Section::enter();
                let written = self.writer.pump().map_err(errno)?;
                drop(section);
                if written > 0 || self.set.is_pure() && settled.still(&self.set) {
                    return Ok(written);
                }
                // It has moved meanwhile, or what it watches.
                self.wait(Timeout::Now)
            }
            Way::Wait => self.wait(Timeout::Now),
        }
    }

    /// What one wait in the set has, if the reader has taken everything.
    fn wait(&mut self, timeout: Timeout) -> Result<usize, Errno> {
        if !self.writer.is_drained().map_err(errno)? {
            return Ok(0);
        }
        let milliseconds = match timeout {
            Timeout::Now => 0,
            Timeout::Never => -1,
            // Rounded up so as not to end early.
            Timeout::After(limit) => c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX),
        };
        let mut events = [epoll_event { events: 0, u64: 0 }; BATCH];
        let room = BATCH.min(self.capacity()) as c_int;
        // SAFETY: there is room for so many.
        let found = unsafe { calls::epoll_wait(self.epfd, events.as_mut_ptr(), room, milliseconds) }?;
        let found = events.iter().take(found as usize);
        let events = found.map(|event| Event::new(Events::from_bits_retain(event.events), event.u64));
        self.writer.write(events).map_err(errno)
    }

    /// [`pump`](Self::pump) that waits until there is something to write and room for it. Returns 0 when the time is up.
    ///
    /// # Errors
    /// As [`pump`](Self::pump); EINTR if a signal handler ran while it slept.
    pub fn pump_waiting(&mut self, timeout: Timeout) -> Result<usize, Errno> {
        let deadline = Deadline::of(timeout);
        loop {
            let written = self.pump()?;
            if written > 0 || timeout == Timeout::Now {
                return Ok(written);
            }
            let woken = match self.way()? {
                Way::Direct => {
                    let set = &*self.set;
                    let woken = self.writer.sleep_once(|| set.is_pure(), deadline);
                    set.set.mind_deadline();
                    woken
                }
                Way::Wait if self.writer.is_drained().map_err(errno)? => {
                    let left = deadline.map(Deadline::remaining);
                    match self.wait(left.into())? {
                        0 if left.is_some_and(|left| left.is_zero()) => Woken::TimedOut,
                        0 => Woken::Kicked,
                        written => return Ok(written),
                    }
                }
                Way::Wait => self.writer.sleep_for_reader(deadline),
            };
            match woken {
                Woken::Kicked => {}
                Woken::TimedOut => return self.pump(),
                Woken::Interrupted => match self.pump()? {
                    0 => return Err(Errno::EINTR),
                    written => return Ok(written),
                },
            }
        }
    }
}

/// Maps what a [`Writer`]'s process has passed on; the descriptor may be closed afterwards. One reader for a ring.
///
/// # Errors
/// EBADF; EINVAL if it is none of those: no memfd, one that could still shrink, or of no size that a ring has; ENOMEM.
pub fn open_reader(fd: c_int) -> Result<RingReader, Errno> {
    if matches!(table::get(fd), Entry::Bell) {
        return Err(Errno::EBADF);
    }
    sys::fcntl(fd, libc::F_GETFD, 0)?;
    // SAFETY: it is open; a program that closes it meanwhile gets an error for it.
    unsafe { RingReader::open(fd) }.map_err(errno)
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("epfd", &self.epfd).field("writer", &self.writer).finish_non_exhaustive()
    }
}
