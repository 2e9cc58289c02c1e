//! Sizes for the models: one of each, and as many numbers as the played kernel has.

pub(crate) const POLLED_SETS: usize = 1;
pub(crate) const KEPT_POLL_URINGS: usize = 1;
pub(crate) const POLLED_FDS: usize = 8;
