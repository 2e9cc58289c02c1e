//! Threads that serve one userfaultfd: one fault wakes one of them.
//!
//! For each fault Linux wakes every thread that reads or polls the userfaultfd, and all but one of
//! them go back to sleep. In a [`Pool`] one thread at a time waits in the kernel; see
//! [`leader`](crate::leader).

mod message;
mod pool;

pub use message::{EVENT_FORK, EVENT_PAGEFAULT, EVENT_REMAP, EVENT_REMOVE, EVENT_UNMAP, Message};
pub use pool::Pool;
