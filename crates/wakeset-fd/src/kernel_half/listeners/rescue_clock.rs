//! When a waiter last checked its listeners without being told to.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use wakeset::Deadline;
use wakeset_group::listener::RESCUE;

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
        let last = Duration::from_nanos(self.0.load(Ordering::Relaxed));
        RESCUE.saturating_sub(now.since_boot().saturating_sub(last))
    }

    /// When the next check is due.
    pub(crate) fn next(&self) -> Deadline {
        let next = u128::from(self.0.load(Ordering::Relaxed)) + RESCUE.as_nanos();
        Deadline::from_nanos(next as u64)
    }

    /// As [`never`](Self::never).
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Notes that a check is made now. Returns whether it was due.
    pub fn note(&self) -> bool {
        let now = Deadline::now();
        let was_due = self.until_next_from(now).is_zero();
        self.0.store(now.since_boot().as_nanos() as u64, Ordering::Relaxed);
        was_due
    }
}
