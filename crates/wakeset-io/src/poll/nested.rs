//! A set that another loop watches.

use crate::poll::set::Poll;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A [`Poll`] whose descriptor another loop can watch, level- or edge-triggered.
///
/// The descriptor is readable when a wait would find something, until one has found nothing; it may
/// be readable once more than that. So the other loop, told that it is readable, calls
/// [`Poll::wait`] with `Duration::ZERO` until `events` is empty (or once, if it watches by level),
/// and is then told again. No event is missed. What stays ready, as a hang-up does, is dropped from
/// the set first, or `events` never is empty. The features `mio`, `tokio` and `async-io` have that
/// ready-made.
///
/// Use the descriptor for that alone: a duplicate of it, and epoll_wait(2) on it, know only the
/// kernel's part of the set.
#[derive(Debug)]
pub struct Nested {
    poll: Poll,
}

impl Nested {
    pub(super) fn new(poll: Poll) -> Self {
        Self { poll }
    }
}

impl Deref for Nested {
    type Target = Poll;
    fn deref(&self) -> &Poll {
        &self.poll
    }
}

impl AsFd for Nested {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.set.number()
    }
}

impl AsRawFd for Nested {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.set.raw()
    }
}
