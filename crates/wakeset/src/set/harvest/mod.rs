//! The harvest: from the ready list to the events that a wait returns.
//!
//! `scanning` begins and ends every piece of work on the ready list; in between, `delivery` takes
//! the pending queue, `unfinished` what wakers have marked and not pushed, `poll` answers for a set
//! in a set, and `passing` tells other sets of what a waiter leaves behind.

pub(in crate::set) mod delivery;
pub(in crate::set) mod passing;
pub(in crate::set) mod poll;
pub(in crate::set) mod scanning;
pub(in crate::set) mod unfinished;
