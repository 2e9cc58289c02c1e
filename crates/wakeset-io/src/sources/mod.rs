//! What lives in memory and can be watched.

pub(crate) mod channel;
#[cfg(loom)]
mod models;
pub(crate) mod notifier;
pub(crate) mod registration;

use wakeset::{Description, Source};

/// Something in memory that a [`Poll`](crate::Poll) can watch: the ends of a
/// [`channel`](crate::channel), a [`Notifier`](crate::Notifier), a
/// [`Registration`](crate::Registration), and every [`Source`] in a [`Description`].
///
/// Implement it for a type of your own that holds one. The description is made for
/// [`engine`](crate::engine).
///
/// ```
/// use wakeset::{Description, Events, Source, WaitQueue};
/// use wakeset_io::{Interest, Poll, Token, Watch};
///
/// struct Always(WaitQueue);
///
/// impl Source for Always {
///     fn poll(&self) -> Events {
///         Events::IN
///     }
///     fn wait_queue(&self) -> &WaitQueue {
///         &self.0
///     }
/// }
///
/// struct Oracle {
///     answers: Description<Always>,
/// }
///
/// impl Watch for Oracle {
///     type Source = Always;
///     fn source(&self) -> &Description<Always> {
///         &self.answers
///     }
/// }
///
/// let answers = Description::new(wakeset_io::engine()?, Always(WaitQueue::new()));
/// let oracle = Oracle { answers };
/// let poll = Poll::new()?;
/// let _registered = poll.register(&oracle, Token(1), Interest::READABLE)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Watch {
    /// What is watched.
    type Source: Source + 'static;

    /// The open source. Always the same one: by it a second registration is told.
    fn source(&self) -> &Description<Self::Source>;
}

impl<S: Source + 'static> Watch for Description<S> {
    type Source = S;
    fn source(&self) -> &Description<S> {
        self
    }
}
