//! The polls of ordinary builds on a played io_uring, and no listeners.

pub(crate) mod listeners;
pub(crate) mod uring;
