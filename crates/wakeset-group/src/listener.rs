//! Threads and processes that share a listening socket: one connection wakes one of them.
//!
//! Every waiter has an epoll set of its own that watches the listener with `EPOLLEXCLUSIVE` (Linux 4.5). Such watches stand in the
//! listener's wait queue in the order they were added; a connection wakes the first whose set somebody sleeps in, and passes
//! over those of the busy. Waiters therefore need not know each other: nothing is shared but the kernel's queue, and any of them may
//! die at any time.
//!
//! | order | what a waiter does | who is woken | price |
//! |---|---|---|---|
//! | [`Order::Fifo`] | removes its watch and adds it again before it sleeps, if it was woken since | who has been idle longest | two calls of epoll_ctl(2) per connection |
//! | [`Order::Lifo`] | keeps its place | the first in the queue that is idle: few stay busy, their caches warm | the load is as uneven as can be |
//!
//! Adding a watch polls the listener, so a connection that comes in between is not lost.
//!
//! **A waiter that dies or hangs** after it was woken and before it has accepted takes the wake with it; the next one comes with the
//! next connection. So no sleep lasts longer than [`RESCUE`], after which the waiter looks for itself: a
//! connection waits no longer than that for a waiter that is idle.

mod kernel;
mod sleeper;

pub use crate::order::Order;
use core::ffi::c_int;
use core::time::Duration;
use libc::{epoll_event, timespec};
pub use sleeper::{Fired, MOST, Obstacle, Sleeper, Wanted};
pub use syscalls::Errno;
use wakeset::{Deadline, Timeout};

/// The longest sleep without a look at the listener.
pub const RESCUE: Duration = Duration::from_secs(1);

/// Whether a descriptor is a listening socket.
///
/// # Errors
/// As getsockopt(2) with `SO_ACCEPTCONN`: EBADF, ENOTSOCK.
pub fn is_listening(fd: c_int) -> Result<bool, Errno> {
    kernel::is_listening(fd)
}

/// Whether poll(2) has anything to say of a listener now: a connection, or its end.
pub fn is_ready(fd: c_int) -> bool {
    kernel::is_ready(fd)
}

/// A listening socket and the order in which its waiters are woken: what the waiters of one program have to agree on.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
/// use std::os::fd::AsRawFd;
/// use wakeset_group::listener::{Group, Order};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// listener.set_nonblocking(true)?;
/// let group = Group::new(listener.as_raw_fd(), Order::Fifo).expect("a listener");
/// let mut waiter = group.waiter();
/// let client = TcpStream::connect(listener.local_addr()?)?;
/// assert_eq!(waiter.wait(None), Ok(true));
/// let (server, _) = listener.accept()?;
/// # drop((client, server));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    listener: c_int,
    order: Order,
}

impl Group {
    /// The group of a listening socket, which stays open as long as the group and its waiters are used. It should be non-blocking:
    /// another may be faster with accept(2).
    ///
    /// # Errors
    /// EBADF, ENOTSOCK; EINVAL if it does not listen.
    pub fn new(listener: c_int, order: Order) -> Result<Self, Errno> {
        match is_listening(listener)? {
            true => Ok(Self { listener, order }),
            false => Err(Errno::EINVAL),
        }
    }

    /// A waiter; each thread and each process uses its own. The first wait puts it at the end of the queue.
    pub fn waiter(&self) -> Waiter {
        Waiter { group: *self, process: 0, sleeper: Sleeper::new() }
    }
}

/// One of those who wait for connections to a [`Group`]'s listener.
#[derive(Debug)]
pub struct Waiter {
    group: Group,
    /// Who made the set; in a forked child another one is made.
    process: c_int,
    sleeper: Sleeper,
}

impl Waiter {
    /// Sleeps until it is this waiter's turn with a connection (`true`), or until the time is up (`false`); `None` is no limit. The
    /// signal mask stays as it is.
    ///
    /// Another may be faster with accept(2), which then says EAGAIN: wait again. A listener that was shut down counts as ready, as for
    /// poll(2).
    ///
    /// # Errors
    /// EINTR if a signal handler ran, or the process was stopped and continued; EBADF, ENOTSOCK or EINVAL if the descriptor is no longer
    /// a listening socket; EINVAL before Linux 4.5; EMFILE, ENFILE, ENOMEM and ENOSPC as epoll_create1(2) and epoll_ctl(2).
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<bool, Errno> {
        let deadline = Deadline::of(Timeout::from(limit));
        let listener = self.group.listener;
        self.prepare()?;
        loop {
            let left = deadline.map_or(RESCUE, |deadline| deadline.remaining().min(RESCUE));
            let limit = timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut event = [epoll_event { events: 0, u64: 0 }];
            kernel::epoll_wait(self.sleeper.set(), &mut event, limit)?;
            // Also when nothing woke it: that is the rescue.
            if is_ready(listener) {
                self.sleeper.note_report(listener);
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return Ok(false);
            }
        }
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        let wanted = [Wanted { fd: self.group.listener, events: libc::EPOLLIN as u32, listener: true }];
        if self.process != kernel::getpid() {
            self.renew()?;
        }
        let mut result = self.sleeper.prepare(&wanted, self.group.order);
        if result == Err(Obstacle::Stale) {
            self.renew()?;
            result = self.sleeper.prepare(&wanted, self.group.order);
        }
        match result {
            Ok(()) => Ok(()),
            Err(Obstacle::Refused(error)) => Err(error),
            Err(Obstacle::Stale) => Err(Errno::EBADF),
        }
    }

    /// Begins with a new set. The old one, which a forked child may have inherited, is closed.
    fn renew(&mut self) -> Result<(), Errno> {
        let set = kernel::epoll_create()?;
        self.close();
        self.sleeper.adopt(set);
        self.process = kernel::getpid();
        Ok(())
    }

    fn close(&mut self) {
        if self.process != 0 {
            kernel::close(self.sleeper.set());
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.close();
    }
}
