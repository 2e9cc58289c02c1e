//! Spinning under the model checkers, in place of `sync/spin.rs`.

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;

/// Nothing: a pause is no step of a model.
pub(crate) fn pause(_times: u32) {}
