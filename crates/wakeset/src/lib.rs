//! Wakeset: epoll in user space, with exactly Linux's semantics.
//!
//! [`EventPoll`] is the set, [`Source`] what it can watch; [`Counter`] (eventfd), [`Timer`]
//! (timerfd) and pipes are the sources that come with it. An event flows one way:
//!
//! > source changes (`sources/`) → its wait queue → watch → ready list → waiter woken (`wake/`) →
//! > deliver → events out (`set/`)
//!
//! A room imports only from those before it: `probe`, `testing`, `sync` (atomics, futex, locks,
//! clock), `memory` (memory that stays in place), `wake`, `sources`, `set`.
//!
//! The wake path takes no lock, allocates nothing, enters the kernel only to wake a sleeping
//! thread, and is async-signal-safe. A thread stopped anywhere in it stops no other.
//!
//! # Where it runs
//! Linux. `no_std` with `alloc`; it sleeps on futex(2) and reads `CLOCK_MONOTONIC`, both without
//! libc.

#![no_std]
#![warn(missing_debug_implementations)]

extern crate alloc;

// First: a macro is known from where it stands on.
#[macro_use]
mod probe;
#[macro_use]
mod testing;

mod error;
mod events;
mod memory;
mod set;
mod sources;
mod sync;
mod wake;

pub use error::Error;
pub use events::{Event, Events};
pub use set::changes::batch::{Change, Changes, OnError};
pub use set::engine::Engine;
pub use set::event_poll::{handle::EventPoll, pieces::Woken};
pub use set::lease::{
    handle::Lease,
    removal::{LeaseHolders, Removal},
};
pub use set::ring::event_ring::EventRing;
pub use sources::counter::{Counter, CounterFlags};
#[doc(hidden)]
pub use sync::lock::{RawLock, ScanGuard, ScanLock, set_priority_inheritance};
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use testing::explore::explore;

/// The number of this process, without a system call where the kernel can wipe a page on fork
/// (`MADV_WIPEONFORK`). A child of vfork(2) gets its parent's.
#[doc(hidden)]
#[must_use]
#[inline]
pub fn process_id() -> u32 {
    sync::thread_id::process()
}

#[doc(hidden)]
pub use set::SetCore;
#[doc(hidden)]
pub use set::changes::closing::DetachedWatch;
pub use set::description::Description;
pub use set::shared_ring::{reader::RingReader, writer::RingWriter};
#[doc(hidden)]
pub use sources::pipe::{
    LONGEST_MESSAGE, LONGEST_WRITE, PIPE_CAPACITY, Piece, Pipe, PipeCapacity, PipeState, Taken,
};
#[doc(hidden)]
pub use sources::timer::Expiry;
pub use sources::timer::{Timer, TimerFlags, TimerSpec};
#[doc(hidden)]
pub use sync::after_publishing;
#[cfg(loom)]
#[doc(hidden)]
pub use sync::atomics::seen as model_atomics;
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use sync::clock::set_model_clock;
#[cfg(wakeset_steps)]
#[doc(hidden)]
pub use sync::inheritance::set_in_use as set_real_time;
#[doc(hidden)]
pub use sync::last_stretch::LastStretch;
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use sync::spin::set_model_spin;
#[doc(hidden)]
pub use sync::spin::spin_limit;
pub use sync::spin::{LONGEST_SPIN, set_spin_limit};
pub use sync::time::{Deadline, Timeout};
#[cfg(any(loom, shuttle, wakeset_mutants))]
#[doc(hidden)]
pub use testing::mutant::is_mutant;
#[cfg(wakeset_steps)]
#[doc(hidden)]
pub use testing::steps;
pub use wake::ready_list::ReadyList;
pub use wake::source::Source;
#[doc(hidden)]
pub use wake::timed::{NEVER, Timed};
pub use wake::wait_queue::WaitQueue;
pub use wake::waiters::DoorbellFn;
#[doc(hidden)]
pub use wake::wake_side::SetRef;

/// The code that the page shows is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
