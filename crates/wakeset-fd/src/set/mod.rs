//! Epoll sets by descriptor number: in-process watches in an engine set, kernel watches in the
//! set's own kernel epoll.
//!
//! `FdSet` stands at the bottom of this room with its state word. It has its doorbell, its polls
//! and its listeners as fields, and they work on the set that they belong to: these files name each
//! other. The calls of a program are above them: changes, waits, and what combines the two.

pub mod batch;
pub(crate) mod complete;
mod create;
pub mod custom;
pub mod doorbell;
mod epoll_ctl;
mod epoll_wait;
mod export;
mod fd_set;
mod first_listener;
mod handover;
mod home;
mod kernel_watch;
mod last_listener;
pub mod lease;
mod look;
pub(crate) mod polls;
mod quiet;
pub(crate) mod ring;
pub mod shared_ring;
pub(crate) mod state;
pub(crate) mod wait;

pub use crate::set::complete::{change, wait};
pub use crate::set::create::{adopt, epoll_create, epoll_create1};
pub use crate::set::epoll_ctl::epoll_ctl;
pub use crate::set::epoll_wait::epoll_wait;
pub(crate) use crate::set::epoll_wait::in_kernel;
pub use crate::set::export::export;
pub(crate) use crate::set::fd_set::FdSet;
pub use crate::set::last_listener::may_have_left;
pub use crate::set::look::look_before_sleep;
pub use crate::set::quiet::epoll_wait_quietly;
pub use crate::set::wait::{Limit, Mask, STARVATION_BOUND};
pub(crate) use crate::set::wait::{Rest, milliseconds_of, timespec_of};
