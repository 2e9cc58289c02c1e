//! The polls of ordinary builds on a played io_uring, and listeners that are there or not.

#[path = "../../src/kernel_half/kernel_epoll.rs"]
mod kernel_epoll;
pub(crate) mod listeners;
pub(crate) mod uring;

pub(crate) use kernel_epoll::KernelEpoll;
