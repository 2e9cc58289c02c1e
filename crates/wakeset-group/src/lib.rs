//! Wake groups: threads or processes that wait for the same kernel object are woken one at a time,
//! in an order that can be chosen.
//!
//! Each module imports only from those above it:
//!
//! | module | what it holds |
//! |---|---|
//! | [`Order`] | which of the waiters is woken next |
//! | `sync`, `sys` | atomics and futexes; the system calls |
//! | [`leader`] | the one of several threads that waits in the kernel |
//! | [`fault`] | threads that serve one userfaultfd, by a leader |
//! | [`listener`] | waiters of one listening socket, by the kernel's exclusive watches |
//! | `testing` | the loom double of the futex, and the models |

#![no_std]
#![warn(missing_debug_implementations)]

#[cfg(any(test, loom))]
extern crate std;

pub mod fault;
pub mod leader;
pub mod listener;
mod order;
mod sync;
mod sys;
#[cfg(loom)]
mod testing;

pub use order::Order;
pub use syscalls::Errno;
