//! A set that another loop watches.

use crate::poll::events::Events;
use crate::poll::set::{Poll, error};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;
use wakeset::Deadline;

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
    /// When its loop was last told that there is nothing, which it sleeps after.
    asleep: Mutex<Option<Deadline>>,
}

impl Nested {
    pub(super) fn new(poll: Poll) -> Self {
        Self { poll, asleep: Mutex::new(None) }
    }

    /// As [`Poll::wait`] with `Duration::ZERO`, but if nothing is ready this spins before it says
    /// so, for about as long as a wake-up takes at most, if its loop's last sleeps were so short
    /// that this saves processor time ([`wakeset::set_spin_limit`] can set another time). The
    /// thread does nothing else meanwhile. An event that comes in the spin is reported within a
    /// microsecond, where a sleep and its wake-up take 20 to 50.
    ///
    /// This is for a loop that sleeps when nothing was found. One thread at a time spins; a second
    /// one that calls it meanwhile does not.
    ///
    /// # Errors
    /// As [`Poll::wait`]. `events` is empty on an error.
    pub fn wait_spinning(&self, events: &mut Events) -> io::Result<()> {
        let mut asleep = match self.asleep.try_lock() {
            Ok(asleep) => asleep,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.wait(events, Some(Duration::ZERO)),
        };
        let set = self.poll.set.raw();
        events
            .fill(|buffer| wakeset_fd::set::look_before_sleep(set, buffer, &mut asleep))
            .map_err(error)
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
