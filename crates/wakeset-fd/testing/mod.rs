//! The build for the model checker (`cfg(loom)`): what stands around the polls of an io_uring
//! (`set::polls`), the wait (`set::wait`, `set::quiet`), the doorbell of a set
//! (`set::doorbell::install`), the alarm of its listeners and the sleep in a poller
//! (`poll::sleeper`), which run here as they are in every build.
//!
//! A room here has the name of the room in `src/` that it replaces. It takes files of that room
//! with `#[path]` where they can run as they are, and has a double in a file of the same name where
//! they cannot. No file in `src/` but `lib.rs` knows of this build.
//!
//! | module | in a model |
//! |---|---|
//! | `set::polls`, `kernel_half::uring::{watches, thread_rings}`, `set::{wait, quiet, first_listener}`, `kernel_half::listeners::rotation::{alarm, outline, others, leftover, calm::state}`, `kernel_half::kernel_epoll`, `set::doorbell::install`, `poll::sleeper`, `sys::{user, cancel, steps}`, `stats::page`; the engine | what they are in every build |
//! | `sys::vforked_word` | `sys::vforked::word`, as it is in every build |
//! | `table::away_word` | `table::away::word`, as it is in every build |
//! | `sys::births_exclusion` | `sys::births::exclusion`, as it is in every build |
//! | `table::hidden_claims` | `table::hidden::claims`, as it is in every build |
//! | `models` | the models themselves |
//! | [`kernel`] | plays files, their numbers, one epoll, the alarm's timer, the io_urings and poll(2), in as many steps as another processor can see |
//! | `kernel_half::uring::poll_uring` | passes on to it what the io_uring of ordinary builds tells the kernel |
//! | [`sys`] | passes on the other system calls; locks and names of threads, but no signals |
//! | `sys::sync` | loom's atomics and statics |
//! | [`set`] | a set with the fields that these modules use, in no table; additions as `set::epoll_ctl` and `set::kernel_watch` have them, in a few lines |
//! | [`table`], [`migrate`] | the migrations lock; no doorbell is kept for another set |
//! | `kernel_half::listeners` | listeners are there or not; but for their alarm, nothing is done for them |
//! | `stats::count`, `set::ring` | nothing happens there |

pub(crate) mod kernel;
pub(crate) mod kernel_half;
pub(crate) mod migrate;
#[cfg(test)]
mod models;
pub(crate) mod poll;
pub(crate) mod set;
pub mod stats;
pub(crate) mod sys;
pub(crate) mod table;
