//! libwakeset: Wakeset for C and C++, and for anything else with a foreign function interface.
//!
//! `include/wakeset.h` is the library's documentation: each function is described there, and only
//! there. This page says how it is made.
//!
//! | file | functions |
//! |---|---|
//! | `epoll` | `ws_epoll_create1`, `ws_epoll_ctl`, `ws_epoll_wait` and their family |
//! | `eventfd` | `ws_eventfd` and its read and write |
//! | `io` | `ws_read`, `ws_write`, and the calls before which what they name migrates |
//! | `poll` | `ws_poll`, `ws_select` and their family |
//! | `descriptor` | `ws_close`, `ws_dup`, `ws_fcntl`, `ws_release` |
//! | `timer` | `ws_timerfd_*` |
//! | `batch` | `ws_epoll_ctl_batch` |
//! | `objects/lease` | `ws_lease_*`, `ws_epoll_retire`, `ws_lease_holders_*` |
//! | `objects/ring` | `ws_ring_*` |
//! | `objects/spin` | `ws_spin_limit` |
//! | `objects/source` | `ws_source_*`, `ws_epoll_ctl_source` |
//! | `objects/listener` | `ws_listener_*` |
//! | `objects/fault` | `ws_fault_pool_*` |
//! | `argument` | arguments that several functions take |
//! | `outcome` | panics that end here |
//! | `fork` | what happens around fork(2) |
//!
//! Each function asks [`wakeset_fd`] first, and libc's function of the same name if the call is the
//! kernel's to answer: cancellation points, sanitizers and `wakeset run` find what they expect.
//! What these functions share with the interposer's hooks is in [`wakeset_fd::interpose`]; the rows
//! of the interposer's table of calls name the calls that libwakeset has, too.
//!
//! A function that may be asleep in libc has the ABI `C-unwind`, because pthread_cancel(3) unwinds
//! the thread from there. No panic gets out of any function: it ends the process
//! ([`outcome::whole`]), as it does by itself in functions of the ABI `C`.
//!
//! To add a function: write it in the file of its topic, `extern "C"` and `no_mangle`; declare and
//! describe it in the header, in the section of its topic; name it in the map. `tests/c.rs` fails
//! until the three agree. What Linux does not have goes into `objects/`.
//!
//! `wakeset.map` says what the shared library exports, and under which version: a name that is
//! added gets the version of the release it first appears in, and never changes it.

// Safety: the functions are C's, with the contracts of the calls they are named after; the header
// states them.
#![allow(clippy::missing_safety_doc)]
#![warn(missing_debug_implementations)]
#![cfg(target_os = "linux")]

mod argument;
pub mod batch;
pub mod descriptor;
pub mod epoll;
pub mod eventfd;
mod fork;
pub mod io;
pub mod objects;
pub mod outcome;
pub mod poll;
pub mod timer;
