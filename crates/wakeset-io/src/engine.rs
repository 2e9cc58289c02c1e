//! The engine of the process, and the sources that are made for it.

use crate::sources::channel;
use crate::sources::channel::{Receiver, Sender};
use crate::sources::notifier::Notifier;
use crate::sources::registration::{Registration, SetReadiness};
use std::io;
use wakeset::{Engine, Error};

fn error(error: Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

/// The engine that sources of your own are made for: the one whose sets have descriptors.
///
/// # Errors
/// `OutOfMemory`.
pub fn engine() -> io::Result<&'static Engine> {
    wakeset_fd::custom::engine().ok_or_else(|| error(Error::NoMemory))
}

/// A channel that holds up to `capacity` messages, whose ends can be watched beside sockets, in
/// one set or in two.
///
/// # Errors
/// `InvalidInput` for a capacity of 0; `OutOfMemory`.
pub fn channel<T: Send>(capacity: usize) -> io::Result<(Sender<T>, Receiver<T>)> {
    if capacity == 0 {
        return Err(error(Error::Invalid));
    }
    channel::open(engine()?, capacity).map_err(error)
}

impl Notifier {
    /// A notifier without a notification.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new() -> io::Result<Self> {
        Self::open(engine()?).map_err(error)
    }
}

impl Registration {
    /// A registration that is ready for nothing, and what sets its readiness.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeset_io::{Events, Interest, Poll, Ready, Registration, Token};
    ///
    /// let (registration, set_readiness) = Registration::new()?;
    /// let poll = Poll::new()?;
    /// let _registered = poll.register(&registration, Token(3), Interest::READABLE)?;
    /// set_readiness.set_readiness(Ready::READABLE);
    /// let mut events = Events::with_capacity(4);
    /// poll.wait(&mut events, None)?;
    /// assert!(events.iter().all(|event| event.token() == Token(3) && event.readable()));
    /// set_readiness.set_readiness(Ready::NONE);
    /// poll.wait(&mut events, Some(Duration::ZERO))?;
    /// assert!(events.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `OutOfMemory`.
    #[allow(clippy::new_ret_no_self, reason = "as mio had it")]
    pub fn new() -> io::Result<(Self, SetReadiness)> {
        Self::open(engine()?).map_err(error)
    }
}
