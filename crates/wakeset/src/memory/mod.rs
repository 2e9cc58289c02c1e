//! Memory: what stays in place for late wakers, and what is counted.

pub(crate) mod counted;
pub(crate) mod pool;
