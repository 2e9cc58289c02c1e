//! Plans: which watches have to be looked at when, because time makes them ready. Those of timers,
//! and of sets in which there are timers.
//!
//! | who | does |
//! |---|---|
//! | a change of a timer, to earlier than planned | pushes the watch, as any wake; *then* kicks a waiter if that is earlier than the set's deadline |
//! | the holder of the scan lock, where a watch comes from the incoming list, is added or changed, or is dropped | plans it: reads the timer, and puts the watch into the heap |
//! | the same, first of all | takes the plans whose time has come out of the heap, and queues those watches |
//! | the same, at the end | publishes the earliest plan as the set's deadline; if that is earlier than before and no waiter leads until then, kicks one; if it is later, *then* checks the incoming list, and kicks a waiter if a watch is there |
//! | a change of the interest list that makes the deadline earlier | plans the watches that other sets have on this one |
//! | a waiter | sleeps until then, unless another does: one *leads* |
//!
//! **The leader.** `led_until` says how long some waiter sleeps. A waiter that is about to sleep
//! and finds a deadline earlier than that takes over: it writes its own. A waiter that wakes takes
//! its own value out again; one that leaves the set kicks another if none leads until the deadline.
//!
//! Three parties publish and then check. A waiter counts itself in, and then checks the list, the
//! deadline and the leader. The thread that sets a timer pushes the watch, and then checks the
//! deadline and the count. The holder of the scan lock publishes the deadline, and then checks the
//! leader and the count, or the list: a timer whose watch was pushed while an earlier deadline
//! stood there has kicked no waiter, and when that deadline is gone no thread would plan it.

pub(in crate::set) mod leader;
mod outer;
pub(in crate::set) mod planning;
pub(in crate::set) mod plans;
