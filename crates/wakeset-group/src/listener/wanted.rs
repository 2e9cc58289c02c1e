//! What a wait is about, and how a sleep in a private set may end.

use core::ffi::c_int;
use syscalls::Errno;

/// The most descriptors of one wait. Waits on more are rare, and their watches would cost more than
/// they save.
pub const MOST: usize = 64;

/// A descriptor that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its number.
    pub fd: c_int,
    /// The events, as the bits of epoll_ctl(2). Ignored for a listener, which is always watched
    /// for connections.
    pub events: u32,
    /// Whether it is a listening socket, whose connections wake one waiter each.
    pub listener: bool,
}

impl Wanted {
    /// A filler for arrays.
    pub const NONE: Self = Self { fd: -1, events: 0, listener: false };

    /// Whether an event with this data is a listener's. The lower half of the data is the number.
    pub fn is_listener(data: u64) -> bool {
        data >> 32 == 1
    }

    pub(super) fn data(self) -> u64 {
        u64::from(self.fd as u32) | u64::from(self.listener) << 32
    }
}

/// Why a wait cannot sleep in the private set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A number has come to stand for another file, and the old file may still be watched. The
    /// caller makes a new set.
    Stale,
    /// The kernel refuses to watch a descriptor, with this errno: EPERM for a regular file, EINVAL
    /// before Linux 4.5, ENOTSOCK, EBADF and others.
    Refused(Errno),
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// A listener.
    pub listener: bool,
    /// Another descriptor of the wait.
    pub other: bool,
    /// A watch that the set should no longer have.
    pub stale: bool,
    /// The timer: the listeners are to be polled, and the timer to be set again.
    pub timer: bool,
    /// The baton: a waiter that was woken for a connection has left it, so the listeners are to be
    /// polled.
    pub baton: bool,
    /// One listener may be watched under two numbers. An event names one of them, so both have to
    /// be polled.
    pub twins: bool,
}

impl Fired {
    /// Whether listeners alone ended the sleep, and their events say which ones.
    pub fn only_listeners(&self) -> bool {
        self.listener && !(self.other || self.stale || self.timer || self.baton || self.twins)
    }
}

/// What may have happened to the numbers since a set was last prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Each stands for the same file as before.
    Same,
    /// Any may stand for another file: every watch is checked.
    Unknown,
}
