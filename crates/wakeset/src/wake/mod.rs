//! The wake path: from a source's change to the waiter that it wakes.
//!
//! > source changes ([`source`]) → its wait queue ([`wait_queue`]) → watch ([`path`], [`state`],
//! > [`watch`]) → ready list ([`ready_list`]) → waiter woken ([`waiters`])
//!
//! Nothing in here takes a lock, allocates, or enters the kernel unless a waiter sleeps. The
//! exceptions are the membership of a wait queue, which only `epoll_ctl` and `close` change, and
//! the waiters' own sleep.
//!
//! Nine files import each other in a circle, because what they describe is one: a wait queue holds
//! handles of watches, a watch knows the wake side of its set, and a wake side has a ready list of
//! watches and, for the sets around it, a wait queue of its own. `waiters`,
//! `state` and `timed` are outside of it.

pub(crate) mod handle;
#[cfg(feature = "bench-ready-lists")]
pub(crate) mod locked_list;
pub(crate) mod path;
pub(crate) mod ready_list;
pub(crate) mod slots;
pub(crate) mod source;
pub(crate) mod state;
pub(crate) mod timed;
pub(crate) mod wait_queue;
pub(crate) mod waiters;
pub(crate) mod wake_side;
pub(crate) mod watch;
