//! Wakeset by descriptor number: eventfds, timerfds, pipes, stream socket pairs and epoll sets that live in user space while only this process can reach them, and in
//! the kernel from then on.
//!
//! An in-process object owns a real kernel one of the same kind. Its number, its flags, fstat(2) and its entry in
//! `/proc` are therefore real; only its state is here. When something is about to reach it that does not come through this
//! crate (fork, exec, `SCM_RIGHTS`, a second descriptor, a call that is not modelled) the state moves into the kernel object
//! ([`escape`]), and from then on it is an ordinary kernel descriptor.
//!
//! | file | what |
//! |---|---|
//! | `table` | number → object; lock-free to read |
//! | [`counter`] | eventfd, read, write |
//! | [`timer`] | timerfd_create, timerfd_settime, timerfd_gettime |
//! | [`pipe`] | pipe, socketpair, read, write, send, recv |
//! | [`set`] | epoll_create1, epoll_ctl, epoll_wait, both halves of a set |
//! | [`batch`], `uring` | several epoll_ctl in one call; the io_uring that hands them to the kernel |
//! | `ring` | event rings: waits that take no lock |
//! | [`shared_ring`] | rings in memory that another process shares |
//! | `polls`, `wait` | kernel descriptors watched through an io_uring; one wait that looks at both halves. Both run under loom (`models`) |
//! | `turns` | listeners in a set's kernel half |
//! | [`bell`] | how a waker reaches a waiter that sleeps in the kernel half |
//! | [`escape`] | moving objects into the kernel |
//! | [`hand`] | removals that say in whose hands an event is |
//! | [`listeners`] | listening sockets: who is woken for a connection |
//! | [`own`] | sources that have no number |
//! | [`descriptor`], [`fork`] | close, dup, exec, `SCM_RIGHTS`, fork |
//! | [`section`] | keeping signal handlers out of critical sections |
//!
//! Everything is process-wide: there is one descriptor table in a process. The functions in the crate's root are
//! complete calls; those in the modules give a [`Verdict`], for a caller who has his own way into the kernel.

#![no_std]
#![warn(missing_debug_implementations)]
#![cfg_attr(
    loom,
    allow(
        dead_code,
        unused_macros,
        unused_imports,
        missing_debug_implementations,
        reason = "there only `polls` and `wait` run"
    )
)]

#[cfg(loom)]
extern crate std;

#[cfg(not(loom))]
pub mod batch;
#[cfg(not(loom))]
pub mod bell;
#[cfg(not(loom))]
mod calls;
pub mod cancel;
#[cfg(not(loom))]
pub mod count;
#[cfg(not(loom))]
pub mod counter;
#[cfg(not(loom))]
pub mod descriptor;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
pub mod escape;
#[cfg(not(loom))]
pub mod fork;
#[cfg(not(loom))]
pub mod hand;
#[cfg(not(loom))]
pub mod listeners;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
mod models;
#[cfg(not(loom))]
mod moving;
#[cfg(not(loom))]
pub mod own;
#[cfg(not(loom))]
pub mod pipe;
mod polls;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
pub mod section;
#[cfg(not(loom))]
pub mod set;
#[cfg(not(loom))]
pub mod shared_ring;
pub mod stats;
#[cfg(wakeset_steps)]
#[doc(hidden)]
pub mod steps;
#[cfg(not(wakeset_steps))]
mod steps;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
pub mod timer;
#[cfg(not(loom))]
mod turns;
#[cfg(not(loom))]
mod uring;
pub mod user;
#[cfg(not(loom))]
mod verdict;
mod wait;

#[cfg(loom)]
use models::{bell, count, escape, listeners, ring, section, set, sys};

#[cfg(not(loom))]
pub use batch::{Command, epoll_ctl_batch};
#[cfg(not(loom))]
pub use calls::{
    bytes_in, close, dup, epoll_create1, epoll_ctl, epoll_pwait2, epoll_wait, eventfd, pipe2, read, recv, send,
    set_nonblocking, shutdown, socketpair, timerfd_create, timerfd_gettime, timerfd_settime, write,
};
#[cfg(not(loom))]
pub use ring::{RING_HINTS, RING_POLL, ring_setup, ring_setup_with};
#[cfg(not(loom))]
pub use sys::{Errno, Sysno};
#[cfg(not(loom))]
pub use verdict::Verdict;
