//! Threads that serve one userfaultfd: one fault wakes one of them.
//!
//! Linux wakes every thread that reads or polls a userfaultfd for each fault, and all but one go back to sleep. In a [`Pool`] one
//! thread at a time waits in the kernel; see [`turn`](crate::turn).

use crate::order::Order;
use crate::sync::{AtomicU32, Ordering};
use crate::turn::{Turns, Waiter, Woken};
use core::ffi::c_int;
use core::time::Duration;
use libc::{pollfd, timespec};
use syscalls::{Errno, Sysno, syscall};

/// What a userfaultfd reports: `struct uffd_msg` of ioctl_userfaultfd(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message([u64; 4]);

/// `UFFD_EVENT_PAGEFAULT`.
pub const EVENT_PAGEFAULT: u8 = 0x12;
/// `UFFD_EVENT_FORK`.
pub const EVENT_FORK: u8 = 0x13;
/// `UFFD_EVENT_REMAP`.
pub const EVENT_REMAP: u8 = 0x14;
/// `UFFD_EVENT_REMOVE`.
pub const EVENT_REMOVE: u8 = 0x15;
/// `UFFD_EVENT_UNMAP`.
pub const EVENT_UNMAP: u8 = 0x16;

impl Message {
    /// What has happened, [`EVENT_PAGEFAULT`] say.
    #[must_use]
    pub fn event(&self) -> u8 {
        self.0[0].to_ne_bytes()[0]
    }

    /// The three words of the event: for a page fault the flags, the address, and the thread in the low half of the third; for a fork
    /// the new userfaultfd in the low half of the first; for a remap from, to and length; for a remove or an unmap start and end.
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        [self.0[1], self.0[2], self.0[3]]
    }

    /// Where a thread waits for a page; of [`EVENT_PAGEFAULT`] only.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0[2]
    }
}

/// The threads that serve one userfaultfd of this process. Each takes one message (or a few) by [`next`](Self::next), does what there is to do,
/// and comes back.
///
/// Another process may read the same userfaultfd; the kernel wakes one thread of this one and those of the other.
///
/// Not async-signal-safe. A signal handler that leaves [`next`](Self::next) by a jump may strand the other threads.
#[derive(Debug)]
pub struct Pool {
    fd: c_int,
    /// An eventfd that is ready from [`stop`](Self::stop) on.
    stop: c_int,
    blocks: bool,
    stopped: AtomicU32,
    /// `None`: the kernel's.
    order: Option<Order>,
    turns: Turns,
}

impl Pool {
    /// A pool for this userfaultfd, which the caller keeps open as long as the pool lives. It may be blocking or not (`O_NONBLOCK`), and stays
    /// what it is.
    ///
    /// # Errors
    /// EBADF: `fd` is not open. EMFILE, ENFILE, ENOMEM: there is no eventfd to be had.
    pub fn new(fd: c_int, order: Order) -> Result<Self, Errno> {
        Self::with_order(fd, Some(order))
    }

