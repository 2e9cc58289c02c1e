//! An event ring in memory that is shared with another process: one side writes a set's events
//! there, the other takes them without a call.
//!
//! Neither side trusts the other. Each keeps what it knows in memory of its own: its index, how far
//! the other one's may be, how large the ring is. Of the shared memory it reads the other's index,
//! once for each use, and checks that it lies between what it was and what it can be; the reader
//! reads events as well, which are numbers and nothing else. No address and no length is ever taken
//! from there. So the worst that a peer can do which is hostile, or has crashed, is to stop the
//! flow, or to write nonsense into the events of this one ring.
//!
//! | word | written by | read by |
//! |---|---|---|
//! | `tail`: events written so far | writer | reader, which sleeps on it |
//! | `writer_sleeps` | writer | reader: whether to wake |
//! | `head`: events taken so far | reader | writer, which sleeps on it |
//! | `reader_sleeps` | reader | writer: whether to wake |
//!
//! Both sleeps are publish-then-check: a side that is about to sleep says so and looks at the index
//! again; a side that moves an index looks afterwards whether the other sleeps.
//!
//! The memory is a memfd(2) whose size is sealed, so that neither side can take it away from
//! under the other.

pub(in crate::set) mod layout;
#[cfg_attr(any(loom, shuttle), path = "memory_double.rs")]
pub(in crate::set) mod memory;
#[cfg_attr(any(loom, shuttle), path = "process_double.rs")]
mod process;
pub(crate) mod reader;
pub(crate) mod writer;
