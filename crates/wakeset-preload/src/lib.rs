//! `libwakeset_preload.so`: what `wakeset run` puts between a program and libc.
//!
//! Each hook asks [`wakeset_fd`] first. If the call concerns an object that lives in user space it is answered there; if not,
//! or no longer, libc's own function is called with the same arguments, so that what we do not model behaves as ever:
//! cancellation points, errno, and all.
//!
//! Rules for everything in here:
//! - no call of a libc function that is hooked (it would come back to us): raw system calls, or the functions that `real` looks up;
//! - no use of libc's malloc: a hook may run in a signal handler that interrupted malloc, so there is a heap of our own (`heap`);
//! - a lock is only held inside a [`Section`](wakeset_fd::section::Section), which keeps this thread's signal handlers out
//!   (`hooks::signal`).

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod heap;
mod hooks;
mod outcome;
mod real;
mod start;
mod statistics;
