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

/// What one waiter has left. Nothing here orders memory: two threads that pay at the same time for
/// one set may pay once.
#[derive(Debug)]
pub(super) struct Credit {
    /// What it owes for steps, which are [`WINDOW`] each, in connections held for so long.
    owed: AtomicU64,
    /// When it owed that.
    since: AtomicU64,
}

impl Credit {
    pub(super) const fn new() -> Self {
        Self { owed: AtomicU64::new(0), since: AtomicU64::new(0) }
    }

    /// What a waiter owes now that holds so many connections. Not in time: what it could not pay
    /// for with one connection may be little once it holds many.
    fn owed(&self, now: u64, held: u32) -> u64 {
        let since = now.saturating_sub(self.since.load(Relaxed));
        let paid = since.saturating_mul(u64::from(held.max(1)));
        self.owed.load(Relaxed).saturating_sub(paid)
    }

    /// Whether it is enough for a step of a waiter that holds so many connections.
    pub(super) fn is_enough(&self, now: u64, held: u32) -> bool {
        let at_once = (AT_ONCE * u64::from(held)).max(LEAST_AT_ONCE);
        self.owed(now, held) < at_once * WINDOW.as_nanos() as u64
    }

    /// Pays for one.
    pub(super) fn pay(&self, now: u64, held: u32) {
        let owed = self.owed(now, held).saturating_add(WINDOW.as_nanos() as u64);
        self.owed.store(owed, Relaxed);
        self.since.store(now, Relaxed);
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

    /// After a load of short connections a waiter took all that it was woken for, for three
    /// seconds, however many it held by then.
    #[test]
    fn what_was_owed_with_few_connections_is_little_with_many() {
        let credit = Credit::new();
        assert_eq!(steps_at(&credit, 1 << 40, 1), 32);
        assert_eq!(steps_at(&credit, 1 << 40, 25), 100 - 32);
    }
}
