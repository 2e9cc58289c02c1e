//! A notifier: what a set's thread is woken with when there is nothing to send along.

use crate::sources::Watch;
use wakeset::{Counter, CounterFlags, Description, Engine, Error};

/// Wakes those who wait on a set that watches it; clones are the same notifier.
///
/// In a set it is readable from a [`notify`](Self::notify) until the next [`take`](Self::take).
/// Every notification is an edge. It is an eventfd(2) without a descriptor.
///
/// Thread-safe. [`notify`](Self::notify) and [`take`](Self::take) are async-signal-safe, take no
/// lock and allocate nothing.
#[derive(Clone, Debug)]
pub struct Notifier {
    counter: Description<Counter>,
}

impl Notifier {
    pub(crate) fn open(engine: &Engine) -> Result<Self, Error> {
        let counter = Counter::new(0, CounterFlags::NONBLOCK);
        Ok(Self { counter: Description::try_new(engine, counter)? })
    }

    /// Notifies.
    pub fn notify(&self) {
        // At the counter's maximum, after 2^64 - 2 notifications, it stays readable as it is.
        let _ = self.counter.write(1);
    }

    /// How many notifications have come since the last call, which takes them.
    pub fn take(&self) -> u64 {
        self.counter.read().unwrap_or(0)
    }
}

impl Watch for Notifier {
    type Source = Counter;
    fn source(&self) -> &Description<Counter> {
        &self.counter
    }
}
