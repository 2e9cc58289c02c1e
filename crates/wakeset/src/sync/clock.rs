//! `CLOCK_MONOTONIC`.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the clock's start.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CLOCK_MONOTONIC counts from boot: never negative, and it fits for 584 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
