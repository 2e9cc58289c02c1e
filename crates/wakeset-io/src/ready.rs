//! What something is ready for, and which part of that a registration asks for, in which mode.

use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};
use wakeset::Events;

/// What something is ready for: the readiness bits of epoll_ctl(2), as a set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ready(Events);

impl Ready {
    /// Nothing.
    pub const NONE: Self = Self(Events::empty());
    /// A read does not block: `EPOLLIN`.
    pub const READABLE: Self = Self(Events::IN);
    /// A write does not block: `EPOLLOUT`.
    pub const WRITABLE: Self = Self(Events::OUT);
    /// An exceptional condition, such as urgent data: `EPOLLPRI`.
    pub const PRIORITY: Self = Self(Events::PRI);
    /// The peer has shut down its writing half: `EPOLLRDHUP`.
    pub const READ_CLOSED: Self = Self(Events::RDHUP);
    /// An error: `EPOLLERR`. It is always reported.
    pub const ERROR: Self = Self(Events::ERR);
    /// A hang-up: `EPOLLHUP`. It is always reported.
    pub const HANGUP: Self = Self(Events::HUP);

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0.contains(other.0)
    }

    /// Whether any of `other` is in it.
    pub const fn intersects(self, other: Self) -> bool {
        self.0.intersects(other.0)
    }

    /// Whether it is nothing.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Both, in a constant.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }

    /// As the engine has it.
    pub const fn events(self) -> Events {
        self.0
    }

    /// The readiness in what the engine says; the flags that say how to report are left out.
    pub const fn of(events: Events) -> Self {
        Self(events.difference(Events::FLAGS))
    }
}

impl BitOr for Ready {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitAnd for Ready {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0.intersection(other.0))
    }
}

impl Sub for Ready {
    type Output = Self;
    /// What is in the first and not in the second.
    fn sub(self, other: Self) -> Self {
        Self(self.0.difference(other.0))
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What a registration asks for, and how it is reported.
///
/// Level-triggered, unless [`edge`](Self::edge) is chosen: what is ready is reported by every wait
/// until it is ready no more. [`Ready::ERROR`] and [`Ready::HANGUP`] are always asked for. The
/// modes are those of epoll_ctl(2), and go together as they do there.
///
/// ```
/// use wakeset_io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// let once_for_each_change = both.edge();
/// assert_ne!(both, once_for_each_change);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(Events);

impl Interest {
    /// In reads: `EPOLLIN`.
    pub const READABLE: Self = Self(Events::IN);
    /// In writes: `EPOLLOUT`.
    pub const WRITABLE: Self = Self(Events::OUT);
    /// In exceptional conditions: `EPOLLPRI`.
    pub const PRIORITY: Self = Self(Events::PRI);
    /// In the peer's shutdown of its writing half: `EPOLLRDHUP`.
    pub const READ_CLOSED: Self = Self(Events::RDHUP);
    /// In nothing but errors and hang-ups.
    pub const NONE: Self = Self(Events::empty());

    /// Reports each change once: `EPOLLET`. After an event the program reads (or writes) until
    /// there is nothing left to do, because what is left is not reported again.
    #[must_use]
    pub const fn edge(self) -> Self {
        Self(self.0.union(Events::ET))
    }

    /// Reports one event, and then none until
    /// [`Registered::modify`](crate::Registered::modify): `EPOLLONESHOT`. Among several threads
    /// that wait on one set, one at a time has the thing.
    #[must_use]
    pub const fn one_shot(self) -> Self {
        Self(self.0.union(Events::ONESHOT))
    }

    /// Among several sets that watch one thing, wakes one: `EPOLLEXCLUSIVE`. It cannot be modified,
    /// and goes with [`READABLE`](Self::READABLE), [`WRITABLE`](Self::WRITABLE) and
    /// [`edge`](Self::edge) only.
    #[must_use]
    pub const fn exclusive(self) -> Self {
        Self(self.0.union(Events::EXCLUSIVE))
    }

    /// Both, in a constant.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }

    /// As the engine has it.
    pub const fn events(self) -> Events {
        self.0
    }
}

impl BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
