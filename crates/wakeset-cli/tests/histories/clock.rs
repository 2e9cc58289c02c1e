//! The clock of a history. If one call's end is before another's beginning, then the first took
//! effect before the second did anything.
//!
//! `CLOCK_MONOTONIC` is the same on all processors, and reading it writes no shared memory and
//! empties no store buffer. A counter that threads increment would be simpler, but is a full
//! barrier and a cache line that all of them fight for, before and after every call: the races
//! looked for would not happen.

use std::time::Duration;

/// Nanoseconds since some moment.
pub type Time = u64;

fn now() -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the memory is there. The clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps the clock from being read after a load of the call has been made, or before the last one
/// of it. On x86-64 a load fence does, and leaves stores alone.
#[inline(always)]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_lfence()
    };
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// The time just before a call.
#[inline(always)]
pub fn before() -> Time {
    let time = now();
    fence();
    time
}

/// The time just after a call.
#[inline(always)]
pub fn after() -> Time {
    fence();
    now()
}

/// A limit in milliseconds as a length of time.
pub fn millis(limit: i32) -> Time {
    Duration::from_millis(limit.max(0) as u64).as_nanos() as Time
}
