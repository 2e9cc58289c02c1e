//! What can go wrong, typed; each error is one errno of epoll_ctl(2), epoll_wait(2) or eventfd(2).

use core::fmt;

/// An error of the engine. [`Error::errno`] gives the number Linux uses for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// EEXIST: the set already watches this descriptor of this description.
    AlreadyWatched,
    /// ENOENT: the set does not watch this descriptor of this description.
    NotWatched,
    /// EINVAL: an argument, or a combination of event bits, that Linux refuses.
    Invalid,
    /// ELOOP: the sets would watch each other in a circle, or nest more than five deep.
    Loop,
    /// ENOSPC: the engine's watch limit is reached.
    WatchLimit,
    /// ENOMEM: no memory for the watch.
    NoMemory,
    /// EAGAIN: the operation would block and the source is non-blocking.
    WouldBlock,
    /// EINTR: a signal handler ran while the call slept.
    Interrupted,
    /// EBADF: the source or set is closed, or belongs to another [`Engine`](crate::Engine).
    Closed,
    /// The object has been sealed: its state lives elsewhere now (see
    /// [`Counter::seal`](crate::Counter::seal)). Linux has no number for it; the errno is
    /// EBADF.
    Sealed,
    /// What was asked for cannot be done here as Linux would do it, and has not been done: the
    /// object's owner is to carry its state elsewhere. Linux has no number for it; the errno is
    /// EOPNOTSUPP.
    Unfit,
    /// EPROTO: what the other process has written into a shared ring cannot be.
    BrokenPeer,
    /// The errno of a system call made for the caller.
    Os(i32),
}

impl Error {
    /// The errno of x86-64 and every other Linux architecture that shares the generic numbers.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotWatched => 2,
            Self::Interrupted => 4,
            Self::Closed | Self::Sealed => 9,
            Self::WouldBlock => 11,
            Self::NoMemory => 12,
            Self::AlreadyWatched => 17,
            Self::Invalid => 22,
            Self::WatchLimit => 28,
            Self::Loop => 40,
            Self::BrokenPeer => 71,
            Self::Unfit => 95,
            Self::Os(errno) => errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyWatched => "the set already watches this descriptor (EEXIST)",
            Self::NotWatched => "the set does not watch this descriptor (ENOENT)",
            Self::Invalid => "invalid argument or event bits (EINVAL)",
            Self::Loop => "sets would nest in a circle or too deep (ELOOP)",
            Self::WatchLimit => "the watch limit is reached (ENOSPC)",
            Self::NoMemory => "out of memory (ENOMEM)",
            Self::WouldBlock => "the operation would block (EAGAIN)",
            Self::Interrupted => "interrupted by a signal (EINTR)",
            Self::Closed => "closed, or of another engine (EBADF)",
            Self::Sealed => "sealed: the state lives elsewhere",
            Self::Unfit => "not to be done here",
            Self::BrokenPeer => "the other process broke the rules of the shared ring (EPROTO)",
            Self::Os(_) => "refused by the system",
        })
    }
}

impl core::error::Error for Error {}
