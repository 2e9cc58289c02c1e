//! Event rings shared with another process, by descriptor number: [`wakeset::RingWriter`] for the
//! sets of the descriptor table.
//!
//! While a set has in-process watches only, its events go from its ready list straight into the
//! shared memory. A set that has a kernel half, or has migrated, is asked by epoll_wait(2) whenever
//! the reader has taken all there was. So there, too, a level is not written a second time before
//! the reader has taken it.

use crate::set::FdSet;
use crate::set::complete;
use crate::set::wait::Settled;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno};
use crate::table::object::Object;
use crate::table::{self, Entry, Using};
use core::ffi::c_int;
use core::fmt;
use core::ptr;
use libc::epoll_event;
use wakeset::{Deadline, Error, Event, Events, RingReader, Timeout, Woken};

/// Events that go from a kernel half to the reader at a time.
const BATCH: usize = 64;

/// The writer's side of a shared event ring. See [`wakeset::RingWriter`].
///
/// It keeps the set alive, as a wait does, so it has to be dropped before the set's number is
/// closed. A forked child must not use it.
pub struct Writer {
    // Dropped first: it borrows from the set that `set` keeps.
    writer: wakeset::RingWriter<'static>,
    set: Using<FdSet>,
    epfd: c_int,
}

/// How events get from the set into the ring.
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
    /// Makes shared memory for `entries` events of the set `epfd`, rounded up to a power of two. No
    /// other thread should take events of that set from now on.
    ///
    /// # Errors
    /// EBADF. EOPNOTSUPP: the number is no set, or a set that lives in the kernel. EINVAL:
    /// `entries` is 0 or more than 2^20. EMFILE, ENFILE, ENOMEM.
    pub fn new(epfd: c_int, entries: u32) -> Result<Self, Errno> {
        let _guard = SignalGuard::enter();
        loop {
            let entry = table::get(epfd);
            if matches!(entry, Entry::Doorbell) {
                return Err(Errno::EBADF);
            }
            let Some(slot) = entry.downcast::<FdSet>() else {
                sys::fcntl(epfd, libc::F_GETFD, 0)?;
                return Err(Errno::EOPNOTSUPP);
            };
            let Some(set) = Using::begin(epfd, slot) else { continue };
            let writer = wakeset::RingWriter::new(&slot.set, entries).map_err(errno)?;
            return Ok(Self { writer, set, epfd });
        }
    }

    /// The descriptor to pass to the other process, which opens it with [`open_reader`]. It belongs
    /// to the writer, and is closed on exec.
    pub fn fd(&self) -> c_int {
        self.writer.fd()
    }

    /// How many events the ring holds.
    pub fn capacity(&self) -> usize {
        self.writer.capacity()
    }

    fn way(&self) -> Result<Way, Errno> {
        match table::get(self.epfd) {
            _ if self.set.state.is_closed() => Err(Errno::EBADF),
            Entry::Object(object) if ptr::eq(object, self.set.head()) => {
                Ok(if self.set.state.is_pure() { Way::Direct } else { Way::Wait })
            }
            Entry::Kernel if self.set.state.is_in_kernel() => Ok(Way::Wait),
            _ => Err(Errno::EBADF),
        }
    }

    /// Writes the events that are ready and fit, without waiting, and returns how many.
    ///
    /// # Errors
    /// EBADF: the number stands for another set by now. EPROTO: the reader claims to have taken
    /// what it cannot have taken; nothing is written as long as it does. ENOMEM.
    pub fn pump(&mut self) -> Result<usize, Errno> {
        match self.way()? {
            Way::Direct => {
                let settled = Settled::now(&self.set);
                let section = SignalGuard::enter();
                let written = self.writer.pump().map_err(errno)?;
                drop(section);
                if written > 0 || self.set.state.is_pure() && settled.still(&self.set) {
                    return Ok(written);
                }
                // The set has migrated meanwhile, or something that it watches has.
                self.wait(Timeout::Now)
            }
            Way::Wait => self.wait(Timeout::Now),
        }
    }

    /// Writes what one wait in the set returns, if the reader has taken everything.
    fn wait(&mut self, timeout: Timeout) -> Result<usize, Errno> {
        if !self.writer.is_drained().map_err(errno)? {
            return Ok(0);
        }
        let milliseconds = match timeout {
            Timeout::Now => 0,
            Timeout::Never => -1,
            // Rounded up so as not to end early.
            Timeout::After(limit) => {
                c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
            }
        };
        let mut events = [epoll_event { events: 0, u64: 0 }; BATCH];
        let room = BATCH.min(self.capacity()) as c_int;
        // SAFETY: there is memory for so many.
        let found =
            unsafe { complete::epoll_wait(self.epfd, events.as_mut_ptr(), room, milliseconds) }?;
        let found = events.iter().take(found as usize);
        let events =
            found.map(|event| Event::new(Events::from_bits_retain(event.events), event.u64));
        self.writer.write(events).map_err(errno)
    }

    /// As [`pump`](Self::pump), but waits until there is something to write and room for it.
    /// Returns 0 when the time is up.
    ///
    /// # Errors
    /// As [`pump`](Self::pump). EINTR: a signal handler ran during the sleep.
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
                    let woken = self.writer.sleep_once(|| set.state.is_pure(), deadline);
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

/// Maps the shared memory that the process of a [`Writer`] has passed on. The descriptor may be
/// closed afterwards. A ring has one reader.
///
/// # Errors
/// EBADF. EINVAL: the descriptor is no such memory; it is no memfd, or could still shrink, or has a
/// size that no ring has. ENOMEM.
pub fn open_reader(fd: c_int) -> Result<RingReader, Errno> {
    if matches!(table::get(fd), Entry::Doorbell) {
        return Err(Errno::EBADF);
    }
    sys::fcntl(fd, libc::F_GETFD, 0)?;
    // SAFETY: it is open; if the program closes it meanwhile, the call fails.
    unsafe { RingReader::open(fd) }.map_err(errno)
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("epfd", &self.epfd)
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}
