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
//! | [`Order::Turns`] | the same, once it was woken [`Order::TURN`] times | the same one for a while, then the next | none to speak of; what waits behind it is idle for longer |
//! | [`Order::Lifo`] | keeps its place | the first in the queue that is idle: few stay busy, their caches warm | the load is as uneven as can be |
//!
//! Adding a watch polls the listener, so a connection that comes in between is not lost.
//!
//! **A waiter that dies or hangs** after it was woken and before it has accepted takes the wake with it; the next one comes with the
//! next connection. So nobody sleeps longer than [`RESCUE`] without a look for himself: a
//! connection waits no longer than that for a waiter that is idle.

mod kernel;
mod sleeper;

pub use crate::order::Order;
use core::ffi::c_int;
use core::time::Duration;
use libc::{epoll_event, pollfd};
pub use sleeper::{Fired, MOST, Numbers, Obstacle, Sleeper, Wanted};
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

/// What two numbers of one socket have in common, and no other socket has.
pub fn inode(fd: c_int) -> Option<u64> {
    kernel::inode(fd)
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
    /// `None`: the kernel's.
    order: Option<Order>,
}

impl Group {
    /// The group of a listening socket, which stays open as long as the group and its waiters are used. It should be non-blocking:
    /// another may be faster with accept(2).
    ///
    /// # Errors
    /// EBADF, ENOTSOCK; EINVAL if it does not listen.
    pub fn new(listener: c_int, order: Order) -> Result<Self, Errno> {
        Self::with_order(listener, Some(order))
    }

    /// A group whose waiters leave the order to the kernel, as poll(2) does: a connection wakes all of them. For comparison, and for
    /// who must not wait for a listener in any other way.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn unordered(listener: c_int) -> Result<Self, Errno> {
        Self::with_order(listener, None)
    }

    fn with_order(listener: c_int, order: Option<Order>) -> Result<Self, Errno> {
        match is_listening(listener)? {
            true => Ok(Self { listener, order }),
            false => Err(Errno::EINVAL),
        }
    }

    /// A waiter; each thread and each process uses its own. The first wait puts it at the end of the queue.
    pub fn waiter(&self) -> Waiter {
        Waiter { group: *self, process: 0, timer: -1, sleeper: Sleeper::new() }
    }
}

