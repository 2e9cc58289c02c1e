//! Threads and processes that share a listening socket: one connection wakes one of them.
//!
//! Every waiter has an epoll set of its own that watches the listener with `EPOLLEXCLUSIVE` (Linux
//! 4.5). Such watches stand in the listener's wait queue in the order in which they were added. A
//! connection wakes the first one whose set a thread sleeps in, and passes over the sets of busy
//! threads. So the waiters need not know each other: they share nothing but the kernel's queue, and
//! any of them may die at any time.
//!
//! | order | what a waiter does | what is woken | price |
//! |---|---|---|---|
//! | [`Order::Fifo`] | removes its watch and adds it again before it sleeps, if it was woken since | the waiter that has been idle longest | two calls of epoll_ctl(2) per connection |
//! | [`Order::Turns`] | the same, once it has been woken [`Order::TURN`] times | the same waiter for a while, then the next | none to speak of; the waiters after it are idle for longer |
//! | [`Order::Lifo`] | keeps its place | the first idle waiter of the queue: few stay busy, and their caches warm | the load is as uneven as can be |
//!
//! Adding a watch polls the listener, so a connection that comes in between is not lost.
//!
//! **A waiter that dies or hangs** after it was woken and before it has accepted takes the wake
//! with it; the next wake comes with the next connection. So no waiter sleeps longer than
//! [`RESCUE`] without polling the listener itself: a connection waits no longer than that for an
//! idle waiter.

mod group;
mod sleeper;
mod waiter;
mod wanted;

pub use crate::order::Order;
use crate::sys;
use core::ffi::c_int;
use core::time::Duration;
pub use group::Group;
pub use sleeper::{BATON_DATA, BATON_EVENTS, Sleeper};
pub use syscalls::Errno;
pub use waiter::Waiter;
pub use wanted::{Fired, MOST, Numbers, Obstacle, Wanted};

/// The longest time that a waiter sleeps without polling the listener.
pub const RESCUE: Duration = Duration::from_secs(1);

/// Whether a descriptor is a listening socket.
///
/// # Errors
/// As getsockopt(2) with `SO_ACCEPTCONN`: EBADF, ENOTSOCK.
pub fn is_listening(fd: c_int) -> Result<bool, Errno> {
    sys::is_listening(fd)
}

/// The inode of a descriptor, which two numbers of one socket have in common and no other socket
/// has. `None` if the number is closed.
pub fn inode(fd: c_int) -> Option<u64> {
    sys::inode(fd)
}

/// Whether poll(2) reports anything about a listener now: a connection, or its end.
pub fn is_ready(fd: c_int) -> bool {
    sys::is_ready(fd)
}
