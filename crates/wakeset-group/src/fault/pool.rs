//! A pool of threads that serve one userfaultfd.

use super::{Message, may_have_message};
use crate::leader::{Leadership, Waiter, Woken};
use crate::order::Order;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::{now, to_timespec};
use core::ffi::c_int;
use core::time::Duration;
use libc::pollfd;
use syscalls::{Errno, Sysno, syscall};

/// The threads that serve one userfaultfd of this process. Each thread takes one message (or a few)
/// with [`next`](Self::next), does what there is to do, and calls it again.
///
/// Another process may read the same userfaultfd; the kernel then wakes one thread of this process,
/// and the threads of the other.
///
/// Any number of threads may call any function at the same time. None of them is
/// async-signal-safe. A signal handler that leaves [`next`](Self::next) by a jump may strand the
/// other threads.
#[derive(Debug)]
pub struct Pool {
    fd: c_int,
    /// An eventfd that is ready from [`stop`](Self::stop) on.
    stop: c_int,
    blocks: bool,
    stopped: AtomicU32,
    /// `None`: every thread waits in the kernel.
    order: Option<Order>,
    leadership: Leadership,
}

impl Pool {
    /// A pool for this userfaultfd, which must stay open as long as the pool lives. It may be
    /// blocking or have `O_NONBLOCK`; that is asked once, here, and must not change.
    ///
    /// # Errors
    /// EBADF: `fd` is not open. EMFILE, ENFILE, ENOMEM: the pool could not make an eventfd.
    pub fn new(fd: c_int, order: Order) -> Result<Self, Errno> {
        Self::with_order(fd, Some(order))
    }

    /// A pool whose threads all wait in the kernel, where each message wakes all of them. For
    /// comparison.
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
            leadership: Leadership::new(),
        })
    }

    /// Waits for messages, at most for `limit` (`None`: without a limit), writes them to
    /// `messages`, and returns how many there are: at least one. A call with room for more than
    /// one takes work away from other threads; it pays only if faults of several threads can be
    /// served as fast together as apart.
    ///
    /// On a userfaultfd without `O_NONBLOCK`, the limit does not hold while this thread is the one
    /// that waits in the kernel.
    ///
    /// # Errors
    /// EINTR: a signal handler ran. ETIMEDOUT: the time is up. ECANCELED: the pool is stopped.
    /// EINVAL: `messages` is empty, or the userfaultfd has not been through `UFFDIO_API`.
    /// Otherwise as read(2) on a userfaultfd.
    pub fn next(&self, messages: &mut [Message], limit: Option<Duration>) -> Result<usize, Errno> {
        let deadline = limit.map(|limit| now().saturating_add(limit));
        let Some(order) = self.order else { return self.lead(messages, deadline) };
        self.become_leader(order, deadline)?;
        let result = self.lead(messages, deadline);
        self.leadership.pass(order);
        result
    }

    /// Whether there is a message that this thread may take before an heir that is on its way.
    fn has_event(&self) -> bool {
        self.leadership.awaits_heir() && may_have_message(self.fd)
    }

    /// Returns when this thread is the leader, or with an error when it is not.
    fn become_leader(&self, order: Order, deadline: Option<Duration>) -> Result<(), Errno> {
        let waiter = Waiter::new(None);
        self.check()?;
        // SAFETY: the waiter stays where it is until it is out of the queue, below.
        if unsafe { self.leadership.join(&waiter, usize::MAX, self.has_event()) } {
            return self.check().inspect_err(|_| self.leadership.pass(order));
        }
        // A stop between the first check and the join may have found the queue empty.
        let result = self.wait_in_queue(&waiter, order, deadline);
        if result.is_err() {
            self.leadership.leave(&waiter, order);
        }
        result
    }

    fn wait_in_queue(
        &self,
        waiter: &Waiter,
        order: Order,
        deadline: Option<Duration>,
    ) -> Result<(), Errno> {
        loop {
            self.check()?;
            let left = deadline.map(|deadline| deadline.saturating_sub(now()));
            match waiter.sleep(left.map(to_timespec).as_ref()) {
                // SAFETY: as in `become_leader`.
                Woken::Heir if unsafe { self.leadership.come(waiter, usize::MAX, order) } => {
                    return Ok(());
                }
                // Another thread has come before it.
                Woken::Heir => {}
                Woken::Out => return Err(Errno::ECANCELED),
                Woken::Interrupted => return Err(Errno::EINTR),
                Woken::TimedOut if left == Some(Duration::ZERO) => return Err(Errno::ETIMEDOUT),
                Woken::TimedOut => {}
            }
        }
    }

    /// Waits in the kernel, as the leader does.
    fn lead(&self, messages: &mut [Message], deadline: Option<Duration>) -> Result<usize, Errno> {
        loop {
            self.check()?;
            let len = size_of_val(messages);
            // SAFETY: memory of the caller's; any bits are messages.
            match unsafe { syscall!(Sysno::read, self.fd, messages.as_mut_ptr(), len) } {
                Ok(len) => return Ok(len / size_of::<Message>()),
                Err(Errno::EAGAIN) if !self.blocks => self.wait_in_kernel(deadline)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_in_kernel(&self, deadline: Option<Duration>) -> Result<(), Errno> {
        let mut wanted =
            [self.fd, self.stop].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        let left = deadline.map(|deadline| to_timespec(deadline.saturating_sub(now())));
        let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: two entries, a limit or null, and no mask.
        match unsafe { syscall!(Sysno::ppoll, wanted.as_mut_ptr(), 2, left, 0, 0) }? {
            0 => Err(Errno::ETIMEDOUT),
            // A descriptor that can never be read must not be polled for ever.
            _ if wanted[0].revents & (libc::POLLERR | libc::POLLNVAL) != 0 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Errno> {
        if self.stopped.load(Ordering::SeqCst) == 0 { Ok(()) } else { Err(Errno::ECANCELED) }
    }

    /// Ends the calls of [`next`](Self::next) under way, and all later ones, with ECANCELED. There
    /// is no way back. The call of the thread that waits in the kernel on a userfaultfd without
    /// `O_NONBLOCK` ends with its next message.
    pub fn stop(&self) {
        self.stopped.store(1, Ordering::SeqCst);
        let one = 1_u64;
        // SAFETY: eight bytes of ours.
        let _ = unsafe { syscall!(Sysno::write, self.stop, &raw const one, 8) };
        self.leadership.disband();
    }

    /// How often the leadership went from one thread to another.
    #[must_use]
    pub fn handed_on(&self) -> u64 {
        self.leadership.handed_on()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: ours, and no thread uses it any more.
        let _ = unsafe { syscall!(Sysno::close, self.stop) };
    }
}
