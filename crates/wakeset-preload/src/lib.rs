//! `libwakeset_preload.so`: what `wakeset run` puts between a program and libc.
//!
//! Each hook asks [`wakeset_fd`] first. If the call concerns an object that lives in user space it
//! is answered there; if not, or no longer, libc's own function is called with the same arguments,
//! so that what we do not model behaves as ever: cancellation points, errno, and all.
//!
//! | room, from the lowest | what it has |
//! |---|---|
//! | `environment` | the environment, also before libc knows it |
//! | `loader` | the objects that are loaded, and roads to libc that pass no name of ours |
//! | `real` | libc's own functions |
//! | `unwind` | the unwinder, once something is unwound |
//! | `glibc` | functions of libc under versions that old glibcs have, too |
//! | `flags` | whether descriptors block |
//! | `heap` | memory that a signal handler may ask for |
//! | `dispatch` | system calls by instruction: what makes them, and how they are caught |
//! | `uffd` | userfaultfds: threads that serve the same one take turns |
//! | `signals` | the program's signal handlers, kept out of critical sections |
//! | `listeners` | listening sockets: a connection wakes one waiter |
//! | `process` | before main, around each fork, and the page of counts |
//! | `calls` | the table of calls, and from it the hooks and the decoder of `syscall()` |
//! | `caught` | calls by instruction that the kernel has reported |
//!
//! A room imports rooms above it in this table, never one below it.
//!
//! Rules for everything in here:
//! - no call of a libc function that is hooked (it would come back to us): raw system calls, or the
//!   functions that `real` looks up;
//! - no use of libc's malloc: a hook may run in a signal handler that interrupted malloc, so there
//!   is a heap of our own (`heap`);
//! - a lock is only held inside a [`SignalGuard`](wakeset_fd::signal_guard::SignalGuard), which
//!   keeps this thread's signal handlers out (`signals`).

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod calls;
mod caught;
mod dispatch;
mod environment;
mod flags;
mod glibc;
mod heap;
mod listeners;
mod loader;
mod process;
mod real;
mod signals;
mod spin;
mod uffd;
mod unwind;
