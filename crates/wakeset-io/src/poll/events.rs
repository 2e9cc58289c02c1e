//! What a wait reports.

use crate::ready::Ready;
use crate::token::Token;
use libc::epoll_event;
use std::fmt;
use std::iter::FusedIterator;
use std::slice;

/// Room for the events of a wait; each wait empties it first.
pub struct Events {
    buffer: Box<[epoll_event]>,
    filled: usize,
}

impl Events {
    /// Room for `capacity` events, and for one if that is 0. What a wait has no room for, later
    /// waits report.
    pub fn with_capacity(capacity: usize) -> Self {
        let nothing = epoll_event { events: 0, u64: 0 };
        Self { buffer: vec![nothing; capacity.max(1)].into(), filled: 0 }
    }

    /// How many there is room for.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the wait has ended without an event.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The event at a place, from 0.
    pub fn get(&self, place: usize) -> Option<Event> {
        self.buffer[..self.filled].get(place).map(Event::of)
    }

    /// The events in the order of their reports.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.buffer[..self.filled].iter())
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Lets `fill` write events into the empty buffer and say how many.
    pub(super) fn fill<E>(
        &mut self,
        fill: impl FnOnce(&mut [epoll_event]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.filled = 0;
        self.filled = fill(&mut self.buffer)?.min(self.buffer.len());
        Ok(())
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = Event;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// The events of [`Events::iter`].
#[derive(Clone)]
pub struct Iter<'a>(slice::Iter<'a, epoll_event>);

impl Iterator for Iter<'_> {
    type Item = Event;
    fn next(&mut self) -> Option<Event> {
        self.0.next().map(Event::of)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

impl fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// One event: whose it is, and what holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    token: Token,
    ready: Ready,
}

impl Event {
    fn of(event: &epoll_event) -> Self {
        let bits = wakeset::Events::from_bits_retain(event.events);
        Self { token: Token(event.u64), ready: Ready::of(bits) }
    }

    /// The token of the registration.
    pub fn token(self) -> Token {
        self.token
    }

    /// Everything that it says.
    pub fn ready(self) -> Ready {
        self.ready
    }

    /// A read does not block.
    pub fn readable(self) -> bool {
        self.ready.contains(Ready::READABLE)
    }

    /// A write does not block.
    pub fn writable(self) -> bool {
        self.ready.contains(Ready::WRITABLE)
    }

    /// An exceptional condition.
    pub fn priority(self) -> bool {
        self.ready.contains(Ready::PRIORITY)
    }

    /// An error; of a [`Sender`](crate::Sender), that there is no receiver.
    pub fn error(self) -> bool {
        self.ready.contains(Ready::ERROR)
    }

    /// A hang-up; of a [`Receiver`](crate::Receiver), that there is no sender. What came before it
    /// can still be read.
    pub fn hangup(self) -> bool {
        self.ready.contains(Ready::HANGUP)
    }

    /// The peer writes no more: a hang-up, or its shutdown, if that was asked for
    /// ([`Interest::READ_CLOSED`](crate::Interest::READ_CLOSED)).
    pub fn read_closed(self) -> bool {
        self.ready.intersects(Ready::READ_CLOSED | Ready::HANGUP)
    }
}
