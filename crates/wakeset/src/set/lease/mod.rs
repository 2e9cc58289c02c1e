//! Leases: which thread still uses an event, so that a removal can say whether what the event's
//! data stands for can be freed.
//!
//! A removal ends the reports of a watch, but a thread may have got one just before, and be about
//! to follow the pointer that it kept in the event's data. `EPOLL_CTL_DISABLE`, proposed to Linux
//! in 2012 and not merged, was to answer that for EPOLLONESHOT.
//!
//! An event is **leased** from its report, which happens under the set's scan lock, until the
//! thread that holds the [`Lease`](crate::Lease) comes back: waits again, releases it, or re-arms
//! that watch through it. A lease notes what it was given, under that lock; a removal, which holds
//! the lock too, searches the leases. So the answer is exact, for every kind of watch.
//!
//! | `round` of a lease | means | set by | next |
//! |---|---|---|---|
//! | 4n | empty; what is noted does not count | a release | 4n+1 at the next report |
//! | 4n+1 | holds what is noted | the harvest, scan lock held | 4n+4; 4n+3 if a thread waits for it |
//! | 4n+3 | the same, and the release wakes the threads that wait | a waiting thread | 4n+4 |
//!
//! A release is one read-modify-write, without the lock, and makes no system call unless a thread
//! waits for it.

pub(crate) mod handle;
pub(in crate::set) mod leases;
pub(crate) mod removal;
