//! The set itself: its words and lists, on which the rest of the room builds.
//!
//! `shared` and `set_core` import each other: a set knows the engine whose memory it is part of,
//! and the engine has the pool of sets.

pub(in crate::set) mod mark;
pub(in crate::set) mod pending;
pub(in crate::set) mod scan;
pub(crate) mod set_core;
pub(in crate::set) mod shared;
