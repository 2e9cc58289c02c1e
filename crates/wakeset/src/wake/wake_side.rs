//! The half of a set that wakers see: its ready list, its waiters, the wait queue of the sets
//! around it, and the words that say how a wake has to be made.
//!
//! The wake path knows of a set no more than this. The set room embeds it as the first field of its
//! `SetCore`, which lies in type-stable memory: a late waker may find the wake side of another set
//! than the one it was told of, and gives it a hint that its next harvest drops.

use crate::events::Events;
use crate::sync::line::Line;
use crate::sync::{AtomicU32, Ordering};
use crate::wake::ready_list::{Incoming, ReadyList};
use crate::wake::timed::SOON;
use crate::wake::wait_queue::WaitQueue;
use crate::wake::waiters::Waiters;
use crate::wake::watch::Watch;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// What wakers know of a set. The waiters are at its address, and so at that of the `SetCore`: it
/// is the number that probes know the set by, which then is in a register anyway.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct WakeSide {
    // Written by wakers.
    pub(crate) waiters: Line<Waiters>,
    pub(crate) incoming: Line<Incoming>,

    // Read by every waker, written rarely.
    /// A [`ReadyList`].
    #[cfg(feature = "bench-ready-lists")]
    ready_list: AtomicU32,
    /// Not 0 when a wake of a queued watch is not simply over: a locked list, or a set around
    /// this one.
    slow_wakes: AtomicU32,
    /// The watches that other sets have on this one.
    pub(crate) queue: WaitQueue,
    /// Not 0: there are, or were, watches that time can make ready.
    timed: AtomicU32,
    /// Not 0: the timer of a watch on the ready list has been set, and the watch not planned
    /// since.
    set_again: AtomicU32,
}

impl WakeSide {
    pub(crate) fn new() -> Self {
        Self {
            waiters: Line(Waiters::new()),
            incoming: Line(Incoming::new()),
            #[cfg(feature = "bench-ready-lists")]
            ready_list: AtomicU32::new(0),
            slow_wakes: AtomicU32::new(0),
            queue: WaitQueue::new(),
            timed: AtomicU32::new(0),
            set_again: AtomicU32::new(0),
        }
    }

    /// Begins another generation of the set: open, with this ready list.
    pub(crate) fn open(&self, ready_list: ReadyList) {
        #[cfg(feature = "bench-ready-lists")]
        self.ready_list.store(ready_list as u32, Ordering::Relaxed);
        // Release: nobody waits in the set or watches it before it is published. A waker that is
        // late by a generation may see either.
        self.slow_wakes.store(u32::from(ready_list != ReadyList::LockFree), Ordering::Release);
        self.set_again.store(0, Ordering::Release);
        self.timed.store(0, Ordering::Release);
        self.queue.reopen();
    }

    #[inline(always)]
    pub(crate) fn wakes_are_plain(&self) -> bool {
        self.slow_wakes.load(Ordering::SeqCst) == 0
    }

    /// Which list it has: a constant in a build that has one only.
    #[inline(always)]
    pub(crate) fn ready_list(&self) -> ReadyList {
        #[cfg(feature = "bench-ready-lists")]
        match self.ready_list.load(Ordering::Relaxed) {
            1 => return ReadyList::Spinlock,
            2 => return ReadyList::Rwlock,
            _ => {}
        }
        ReadyList::LockFree
    }

    /// Takes what wakers have put on the list, for the harvester; see [`Incoming::take`].
    #[inline]
    pub(crate) fn take_incoming(&self) -> (*mut Watch, bool) {
        #[cfg(feature = "bench-ready-lists")]
        if self.ready_list() != ReadyList::LockFree {
            return self.incoming.lock.by_harvester(self.ready_list(), || self.incoming.take());
        }
        self.incoming.take()
    }

    /// From now on a set watches this one: wakes go further out even if a watch is queued already.
    pub(crate) fn note_outer(&self) {
        self.slow_wakes.swap(1, Ordering::SeqCst);
    }

    /// From now on time can make one of the set's watches ready.
    pub(crate) fn note_timed(&self) {
        self.timed.swap(1, Ordering::SeqCst);
    }

    /// Whether there are, or were, watches that time can make ready.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.load(Ordering::SeqCst) != 0
    }

    /// The timer of a watch that is on the list has been set.
    pub(crate) fn note_set_again(&self) {
        self.set_again.swap(1, Ordering::SeqCst);
    }

    /// Whether that has happened since the last call.
    pub(crate) fn take_set_again(&self) -> bool {
        self.set_again.load(Ordering::SeqCst) != 0 && self.set_again.swap(0, Ordering::SeqCst) != 0
    }

    /// Tells the sets around this one that it may be ready.
    #[inline]
    pub(crate) fn wake_outer(&self) {
        if self.queue.may_have_watches() {
            if self.is_timed() {
                // It may also be that it has to be polled earlier than planned.
                self.queue.wake_at(SOON);
            } else {
                self.queue.wake_published(Events::IN);
            }
        }
    }
}

/// A set, as a [`Source`](crate::Source) names it: opaque, and only the set room knows what is
/// around the wake side.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct SetRef<'a> {
    side: NonNull<WakeSide>,
    set: PhantomData<&'a WakeSide>,
}

impl SetRef<'_> {
    /// # Safety
    /// `side` is the first field of a `SetCore` that stays for the lifetime, and the pointer may be
    /// used for all of it.
    pub(crate) const unsafe fn new(side: NonNull<WakeSide>) -> Self {
        Self { side, set: PhantomData }
    }

    /// The pointer it was made of.
    pub(crate) const fn side(self) -> NonNull<WakeSide> {
        self.side
    }
}

impl fmt::Debug for SetRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SetRef").field(&self.side).finish()
    }
}
