//! Streams of events.

use crate::poll::{Event, Events};

/// Events that a wait has taken, and how many of them have been given on.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) events: Events,
    next: usize,
}

impl Taken {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { events: Events::with_capacity(capacity), next: 0 }
    }

    /// The next one. `None` when another wait is needed.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = self.events.get(self.next);
        self.next = if event.is_some() { self.next + 1 } else { 0 };
        event
    }
}

/// The stream of an adapter's events.
macro_rules! event_stream {
    ($poll:ident) => {
        /// The events of a set one by one. It does not end; an error may be followed by events.
        ///
        /// What an event says held when it was taken from the set, up to its capacity of events
        /// ago.
        #[derive(Debug)]
        pub struct EventStream {
            poll: $poll,
            taken: Taken,
        }

        impl EventStream {
            /// The set, to register and modify.
            pub fn set(&self) -> &crate::poll::Poll {
                &self.poll
            }
        }

        impl futures_core::Stream for EventStream {
            type Item = std::io::Result<crate::poll::Event>;

            fn poll_next(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> task::Poll<Option<Self::Item>> {
                let Self { poll, taken } = &mut *self;
                loop {
                    if let Some(event) = taken.next() {
                        return task::Poll::Ready(Some(Ok(event)));
                    }
                    if let Err(error) = ready!(poll.poll_wait(context, &mut taken.events)) {
                        return task::Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
    };
}

pub(crate) use event_stream;
