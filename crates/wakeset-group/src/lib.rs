//! Wake groups: threads or processes that wait for the same kernel object are woken one at a time, in an order that can be
//! chosen.

#![no_std]
#![warn(missing_debug_implementations)]

pub mod fault;
pub mod listener;
