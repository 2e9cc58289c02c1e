//! Giving the processor away without sleeping.

/// One yield: sched_yield(2).
pub(crate) fn yield_now() {
    rustix::thread::sched_yield();
}

/// Pauses `times` times, some nanoseconds each.
pub(crate) fn pause(times: u32) {
    for _ in 0..times {
        core::hint::spin_loop();
    }
}
