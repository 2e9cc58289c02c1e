//! Wake groups: threads or processes that wait for the same kernel object are woken one at a time, in an order that can be
//! chosen.

#![no_std]
#![warn(missing_debug_implementations)]

#[cfg(any(test, loom))]
extern crate std;

pub mod fault;
pub mod listener;
mod order;
mod sync;
pub mod turn;

pub use order::Order;
pub use syscalls::Errno;
