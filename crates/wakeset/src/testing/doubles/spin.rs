//! Spinning under the model checkers, in place of `sync/spin.rs`: a thread looks as often as the
//! model says, and time goes on by a nanosecond with each look.

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;

extern crate std;
use super::clock;
use super::time::Deadline;
use core::cell::Cell;
use core::time::Duration;

std::thread_local! {
    /// Not one of the checker's atomics, as the clock is not.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// How many times each wait of a schedule of a model looks before it sleeps; 0 unless this was
/// called.
pub fn set_model_spin(looks: u32) {
    LOOKS.set(looks);
}

/// In a model whose waits spin, a nanosecond.
pub(crate) fn pause(_times: u32) {
    if LOOKS.get() > 0 {
        clock::pass(Deadline::from_nanos(clock::now() + 1));
    }
}

pub(crate) const AUTO_LIMIT: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "as the machine's")]
pub(crate) enum Limit {
    Off,
    Auto,
    Nanos(u64),
}

/// As in `sync/spin.rs`.
pub const LONGEST_SPIN: u32 = 1_000_000;

/// Without effect.
pub fn set_spin_limit(_micros: Option<u32>) {}

/// What the model has set.
pub fn spin_limit() -> Option<Duration> {
    match limit() {
        Limit::Nanos(limit) => Some(Duration::from_nanos(limit)),
        Limit::Off | Limit::Auto => None,
    }
}

pub(crate) fn limit() -> Limit {
    match LOOKS.get() {
        0 => Limit::Off,
        looks => Limit::Nanos(looks.into()),
    }
}

pub(crate) fn thread_time() -> Option<u64> {
    None
}

pub(crate) fn process_time() -> Option<u64> {
    None
}

pub(crate) fn runs(_thread: u32) -> Option<bool> {
    None
}

pub(crate) fn time_of(_thread: u32) -> Option<u64> {
    None
}

pub(crate) fn has_processors() -> bool {
    false
}

pub(crate) fn is_spun_on(_processor: u16, _now: u64) -> bool {
    false
}

pub(crate) fn processor() -> u16 {
    0
}

#[derive(Debug)]
pub(crate) struct Spinner;

impl Spinner {
    pub(crate) fn begin(_long: bool) -> Option<Self> {
        (LOOKS.get() > 0).then_some(Self)
    }

    pub(crate) fn spins_until(&self, _end: u64) {}

    pub(crate) fn is_one_too_many(&self, _now: u64) -> bool {
        false
    }
}
