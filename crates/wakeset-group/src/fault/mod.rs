//! Threads that serve one userfaultfd: one fault wakes one of them.
//!
//! For each fault Linux wakes every thread that reads or polls the userfaultfd, and all but one of
//! them go back to sleep. In a [`Pool`] one thread at a time waits in the kernel; see
//! [`leader`](crate::leader).

mod message;
mod pool;

use crate::sys::poll;
use core::ffi::c_int;
use core::time::Duration;
use libc::pollfd;

pub use message::{EVENT_FORK, EVENT_PAGEFAULT, EVENT_REMAP, EVENT_REMOVE, EVENT_UNMAP, Message};
pub use pool::Pool;

/// Whether a userfaultfd has a message. Of one that blocks poll(2) does not say (`POLLERR`): that
/// one may have.
#[must_use]
pub fn may_have_message(fd: c_int) -> bool {
    let mut entry = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    matches!(poll(&mut entry, Some(Duration::ZERO)), Ok(1..))
}
