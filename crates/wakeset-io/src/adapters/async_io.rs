//! A set in async-io's loop.

use crate::poll::{Events, Nested, Poll};
use ::async_io::Async;
use std::io;
use std::ops::Deref;
use std::task::{self, Context, ready};
use std::time::Duration;

/// A [`Poll`] whose waits are futures of async-io's, which run on smol and on every other executor.
///
/// It derefs to the set, to register and modify. Several tasks may wait at the same time; an event
/// goes to one of them. A wait that is dropped takes no event with it.
///
/// ```
/// use wakeset_io::{Events, Interest, Poll, Token, async_io::AsyncPoll};
///
/// let poll = AsyncPoll::new(Poll::new()?)?;
/// let (sender, receiver) = wakeset_io::channel(4)?;
/// let _registered = poll.register(&receiver, Token(1), Interest::READABLE.edge())?;
/// std::thread::spawn(move || sender.send("from a thread").unwrap());
///
/// let mut events = Events::with_capacity(8);
/// async_io::block_on(poll.wait(&mut events))?;
/// assert_eq!(receiver.try_recv(), Ok("from a thread"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AsyncPoll {
    inner: Async<Nested>,
    spins: bool,
}

impl AsyncPoll {
    /// Puts the set into async-io's loop.
    ///
    /// # Errors
    /// As [`Poll::into_nested`], and as `Async::new_nonblocking`.
    pub fn new(poll: Poll) -> io::Result<Self> {
        Ok(Self { inner: Async::new_nonblocking(poll.into_nested()?)?, spins: false })
    }

    /// The same set, but its waits spin before they are pending, where that saves processor time
    /// ([`Nested::wait_spinning`]). The thread runs no other task meanwhile. This is for threads
    /// that answer each other faster than they could sleep, in a runtime that has little else to
    /// do.
    #[must_use]
    pub fn spinning(self) -> Self {
        Self { spins: true, ..self }
    }

    /// Waits until there is an event.
    ///
    /// # Errors
    /// Those of async-io's loop.
    pub async fn wait(&self, events: &mut Events) -> io::Result<()> {
        loop {
            self.look(events)?;
            if !events.is_empty() {
                return Ok(());
            }
            // async-io watches by level: what has come since is reported to it.
            self.inner.readable().await?;
        }
    }

    /// [`wait`](Self::wait) for those who write futures. Only the task that has called it last is
    /// woken.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn poll_wait(
        &self,
        context: &mut Context<'_>,
        events: &mut Events,
    ) -> task::Poll<io::Result<()>> {
        loop {
            self.look(events)?;
            if !events.is_empty() {
                return task::Poll::Ready(Ok(()));
            }
            ready!(self.inner.poll_readable(context))?;
        }
    }

    fn look(&self, events: &mut Events) -> io::Result<()> {
        let nested = self.inner.get_ref();
        if self.spins {
            nested.wait_spinning(events)
        } else {
            nested.wait(events, Some(Duration::ZERO))
        }
    }

    /// The events one by one, taken from the set `capacity` at a time.
    #[cfg(feature = "futures-core")]
    pub fn into_stream(self, capacity: usize) -> EventStream {
        EventStream { poll: self, taken: Taken::with_capacity(capacity) }
    }
}

impl Deref for AsyncPoll {
    type Target = Poll;
    fn deref(&self) -> &Poll {
        self.inner.get_ref()
    }
}

#[cfg(feature = "futures-core")]
use crate::adapters::stream::{Taken, event_stream};

#[cfg(feature = "futures-core")]
event_stream!(AsyncPoll);
