//! Plans: which watches have to be looked at when, because time makes them ready. Those of timers,
//! and of sets in which there are timers.
//!
//! | who | does |
//! |---|---|
//! | a change of a timer, to earlier than planned | pushes the watch, as any wake; kicks a waiter if that is earlier than the set's deadline |
//! | the holder of the scan lock, where a watch comes from the incoming list, is added or changed, or is dropped | plans it: reads the timer, and puts the watch into the heap |
//! | the same, first of all | takes the plans whose time has come out of the heap, and queues those watches |
//! | the same, at the end | publishes the earliest plan as the set's deadline |
//! | a change of the interest list that makes the deadline earlier | plans the watches that other sets have on this one |
//! | a waiter | sleeps until then, unless another does: one *leads* |
//!
//! **The leader.** `led_until` says how long some waiter sleeps. Who is about to sleep and finds a
//! deadline earlier than that takes over: it writes its own. Who wakes takes its own value out
//! again; who leaves the set, or publishes an earlier deadline, kicks another waiter if nobody
//! leads until then. Waiters count themselves in before they look at both words, and all others
//! write before they look at the count, so one sees the other.

pub(in crate::set) mod leader;
mod outer;
pub(in crate::set) mod planning;
pub(in crate::set) mod plans;
