//! How often a waiter steps back in the automatic order.
//!
//! A step costs two workers some 0.1 ms, which pays off where connections stay: the more a worker
//! holds, the rarer are new ones for each that it holds. So a worker that holds n connections steps
//! back n times in [`WINDOW`], and after a time without steps [`AT_ONCE`] times n, or
//! [`LEAST_AT_ONCE`] times. Where connections are short, a worker holds one or two while it waits,
//! and steps ten or twenty times a second at most, whatever the rate of requests is.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

/// In this time a waiter may step back as often as it holds connections.
const WINDOW: Duration = Duration::from_millis(100);
/// How much of that it may save up.
const AT_ONCE: u64 = 4;
/// How many steps it may save up at least: for connections that come at a time.
const LEAST_AT_ONCE: u64 = 32;

/// What a step costs a waiter that holds so many connections.
fn price(held: u32) -> u64 {
    WINDOW.as_nanos() as u64 / u64::from(held.max(1))
}

/// What one waiter has left. Nothing here orders memory: two threads that pay at the same time for
/// one set may pay once.
#[derive(Debug)]
pub(super) struct Credit {
    /// When all steps that it has made will be paid for.
    paid_at: AtomicU64,
}

impl Credit {
    pub(super) const fn new() -> Self {
        Self { paid_at: AtomicU64::new(0) }
    }

    /// Whether it is enough for a step of a waiter that holds so many connections.
    pub(super) fn is_enough(&self, now: u64, held: u32) -> bool {
        let limit = (AT_ONCE * WINDOW.as_nanos() as u64).max(LEAST_AT_ONCE * price(held));
        self.paid_at.load(Relaxed).saturating_sub(now) < limit
    }

    /// Pays for one.
    pub(super) fn pay(&self, now: u64, held: u32) {
        let paid_at = self.paid_at.load(Relaxed).max(now);
        self.paid_at.store(paid_at.saturating_add(price(held)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_at(credit: &Credit, now: u64, held: u32) -> u64 {
        let mut steps = 0;
        while credit.is_enough(now, held) {
            credit.pay(now, held);
            steps += 1;
        }
        steps
    }

    #[test]
    fn a_waiter_steps_as_often_as_it_holds_connections() {
        let (window, start) = (WINDOW.as_nanos() as u64, 1 << 40);
        for (held, at_once) in [(0, 32), (1, 32), (4, 32), (25, 100), (1000, 4000)] {
            let credit = Credit::new();
            assert_eq!(steps_at(&credit, start, held), at_once, "at once, {held}");
            assert_eq!(steps_at(&credit, start, held), 0, "no more");
            let each = u64::from(held.max(1));
            assert_eq!(steps_at(&credit, start + window, held), each, "after the window");
            assert_eq!(steps_at(&credit, start + 50 * window, held), at_once, "no more than that");
        }
    }
}
