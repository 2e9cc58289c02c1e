//! The ready list, first half: where wakers put watches. The second half, the harvester's own
//! queue, is in [`set`](crate::set), behind the scan lock.
//!
//! [`ReadyList::LockFree`] is the only one that an ordinary build has. With the feature
//! `bench-ready-lists`, which benchmarks and tests turn on, there are two more, built as Linux
//! built its list before and after 2019 ([`locked_list`](crate::wake::locked_list)).

use crate::sync::{AtomicPtr, Ordering};
use crate::testing::steps::step;
#[cfg(feature = "bench-ready-lists")]
use crate::wake::locked_list::ListLock;
use crate::wake::watch::Watch;
use core::ptr;

/// How wakers pass watches to the harvester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ReadyList {
    /// A push stack, taken whole and reversed: a push is one compare-and-swap, and a waker stopped
    /// before or after it hides no other waker's watch. Allocates nothing, and may run in a signal
    /// handler.
    #[default]
    LockFree = 0,
    /// The list under a spinlock, taken for every event (Linux up to 5.0, and from 6.17). For
    /// benchmarks only: a stopped waker stops other wakers.
    Spinlock = 1,
    /// The list under a read-write lock: wakers share it, the harvester excludes them (Linux 5.1
    /// to 6.16). For benchmarks only, as the spinlock.
    Rwlock = 2,
}

impl ReadyList {
    /// Whether this build has the list: [`LockFree`](Self::LockFree) always, the other two with
    /// the feature `bench-ready-lists`.
    #[must_use]
    pub const fn is_available(self) -> bool {
        matches!(self, Self::LockFree) || cfg!(feature = "bench-ready-lists")
    }
}

/// The bit of the head that calls for attention. Watches are 64-byte aligned.
const ATTENTION: usize = 1;

fn untagged(head: *mut Watch) -> *mut Watch {
    head.map_addr(|address| address & !ATTENTION)
}

/// The wakers' side of the list: last pushed first, linked through [`Watch::next`].
#[derive(Debug)]
pub(crate) struct Incoming {
    head: AtomicPtr<Watch>,
    /// Of the two locked lists.
    #[cfg(feature = "bench-ready-lists")]
    pub(crate) lock: ListLock,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            #[cfg(feature = "bench-ready-lists")]
            lock: ListLock::new(),
        }
    }

    /// Whether nothing has been pushed and no waker calls for attention.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(ordering!(SeqCst, "list_look_relaxed")).is_null()
    }

    /// Puts a watch on the list.
    ///
    /// # Safety
    /// The caller has turned on the watch's `QUEUED` bit and so owns its `next` link; the watch is
    /// type-stable.
    #[inline]
    pub(crate) unsafe fn push(&self, watch: *mut Watch) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            step!(push_before);
            // SAFETY: the caller owns the link.
            unsafe { &*watch }.next.store(untagged(head), Ordering::Relaxed);
            // SeqCst: the first half of publish-then-check with a waiter that counts itself in and
            // then looks here (see `Waiters::sleep_with`). No ABA problem: nothing is ever popped
            // singly.
            let attention =
                if mutant!("push_drops_attention") { 0 } else { head.addr() & ATTENTION };
            let tagged = watch.map_addr(|address| address | attention);
            step!(push_linked);
            match self.head.compare_exchange(
                head,
                tagged,
                ordering!(SeqCst, "push_relaxed"),
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        step!(push_done);
    }

    /// Makes the next harvest look for marked watches that are not on the list.
    #[cold]
    pub(crate) fn call_attention(&self) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let tagged = head.map_addr(|address| address | ATTENTION);
            step!(attention_before);
            // Also if it is called already: the read-modify-write is what the check of the sleepers
            // needs.
            match self.head.compare_exchange(head, tagged, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        step!(attention_called);
    }

    /// Takes everything, last pushed first, and whether attention was called.
    pub(crate) fn take(&self) -> (*mut Watch, bool) {
        if self.is_empty() {
            return (ptr::null_mut(), false);
        }
        step!(take_before);
        let head = if mutant!("take_in_two_steps") {
            let head = self.head.load(Ordering::SeqCst);
            self.head.store(ptr::null_mut(), Ordering::SeqCst);
            head
        } else {
            self.head.swap(ptr::null_mut(), ordering!(SeqCst, "take_relaxed"))
        };
        step!(taken);
        (untagged(head), head.addr() & ATTENTION != 0)
    }
}

#[cfg(all(test, loom))]
mod models;
