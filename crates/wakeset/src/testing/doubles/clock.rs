//! Time as the model checkers have it, in place of `sync/clock.rs`: it stands still until a thread
//! sleeps to a deadline that comes, and is that deadline then.

extern crate std;
use super::time::Deadline;
use core::cell::Cell;

std::thread_local! {
    /// Not one of the checker's atomics: all threads of a model are this one thread, and time
    /// orders nothing.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// Deadlines from here on never come.
const HORIZON: u64 = 1_000_000;

/// Sleeps until `deadline`, if it comes.
pub(crate) fn pass(deadline: Deadline) -> bool {
    let comes = deadline.as_nanos() < HORIZON;
    if comes {
        CLOCK.set(CLOCK.get().max(deadline.as_nanos()));
    }
    comes
}

/// Nanoseconds since the clock's start.
pub(crate) fn now() -> u64 {
    CLOCK.get()
}

/// The same: there are no ticks.
pub(crate) fn at_last_tick() -> u64 {
    now()
}

/// Begins a schedule of a model at this time.
pub fn set_model_clock(nanos: u64) {
    CLOCK.set(nanos);
}
