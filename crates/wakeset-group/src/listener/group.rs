//! A listening socket, and the order of its waiters.

use super::{Errno, Order, Waiter, is_listening};
use core::ffi::c_int;

/// A listening socket and the order in which its waiters are woken, on which all waiters of a
/// program have to agree.
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
    pub(super) listener: c_int,
    /// `None`: all are woken.
    pub(super) order: Option<Order>,
}

impl Group {
    /// The group of a listening socket, which must stay open as long as the group and its waiters
    /// are used. It should be non-blocking: another thread may be faster with accept(2).
    ///
    /// # Errors
    /// EBADF: it is not open. ENOTSOCK: it is no socket. EINVAL: it does not listen.
    pub fn new(listener: c_int, order: Order) -> Result<Self, Errno> {
        Self::with_order(listener, Some(order))
    }

    /// A group whose waiters wait in poll(2), where a connection wakes all of them. For comparison,
    /// and for programs that must not wait for a listener in any other way.
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

    /// A waiter. Each thread and each process uses its own; it has no descriptors before its first
    /// wait, which puts it at the end of the queue.
    pub fn waiter(&self) -> Waiter {
        Waiter::new(*self)
    }
}
