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
//! | `polls` | kernel descriptors watched through an io_uring |
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

pub mod batch;
pub mod bell;
mod calls;
pub mod cancel;
pub mod count;
pub mod counter;
pub mod descriptor;
mod engine;
pub mod escape;
pub mod fork;
pub mod hand;
pub mod listeners;
mod memory;
mod moving;
pub mod own;
pub mod pipe;
mod polls;
mod ring;
pub mod section;
pub mod set;
pub mod shared_ring;
pub mod stats;
#[cfg(wakeset_steps)]
#[doc(hidden)]
pub mod steps;
#[cfg(not(wakeset_steps))]
mod steps;
mod sys;
mod table;
pub mod timer;
mod turns;
mod uring;
pub mod user;
mod verdict;

pub use batch::{Command, epoll_ctl_batch};
pub use calls::{
    bytes_in, close, dup, epoll_create1, epoll_ctl, epoll_pwait2, epoll_wait, eventfd, pipe2, read, recv, send,
    set_nonblocking, shutdown, socketpair, timerfd_create, timerfd_gettime, timerfd_settime, write,
};
pub use ring::{RING_POLL, ring_setup, ring_setup_with};
pub use sys::{Errno, Sysno};
pub use verdict::Verdict;
