//! The set and its waits.

use crate::poll::events::Events;
use crate::poll::nested::Nested;
use crate::poll::registered::{Link, Registered};
use crate::ready::Interest;
use crate::sources::Watch;
use crate::token::Token;
use rustix::event::epoll;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use wakeset_fd::Errno;

/// The error of the standard library with this errno.
pub(super) fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.into_raw())
}

/// The set itself, which ends with its [`Poll`].
pub(super) struct Set {
    /// Never dropped: it is closed through Wakeset, which knows it.
    number: ManuallyDrop<OwnedFd>,
}

impl Set {
    pub(super) fn raw(&self) -> RawFd {
        self.number.as_raw_fd()
    }

    pub(super) fn number(&self) -> BorrowedFd<'_> {
        self.number.as_fd()
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = wakeset_fd::close(self.raw());
    }
}

/// A set that watches sockets and other descriptors, and sources in memory: epoll(7) with tokens.
///
/// A set with sources in memory alone makes no system call to report them; a waiter that finds
/// nothing sleeps on a futex. With descriptors it sleeps in the kernel, and a source in memory
/// wakes it there by one write(2). The modes, and what is an edge, are those of epoll(7)
/// ([`Interest`]).
///
/// Any number of threads may register, wait and modify at the same time; an event goes to one of
/// those that wait. Nothing here is for signal handlers, except where a source says so.
///
/// ```
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
/// use wakeset_io::{Events, Interest, Poll, Token};
///
/// const SOCKET: Token = Token(0);
/// const WORK: Token = Token(1);
///
/// let poll = Poll::new()?;
/// let (mut there, here) = UnixStream::pair()?;
/// let (sender, receiver) = wakeset_io::channel::<&str>(16)?;
/// let here = poll.register_fd(here, SOCKET, Interest::READABLE)?;
/// let work = poll.register(&receiver, WORK, Interest::READABLE)?;
///
/// there.write_all(b"x")?;
/// sender.try_send("dig").expect("room");
/// let mut events = Events::with_capacity(64);
/// poll.wait(&mut events, None)?;
/// let mut tokens: Vec<_> = events.iter().map(|event| event.token()).collect();
/// tokens.sort();
/// assert_eq!(tokens, [SOCKET, WORK]);
/// # drop((here, work));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Forks
/// The number is closed on exec. A child of fork(2) must not use the set: it has its own sources,
/// and shares the descriptors' part with the parent.
pub struct Poll {
    pub(super) set: Arc<Set>,
}

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// As epoll_create1(2): EMFILE and ENFILE, `OutOfMemory`.
    pub fn new() -> io::Result<Self> {
        let number = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        wakeset_fd::set::adopt(number.as_raw_fd()).map_err(error)?;
        let number = ManuallyDrop::new(number);
        Ok(Self { set: Arc::new(Set { number }) })
    }

    /// Watches a descriptor, for as long as the handle lives that it returns. The handle owns what
    /// was given, and gives it back ([`Registered::into_inner`]), so that the descriptor is not
    /// closed before it is out of the set. Give a reference, or an [`Arc`], to keep it elsewhere.
    ///
    /// Something that is ready already is reported by the next wait.
    ///
    /// # Errors
    /// As epoll_ctl(2): `AlreadyExists` if the descriptor is registered here, `PermissionDenied`
    /// for what epoll(7) cannot watch, such as a regular file, `InvalidInput` for modes that do not
    /// go together, `OutOfMemory`, and ENOSPC beyond `max_user_watches`. On an error the item is
    /// dropped.
    pub fn register_fd<F: AsFd>(
        &self,
        item: F,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registered<F>> {
        let link = Link::to_number(&self.set, item.as_fd().as_raw_fd(), token, interest)?;
        Ok(Registered::new(link, item))
    }

    /// Watches a source in memory, for as long as the handle lives that it returns, or until the
    /// source is closed. The handle keeps a source of the engine open; an end of a channel or a
    /// [`Registration`](crate::Registration) closes when it is dropped.
    ///
    /// Something that is ready already is reported by the next wait.
    ///
    /// # Errors
    /// As epoll_ctl(2): `AlreadyExists` if the source is registered here, `InvalidInput` for modes
    /// that do not go together, `OutOfMemory`. EBADF for a source that is closed, or was made for
    /// another engine than [`engine`](crate::engine). EMFILE and ENFILE if the set has descriptors
    /// and gets no doorbell. `Unsupported` in a [`Nested`] set for a
    /// [`wakeset::Timer`], and for a [`wakeset::EventPoll`], which may have one.
    pub fn register<W: Watch + ?Sized>(
        &self,
        source: &W,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registered> {
        let link = Link::to_source(&self.set, source.source().clone(), token, interest)?;
        Ok(Registered::new(link, ()))
    }

    /// Waits until there is an event, for at most `limit`, and without an end if that is `None`.
    /// `events` is empty if the time is up; it has room for at least one. `Duration::ZERO` only
    /// looks.
    ///
    /// # Errors
    /// `Interrupted` if a signal handler has run, whatever its flags, as epoll_wait(2) says;
    /// waiting again is right then. `events` is empty on an error.
    pub fn wait(&self, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
        events.fill(|buffer| wakeset_fd::set::wait(self.set.raw(), buffer, limit)).map_err(error)
    }

    /// Makes the set one that another loop can watch: mio, tokio, async-io, GLib, poll(2), another
    /// [`Poll`]. From now on each event in memory costs a write(2), because that loop sleeps in the
    /// kernel. An in-process timerfd of `wakeset_fd`, of any set, is the kernel's from now on.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOSPC, `OutOfMemory`: no doorbell can be had. `Unsupported`: the set has
    /// watched a [`wakeset::Timer`] or a [`wakeset::EventPoll`], for whose time a loop that knows
    /// nothing of it does not wait. On an
    /// error the set is closed.
    pub fn into_nested(self) -> io::Result<Nested> {
        wakeset_fd::set::export(self.set.raw()).map_err(error)?;
        Ok(Nested::new(self))
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll").field("number", &self.set.raw()).finish_non_exhaustive()
    }
}