/// One of those who wait for connections to a [`Group`]'s listener. It has an epoll set and a timerfd.
#[derive(Debug)]
pub struct Waiter {
    group: Group,
    /// Whose descriptors these are; in a forked child others are made. 0: there are none yet.
    process: u32,
    /// Looks at the listener are due when it is ready; -1 for none.
    timer: c_int,
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
        self.wait_beside(&mut [], limit)
    }

    /// As [`wait`](Self::wait), and ends as well (`false`) when poll(2) has something to say of one of `others`, whose `revents` are written as
    /// that does. An entry with a negative number is ignored.
    ///
    /// A number that comes to stand for something else has to be left out of one call in between.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and for the others EBADF if one is closed, EPERM if it is a regular file, EINVAL if it is the listener or is there
    /// twice, and E2BIG if there are [`MOST`] or more.
    pub fn wait_beside(&mut self, others: &mut [pollfd], limit: Option<Duration>) -> Result<bool, Errno> {
        let deadline = Deadline::of(Timeout::from(limit));
        let mut wanted = [Wanted::NONE; MOST];
        let wanted = self.fill(&mut wanted, others)?;
        others.iter_mut().for_each(|other| other.revents = 0);
        let Some(order) = self.group.order else {
            return self.sleep_unordered(others, deadline.map(Deadline::remaining));
        };
        let mut numbers = Numbers::Same;
        if self.process != wakeset::process_id() {
            self.renew()?;
            numbers = Numbers::Unknown;
        }
        if self.sleeper.is_worth_a_look(wanted, order) {
            // What is there already needs no place in the queue.
            if let Some(ended) = self.sleep(others, Some(Duration::ZERO), false)? {
                return Ok(ended);
            }
        }
        self.prepare(wanted, order, numbers)?;
        loop {
            let left = deadline.map(Deadline::remaining);
            if let Some(ended) = self.sleep(others, left, true)? {
                return Ok(ended);
            }
            if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return Ok(false);
            }
        }
    }

    /// The listener and the others.
    fn fill<'a>(&self, wanted: &'a mut [Wanted; MOST], others: &[pollfd]) -> Result<&'a [Wanted], Errno> {
        let listener = self.group.listener;
        let mut len = 0;
        let mut push = |fd, events, listener| {
            let (before, after) = wanted.split_at_mut(len);
            if before.iter().any(|before: &Wanted| before.fd == fd) {
                return Err(Errno::EINVAL);
            }
            *after.first_mut().ok_or(Errno::E2BIG)? = Wanted { fd, events, listener };
            len += 1;
            Ok(())
        };
        push(listener, libc::EPOLLIN as u32, true)?;
        for other in others.iter().filter(|other| other.fd >= 0) {
            push(other.fd, u32::from(other.events as u16), false)?;
        }
        Ok(wanted.get(..len).unwrap_or_default())
    }

    /// One sleep; `None` if there is nothing to tell. After one in vain it `looks` for itself.
    fn sleep(&mut self, others: &mut [pollfd], left: Option<Duration>, looks: bool) -> Result<Option<bool>, Errno> {
        // Without a timer each sleep has its end.
        let limit = if self.sleeper.is_timed() { left } else { Some(left.unwrap_or(RESCUE).min(RESCUE)) };
        let mut events = [epoll_event { events: 0, u64: 0 }; 8];
        let found = kernel::epoll_wait(self.sleeper.set(), &mut events, limit)?;
        let mut fired = self.sleeper.sort(events.get(..found).unwrap_or_default());
        if fired.timer && kernel::set_timer(self.timer, RESCUE).is_err() {
            // Somebody has closed what is not his.
            self.sleeper.forget_timer();
        }
        if fired.other && kernel::poll_now(others)? == 0 {
            fired.other = false;
        }
        let listener = self.group.listener;
        // Also when nothing woke it: that is the rescue.
        if fired.listener || (fired.timer || found == 0 && looks) && is_ready(listener) {
            self.sleeper.note_report(listener);
            return Ok(Some(true));
        }
        Ok(fired.other.then_some(false))
    }

    /// The wait of a group whose order is the kernel's: poll(2) itself.
    fn sleep_unordered(&self, others: &mut [pollfd], left: Option<Duration>) -> Result<bool, Errno> {
        let listener = self.group.listener;
        if !is_listening(listener)? {
            return Err(Errno::EINVAL);
        }
        let mut entries = [pollfd { fd: -1, events: 0, revents: 0 }; MOST];
        let entries = entries.get_mut(..=others.len()).ok_or(Errno::E2BIG)?;
        let [first, rest @ ..] = entries else { return Err(Errno::E2BIG) };
        *first = pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        rest.copy_from_slice(others);
        kernel::poll(entries, left)?;
        let [first, rest @ ..] = entries else { return Err(Errno::E2BIG) };
        if rest.iter().any(|other| other.revents & libc::POLLNVAL != 0) {
            return Err(Errno::EBADF);
        }
        others.copy_from_slice(rest);
        Ok(first.revents != 0)
    }

    fn prepare(&mut self, wanted: &[Wanted], order: Order, numbers: Numbers) -> Result<(), Errno> {
        let mut result = self.sleeper.prepare(wanted, order, numbers);
        if result == Err(Obstacle::Stale) {
            self.renew()?;
            result = self.sleeper.prepare(wanted, order, Numbers::Unknown);
        }
        match result {
            Ok(()) => Ok(()),
            Err(Obstacle::Refused(error)) => Err(error),
            Err(Obstacle::Stale) => Err(Errno::EBADF),
        }
    }

    /// Begins with new descriptors. The old ones, which a forked child may have inherited, are closed.
    fn renew(&mut self) -> Result<(), Errno> {
        let set = kernel::epoll_create()?;
        self.close();
        self.sleeper.adopt(set);
        self.process = wakeset::process_id();
        self.timer = kernel::timer().unwrap_or(-1);
        if kernel::set_timer(self.timer, RESCUE).is_ok() {
            self.sleeper.watch_timer(self.timer);
        }
        Ok(())
    }

    fn close(&mut self) {
        if self.process != 0 {
            kernel::close(self.sleeper.set());
        }
        if self.timer >= 0 {
            kernel::close(self.timer);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.close();
    }
}
