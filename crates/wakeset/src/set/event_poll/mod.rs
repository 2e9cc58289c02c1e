//! The set as its users see it.

pub(crate) mod handle;
pub(crate) mod pieces;
pub(in crate::set) mod waiting;
