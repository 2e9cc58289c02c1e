//! Spinning under the model checkers, in place of `sync/spin.rs`: no thread does.

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;

use core::time::Duration;

/// Nothing: a pause is no step of a model.
pub(crate) fn pause(_times: u32) {}

pub(crate) const AUTO_LIMIT: u64 = 0;

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

/// None is set.
pub fn spin_limit() -> Option<Duration> {
    None
}

pub(crate) fn limit() -> Limit {
    Limit::Off
}

pub(crate) fn thread_time() -> Option<u64> {
    None
}

pub(crate) fn processor() -> u16 {
    0
}

#[derive(Debug)]
pub(crate) struct Spinner;

impl Spinner {
    pub(crate) fn begin(_long: bool) -> Option<Self> {
        None
    }

    pub(crate) fn spins_until(&self, _end: u64) {}

    pub(crate) fn is_one_too_many(&self, _now: u64) -> bool {
        true
    }
}
