//! Wakeset by descriptor number: eventfds, timerfds, pipes, stream socket pairs and epoll sets that
//! live in user space while only this process can reach them, and in the kernel from then on.
//!
//! An in-process object owns a real kernel one of the same kind. Its number, its flags, fstat(2)
//! and its entry in `/proc` are therefore real; only its state is here. When something is about to
//! reach it that does not come through this crate (fork, exec, `SCM_RIGHTS`, a call that is
//! not modelled) the state moves into the kernel object ([`migrate`]), and from then
//! on it is an ordinary kernel descriptor.
//!
//! The rooms, lowest first; a file uses its own room and those above it in this table:
//!
//! | room | what |
//! |---|---|
//! | `sys` | system calls, the program's memory, [`signal_guard`], atomics and steps for the models |
//! | [`stats`] | the counters that `--stats` shows |
//! | `table` | descriptor → object, lock-free to read |
//! | [`migrate`] | migrating objects into the kernel |
//! | `objects` | [`counter`] (eventfd), [`timer`] (timerfd), [`pipe`] (pipe and socketpair) |
//! | `kernel_half` | what a set watches in the kernel: [`listeners`], and `uring`, the two io_urings; the program's own ones ([`program_rings`]) |
//! | [`set`] | epoll_create1, epoll_ctl, epoll_wait; [`doorbell`], [`lease`], [`custom`], [`batch`], event rings |
//! | [`poll`] | poll(2) and select(2) of objects here |
//! | `calls` | close, dup, exec, `SCM_RIGHTS` ([`descriptor`]), [`fork`], complete calls; [`interpose`], what stands in front of libc's functions |
//!
//! Under loom the doubles in `testing/` stand in for most rooms; `set::{wait, quiet, polls}`, the
//! doorbell of a set (`set::doorbell::install`), the sleep in a poller (`poll::sleeper`) and
//! `sys::vforked::word` run there as they are.
//!
//! Everything is process-wide: there is one descriptor table in a process. The functions in the
//! crate's root are complete calls; those in the modules give a [`Verdict`], for a caller who has
//! his own way into the kernel.

#![no_std]
#![warn(missing_debug_implementations)]
#![cfg_attr(
    loom,
    allow(
        dead_code,
        unused_macros,
        unused_imports,
        missing_debug_implementations,
        reason = "there only `polls`, `wait` and a set's doorbell run"
    )
)]

#[cfg(loom)]
extern crate std;

/// The rooms of ordinary builds. Inline, so that one `cfg` holds for all of them.
#[cfg(not(loom))]
#[path = "."]
mod rooms {
    pub(crate) mod calls;
    pub(crate) mod kernel_half;
    pub mod migrate;
    pub(crate) mod objects;
    pub mod poll;
    pub mod set;
    pub mod stats;
    pub(crate) mod sys;
    pub(crate) mod table;

    pub use calls::{
        bytes_in, close, dup, epoll_create1, epoll_ctl, epoll_pwait2, epoll_wait, eventfd, pipe2,
        ppoll, pselect, read, recv, send, set_nonblocking, shutdown, socketpair, timerfd_create,
        timerfd_gettime, timerfd_settime, write,
    };
    pub use calls::{deputy, descriptor, duplicate, fork, interpose};
    pub use kernel_half::{listeners, program_rings};
    pub use objects::{pipe, timer};
    /// eventfd(2), and read(2) and write(2) of whatever object.
    pub mod counter {
        pub use super::calls::io::{note_nonblocking, read, write};
        pub use super::objects::counter::{eventfd, read_fast, write_fast};
    }
    pub use set::batch::{Command, epoll_ctl_batch};
    pub use set::ring::{RING_HINTS, RING_POLL, ring_setup, ring_setup_with};
    pub use set::{batch, custom, doorbell, lease, shared_ring};
    pub use stats::count;
    #[cfg(wakeset_steps)]
    #[doc(hidden)]
    pub use sys::steps;
    pub use sys::verdict::Verdict;
    pub use sys::{
        Errno, Sysno, cancel, handled, notice, own_calls, refusable, reserved, signal_guard, user,
        waits,
    };
}

/// Under the model checker: polls, waits and a set's doorbell as they are everywhere, and doubles
/// around them.
#[cfg(loom)]
#[path = "../testing/mod.rs"]
mod rooms;

pub use rooms::*;
