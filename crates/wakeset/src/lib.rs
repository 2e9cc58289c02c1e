//! Wakeset: epoll in user space, with exactly Linux's semantics.
//!
//! [`EventPoll`] is the set, [`Source`] what it can watch, [`Counter`] (eventfd) and [`Timer`] (timerfd) the sources that come with it. Data flows one way, and
//! the files are meant to be read in that order:
//!
//! > source changes ([`Counter`]) → its wait queue (`wait_queue`) → watch (`wake`, `state`, `watch`) → ready list (`ready_list`) →
//! > waiter woken (`sleepers`) → deliver (`set`) → events out ([`EventPoll::wait`])
//!
//! The wake path takes no lock, allocates nothing, enters the kernel only to wake a sleeping thread, and is async-signal-safe. A
//! thread stopped anywhere in it stops no other.
//!
//! # Where it runs
//! Linux. `no_std` with `alloc`; it sleeps on futex(2) and reads `CLOCK_MONOTONIC`, both without libc.

#![no_std]
#![warn(missing_debug_implementations)]

extern crate alloc;

// First: a macro is known from where it stands on.
#[macro_use]
mod mutant;

mod batch;
mod counted;
mod counter;
mod engine;
mod error;
mod event_poll;
mod event_ring;
mod events;
#[cfg(any(loom, shuttle))]
mod explore;
mod hand;
mod lock;
mod nesting;
mod patience;
mod pipe;
mod pool;
mod ready_list;
mod set;
mod shared_ring;
mod sleepers;
mod source;
mod state;
#[cfg(wakeset_steps)]
#[doc(hidden)]
pub mod steps;
#[cfg(not(wakeset_steps))]
mod steps;
mod sync;
mod thread_id;
mod time;
mod timer;
mod wait_queue;
mod wake;
mod watch;

pub use batch::{Change, Changes, OnError};
pub use counter::{Counter, CounterFlags};
pub use engine::Engine;
pub use error::Error;
pub use event_poll::{EventPoll, Woken};
pub use event_ring::EventRing;
pub use events::{Event, Events};
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use explore::explore;
pub use hand::{Hand, Holders, Told};
#[doc(hidden)]
pub use lock::{RawLock, ScanGuard, ScanLock, set_priority_inheritance};

/// The number of this process, without a system call where the kernel can wipe a page on fork (`MADV_WIPEONFORK`). A child of vfork(2) gets
/// its parent's.
#[doc(hidden)]
#[must_use]
pub fn process_id() -> u32 {
    thread_id::process()
}

#[cfg(any(loom, shuttle, wakeset_mutants))]
#[doc(hidden)]
pub use mutant::is_mutant;
#[doc(hidden)]
pub use pipe::{LONGEST_MESSAGE, LONGEST_WRITE, Look, PIPE_CAPACITY, Piece, Pipe, Room, Taken};
pub use ready_list::{LockFree, ReadyList, RwLock, SpinLock};
pub use set::{Leaving, SetCore};
pub use shared_ring::{RingReader, RingWriter};
pub use sleepers::Ring;
pub use source::{Description, Source};
#[cfg(loom)]
#[doc(hidden)]
pub use sync::seen as model_atomics;
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use time::set_model_clock;
pub use time::{Deadline, Timeout};
#[doc(hidden)]
pub use timer::Expiry;
pub use timer::{Timer, TimerFlags, TimerSpec};
pub use wait_queue::WaitQueue;
