//! The event ring: the front of a set's ready list, from which any number of threads take events at
//! once without the scan lock.
//!
//! A thread that finds the ring empty takes the scan lock and moves pending watches into it
//! (`SetCore::refill`). A slot holds a *mark*: the watch, its state word as it was (generation and
//! round tell this mark from every other), its data and its source. The watch stays `QUEUED` and
//! `LISTED`, so wakes find it on the list; what is delivered is decided when it is taken:
//!
//! | kind | whose event it is | then |
//! |---|---|---|
//! | level | that of the thread that moves `head` past the slot | poll, report; it stays `QUEUED`: the next refill finds it in the slot and puts it back in line |
//! | edge | that of the thread that turns `QUEUED` off, while the state still has this mark | poll, report: a change from here on queues it again |
//! | ONESHOT | that of the thread that turns `QUEUED` off and disarms it in one step | reports what it polled just before |
//!
//! The last two are taken under the scan lock if time can make the watch ready: a taker
//! that finds nothing there plans it (see `planning`).
//!
//! `head` is moved past a slot of the last two kinds by any taker that gets there. So a
//! thread stopped anywhere in here keeps nothing from the others: it has taken at most one event,
//! and a level it has taken is seen again by the next refill.
//!
//! | part of the ring | who may write its slots |
//! |---|---|
//! | `reclaimed..head`: taken; levels among them are to go back in line | the holder of the scan lock |
//! | `head..tail`: to be taken | the holder of the scan lock, data and state of a slot whose mark it has just made void (MOD) |
//! | the rest: free | the holder of the scan lock |
//!
//! A reader of a slot reads `head` again after it: a slot is only written when `head` has been
//! seen past it.
//!
//! A DEL ends the mark with the watch. A source may go when its watches are removed, and it
//! is polled here without the scan lock: so a taker holds a *pin* while it takes, and a
//! removal, having ended the watch and released the scan lock, waits for the pins that it finds.

pub(crate) mod event_ring;
pub(in crate::set) mod line;
pub(in crate::set) mod membership;
pub(in crate::set) mod refill;
pub(in crate::set) mod ring_core;
pub(in crate::set) mod slot;
pub(in crate::set) mod take;
