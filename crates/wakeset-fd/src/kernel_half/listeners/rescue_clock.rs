//! When a waiter last checked its listeners without being told to.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use wakeset::Deadline;
use wakeset_group::listener::RESCUE;

/// [`RESCUE`], in nanoseconds.
const PERIOD: u64 = RESCUE.as_nanos() as u64;

/// When a waiter last checked the listeners it waits for, instead of waiting to be told. A check is
/// due once in each [`RESCUE`].
#[derive(Debug)]
pub struct RescueClock(AtomicU64);

impl RescueClock {
    /// No check so far: one is due.
    pub const fn never() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How long until the next check is due.
    pub fn until_next(&self) -> Duration {
        self.until_next_from(Deadline::now())
    }

    fn until_next_from(&self, now: Deadline) -> Duration {
        Duration::from_nanos(PERIOD.saturating_sub(self.passed(now)))
    }

    /// Whether it is due by then. Where a few milliseconds do not matter, that may be the time of
    /// the last tick.
    pub(crate) fn is_due_by(&self, now: Deadline) -> bool {
        self.passed(now) >= PERIOD
    }

    /// Nanoseconds since the last check.
    fn passed(&self, now: Deadline) -> u64 {
        now.as_nanos().saturating_sub(self.0.load(Ordering::Relaxed))
    }

    /// When the next check is due.
    pub(crate) fn next(&self) -> Deadline {
        Deadline::from_nanos(self.0.load(Ordering::Relaxed) + PERIOD)
    }

    /// As [`never`](Self::never).
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Notes that a check is made now. Returns whether it was due.
    pub fn note(&self) -> bool {
        let now = Deadline::now();
        let was_due = self.is_due_by(now);
        self.0.store(now.as_nanos(), Ordering::Relaxed);
        was_due
    }
}
