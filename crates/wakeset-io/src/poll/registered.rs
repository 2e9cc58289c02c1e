//! Registrations, which end when they are dropped.

use crate::poll::set::{Set, error};
use crate::ready::Interest;
use crate::token::Token;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use wakeset::{Description, Event, Source};
use wakeset_fd::{Errno, custom, set};

/// A source in memory whose kind does not matter.
trait AnySource: Send + Sync {
    fn modify(&self, set: RawFd, event: Event) -> Result<(), Errno>;
    fn remove(&self, set: RawFd) -> Result<(), Errno>;
}

impl<S: Source + 'static> AnySource for Description<S> {
    fn modify(&self, set: RawFd, event: Event) -> Result<(), Errno> {
        custom::modify(set, self, event)
    }

    fn remove(&self, set: RawFd) -> Result<(), Errno> {
        custom::remove(set, self)
    }
}

enum Target {
    Number(RawFd),
    Source(Box<dyn AnySource>),
}

/// A watch of a set; dropping it removes the watch.
pub(super) struct Link {
    set: Weak<Set>,
    target: Target,
}

fn raw_event(token: Token, interest: Interest) -> epoll_event {
    epoll_event { events: interest.events().bits(), u64: token.0 }
}

impl Link {
    pub(super) fn to_number(
        set: &Arc<Set>,
        number: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Self> {
        let event = raw_event(token, interest);
        set::change(set.raw(), EPOLL_CTL_ADD, number, event).map_err(error)?;
        Ok(Self { set: Arc::downgrade(set), target: Target::Number(number) })
    }

    pub(super) fn to_source<S: Source + 'static>(
        set: &Arc<Set>,
        source: Description<S>,
        token: Token,
        interest: Interest,
    ) -> io::Result<Self> {
        let event = Event::new(interest.events(), token.0);
        custom::add(set.raw(), &source, event).map_err(error)?;
        Ok(Self { set: Arc::downgrade(set), target: Target::Source(Box::new(source)) })
    }

    fn modify(&self, token: Token, interest: Interest) -> Result<(), Errno> {
        let set = self.set.upgrade().ok_or(Errno::EBADF)?;
        match &self.target {
            Target::Number(number) => {
                set::change(set.raw(), EPOLL_CTL_MOD, *number, raw_event(token, interest))
            }
            Target::Source(source) => {
                source.modify(set.raw(), Event::new(interest.events(), token.0))
            }
        }
    }

    fn remove(&self) -> Result<(), Errno> {
        // Its watches have gone with the set.
        let Some(set) = self.set.upgrade() else { return Ok(()) };
        match &self.target {
            Target::Number(number) => {
                let nothing = epoll_event { events: 0, u64: 0 };
                set::change(set.raw(), EPOLL_CTL_DEL, *number, nothing)
            }
            Target::Source(source) => source.remove(set.raw()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A source that has been closed is in no set any more.
        let _ = self.remove();
    }
}

/// A registration: what [`Poll::register_fd`](crate::Poll::register_fd) and
/// [`Poll::register`](crate::Poll::register) return. Dropping it ends the registration.
///
/// It derefs to what was given to `register_fd`. It may outlive its set.
///
/// When it has been dropped, no wait that begins later reports it; one that has taken an event of
/// it already may still.
#[must_use = "a registration ends when it is dropped"]
pub struct Registered<T = ()> {
    // Dropped first: out of the set, and only then closed.
    link: Link,
    item: T,
}

impl<T> Registered<T> {
    pub(super) fn new(link: Link, item: T) -> Self {
        Self { link, item }
    }

    /// Changes what is asked for: `EPOLL_CTL_MOD`. It arms a one-shot registration again, and
    /// something that is ready already is reported by the next wait.
    ///
    /// # Errors
    /// As epoll_ctl(2): `InvalidInput` for modes that do not go together, and if the old or the new
    /// interest is exclusive; `NotFound` if the source has been closed. EBADF if the set has been.
    pub fn modify(&self, token: Token, interest: Interest) -> io::Result<()> {
        self.link.modify(token, interest).map_err(error)
    }

    /// Ends the registration, and gives back what was registered.
    pub fn into_inner(self) -> T {
        let Self { link, item } = self;
        drop(link);
        item
    }
}

impl<T> Deref for Registered<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: fmt::Debug> fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.item).finish()
    }
}