    /// A pool whose threads leave the order to the kernel: all of them wait there, and each message wakes all. For comparison.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn unordered(fd: c_int) -> Result<Self, Errno> {
        Self::with_order(fd, None)
    }

    fn with_order(fd: c_int, order: Option<Order>) -> Result<Self, Errno> {
        // SAFETY: numbers only.
        let flags = unsafe { syscall!(Sysno::fcntl, fd, libc::F_GETFL, 0) }?;
        // SAFETY: numbers only.
        let stop = unsafe { syscall!(Sysno::eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }?;
        Ok(Self {
            fd,
            stop: stop as c_int,
            blocks: flags as c_int & libc::O_NONBLOCK == 0,
            stopped: AtomicU32::new(0),
            order,
            turns: Turns::new(),
        })
    }

    /// Waits for messages, at most for `limit`, and returns how many there are: at least one. Ask for more than one at a time only if
    /// faults of several threads are served as fast together as apart.
    ///
    /// The limit needs a userfaultfd with `O_NONBLOCK` to hold while this thread is the one that waits in the kernel.
    ///
    /// # Errors
    /// EINTR: a signal handler ran. ETIMEDOUT: the time is up. ECANCELED: the pool is stopped. EINVAL: `messages` is empty, or the userfaultfd
    /// has not been through `UFFDIO_API`. Otherwise as read(2) on a userfaultfd.
    pub fn next(&self, messages: &mut [Message], limit: Option<Duration>) -> Result<usize, Errno> {
        let deadline = limit.map(|limit| now().saturating_add(limit));
        let Some(order) = self.order else { return self.lead(messages, deadline) };
        self.take_turn(order, deadline)?;
        let result = self.lead(messages, deadline);
        self.turns.pass(order);
        result
    }

    /// Returns with the turn, or an error without it.
    fn take_turn(&self, order: Order, deadline: Option<Duration>) -> Result<(), Errno> {
        let waiter = Waiter::new(None);
        self.check()?;
        // SAFETY: the waiter stays where it is until it is out of the queue, below.
        if unsafe { self.turns.join(&waiter, usize::MAX) } {
            return self.check().inspect_err(|_| self.turns.pass(order));
        }
        // A stop between the first look and the join may have found the queue empty.
        let result = self.check().and_then(|()| Self::wait_in_queue(&waiter, deadline));
        if result.is_err() {
            self.turns.leave(&waiter, order);
        }
        result
    }

    fn wait_in_queue(waiter: &Waiter, deadline: Option<Duration>) -> Result<(), Errno> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(now()));
            match waiter.sleep(left.map(to_timespec).as_ref()) {
                Woken::Given => return Ok(()),
                Woken::Out => return Err(Errno::ECANCELED),
                Woken::Interrupted => return Err(Errno::EINTR),
                Woken::TimedOut if left == Some(Duration::ZERO) => return Err(Errno::ETIMEDOUT),
                Woken::TimedOut => {}
            }
        }
    }

    /// Waits in the kernel.
    fn lead(&self, messages: &mut [Message], deadline: Option<Duration>) -> Result<usize, Errno> {
        loop {
            self.check()?;
            let len = size_of_val(messages);
            // SAFETY: memory of the caller's, of which any bits are messages.
            match unsafe { syscall!(Sysno::read, self.fd, messages.as_mut_ptr(), len) } {
                Ok(len) => return Ok(len / size_of::<Message>()),
                Err(Errno::EAGAIN) if !self.blocks => self.wait_in_kernel(deadline)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_in_kernel(&self, deadline: Option<Duration>) -> Result<(), Errno> {
        let mut wanted = [self.fd, self.stop].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        let left = deadline.map(|deadline| to_timespec(deadline.saturating_sub(now())));
        let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: two entries, a limit or null, and no mask.
        match unsafe { syscall!(Sysno::ppoll, wanted.as_mut_ptr(), 2, left, 0, 0) }? {
            0 => Err(Errno::ETIMEDOUT),
            // A descriptor that can never be read must not be asked for ever.
            _ if wanted[0].revents & (libc::POLLERR | libc::POLLNVAL) != 0 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Errno> {
        if self.stopped.load(Ordering::SeqCst) == 0 { Ok(()) } else { Err(Errno::ECANCELED) }
    }

    /// Ends the calls under way and all later ones with ECANCELED, for good. One that waits in the kernel on a userfaultfd without `O_NONBLOCK` ends with
    /// its next message.
    pub fn stop(&self) {
        self.stopped.store(1, Ordering::SeqCst);
        let one = 1_u64;
        // SAFETY: eight bytes of ours.
        let _ = unsafe { syscall!(Sysno::write, self.stop, &raw const one, 8) };
        self.turns.disband();
    }

    /// How often a thread has handed its turn to another one.
    #[must_use]
    pub fn handed_on(&self) -> u64 {
        self.turns.handed_on()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it any more.
        let _ = unsafe { syscall!(Sysno::close, self.stop) };
    }
}

/// The monotonic clock.
pub(crate) fn now() -> Duration {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time. It cannot fail.
    let _ = unsafe { syscall!(Sysno::clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn to_timespec(time: Duration) -> timespec {
    let seconds = time.as_secs().min(libc::time_t::MAX as u64) as libc::time_t;
    timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}
