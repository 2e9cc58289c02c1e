//! The two io_urings: one that polls kernel descriptors for a set, one that carries out the
//! commands of a batch.

pub(crate) mod command_uring;
pub(crate) mod poll_uring;
pub(crate) mod sizes;
pub(crate) mod sockets;
pub(crate) mod thread_rings;
pub(crate) mod watches;
