//! How many tallies a page has; nothing counts in them.

pub(crate) const TALLIES: usize = 4;
pub(crate) const SET_TALLIES: usize = 2;
