//! A set in mio's loop.

use crate::poll::Nested;
use ::mio::event::Source;
use ::mio::unix::SourceFd;
use ::mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::AsRawFd;

/// Readable when the set has events: then call [`Poll::wait`](crate::Poll::wait) with
/// `Duration::ZERO` until there are none, because mio reports edges.
///
/// ```
/// use std::time::Duration;
/// use wakeset_io::{Events, Interest, Notifier, Poll, Token};
///
/// let set = Poll::new()?;
/// let notifier = Notifier::new()?;
/// let _registered = set.register(&notifier, Token(1), Interest::READABLE.edge())?;
/// let mut set = set.into_nested()?;
///
/// let mut outer = mio::Poll::new()?;
/// outer.registry().register(&mut set, mio::Token(0), mio::Interest::READABLE)?;
/// notifier.notify();
/// let mut outer_events = mio::Events::with_capacity(8);
/// outer.poll(&mut outer_events, None)?;
/// let (mut events, mut count) = (Events::with_capacity(8), 0);
/// loop {
///     set.wait(&mut events, Some(Duration::ZERO))?;
///     count += events.len();
///     if events.is_empty() {
///         break;
///     }
/// }
/// assert_eq!(count, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
impl Source for Nested {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).register(registry, token, interests)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).deregister(registry)
    }
}
