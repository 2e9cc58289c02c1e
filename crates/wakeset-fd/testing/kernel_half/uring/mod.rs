//! The polls of ordinary builds on a played io_uring.

pub(crate) mod poll_uring;
pub(crate) mod sizes;
pub(crate) mod sockets;
#[path = "../../../src/kernel_half/uring/thread_rings.rs"]
pub(crate) mod thread_rings;
#[path = "../../../src/kernel_half/uring/watches/mod.rs"]
pub(crate) mod watches;
