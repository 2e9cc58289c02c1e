//! A set in tokio's loop.

use crate::poll::{Events, Nested, Poll};
use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use std::io;
use std::ops::Deref;
use std::task::{self, Context, ready};
use std::time::Duration;

/// A [`Poll`] whose waits are futures of tokio's.
///
/// It derefs to the set, to register and modify. Several tasks may wait at the same time; an event
/// goes to one of them. A wait that is dropped takes no event with it.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
/// # runtime.block_on(async {
/// use wakeset_io::{Events, Interest, Poll, Token, tokio::AsyncPoll};
///
/// let poll = AsyncPoll::new(Poll::new()?)?;
/// let (sender, receiver) = wakeset_io::channel(4)?;
/// let _registered = poll.register(&receiver, Token(1), Interest::READABLE.edge())?;
/// std::thread::spawn(move || sender.send("from a thread").unwrap());
///
/// let mut events = Events::with_capacity(8);
/// poll.wait(&mut events).await?;
/// assert_eq!(receiver.try_recv(), Ok("from a thread"));
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AsyncPoll {
    inner: AsyncFd<Nested>,
    spins: bool,
}

impl AsyncPoll {
    /// Puts the set into the loop of the runtime that this is called in.
    ///
    /// # Errors
    /// As [`Poll::into_nested`], and as `AsyncFd::with_interest`.
    ///
    /// # Panics
    /// Outside a runtime of tokio's, or in one without its I/O driver.
    pub fn new(poll: Poll) -> io::Result<Self> {
        let nested = poll.into_nested()?;
        // Newer versions have an unsafe one in its place, for descriptors that change or close
        // while they are registered. That of a set does neither.
        #[allow(deprecated, reason = "there is no other safe one")]
        let inner = AsyncFd::with_interest(nested, Interest::READABLE)?;
        Ok(Self { inner, spins: false })
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
    /// Of the runtime, when it shuts down.
    pub async fn wait(&self, events: &mut Events) -> io::Result<()> {
        loop {
            let mut guard = self.inner.readable().await?;
            self.look(events)?;
            if !events.is_empty() {
                // There may be more: the next wait looks again.
                return Ok(());
            }
            // Only after the set was empty, and only what was known then: what comes in between
            // rings once more, and this does not clear that.
            guard.clear_ready();
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
            let mut guard = ready!(self.inner.poll_read_ready(context))?;
            self.look(events)?;
            if !events.is_empty() {
                return task::Poll::Ready(Ok(()));
            }
            guard.clear_ready();
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
