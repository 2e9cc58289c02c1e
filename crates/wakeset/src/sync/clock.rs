//! `CLOCK_MONOTONIC`.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the clock's start.
pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// The same at the last tick of the kernel's: up to some milliseconds ago.
pub(crate) fn at_last_tick() -> u64 {
    read(ClockId::MonotonicCoarse)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // CLOCK_MONOTONIC counts from boot: never negative, and it fits for 584 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
