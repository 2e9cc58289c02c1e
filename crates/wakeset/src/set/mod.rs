//! The set (Linux's eventpoll).
//!
//! | folder | what |
//! |---|---|
//! | `base` | the set's words, its interest list and pending queue, the scan lock |
//! | `lease` | which thread still uses an event |
//! | `deadlines` | watches that time makes ready, and the waiter that minds the time |
//! | `harvest` | from the ready list to the events that a wait returns |
//! | `changes` | epoll_ctl(2), batches, the close of sources and sets |
//! | `ring` | the event ring, from which threads take events without the scan lock |
//! | `nesting` | sets in sets: no circles, not too deep |
//! | `engine`, `description`, `event_poll` | what users hold: the engine, an open source, a set |
//! | `shared_ring` | a set's events in memory shared with another process |
//!
//! The mechanisms are methods of one type, `SetCore`, and call each other under its scan lock: a
//! harvest plans deadlines, puts back what is in the ring and looks for unfinished marks, and a
//! change does the same. So they share its fields, and the order above is only the one to read
//! them in.

pub(in crate::set) mod base;
pub(crate) mod changes;
pub(in crate::set) mod deadlines;
pub(crate) mod description;
pub(crate) mod engine;
pub(crate) mod event_poll;
pub(in crate::set) mod harvest;
pub(crate) mod lease;
pub(in crate::set) mod nesting;
pub(crate) mod ring;
pub(crate) mod shared_ring;

pub use base::set_core::SetCore;
