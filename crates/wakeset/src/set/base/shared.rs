//! What the sets of one engine share: the pools of type-stable memory, the limit on watches, and
//! the lock that only nesting takes.

use crate::memory::pool::Pool;
use crate::set::base::set_core::SetCore;
use crate::set::ring::ring_core::RingCore;
use crate::sync::lock::ScanLock;
use crate::sync::{AtomicUsize, Ordering};
use crate::wake::watch::Watch;

pub(crate) struct Shared {
    pub(crate) watches: Pool<Watch>,
    pub(crate) sets: Pool<SetCore>,
    pub(crate) rings: Pool<RingCore>,
    /// Taken to add a set to a set, or a source to a set that is itself watched; never by a
    /// harvest, a removal or a close. See [`nesting`](crate::set::nesting).
    /// Guards a count of the walks that its checks have made.
    pub(crate) nesting: ScanLock<usize>,
    /// Watches in all sets together, counted only under a limit.
    watched: AtomicUsize,
    pub(in crate::set) watch_limit: usize,
}

impl Shared {
    /// Writes one without watches. Each field goes to its place by way of no stack: a signal
    /// handler may make the process's engine where there is little.
    ///
    /// # Safety
    /// There is memory for one.
    pub(in crate::set) unsafe fn write_new(place: *mut Self, watch_limit: usize) {
        // A field that is not written is missing here.
        let _ = |all: &Self| {
            let Self { watches: _, sets: _, rings: _, nesting: _, watched: _, watch_limit: _ } =
                all;
        };
        // SAFETY: the caller's contract.
        unsafe {
            Pool::write_new(&raw mut (*place).watches);
            Pool::write_new(&raw mut (*place).sets);
            Pool::write_new(&raw mut (*place).rings);
            (&raw mut (*place).nesting).write(ScanLock::new(0));
            (&raw mut (*place).watched).write(AtomicUsize::new(0));
            (&raw mut (*place).watch_limit).write(watch_limit);
        }
    }

    /// Counts one watch in; `false` at the limit. Without a limit nothing is counted, so sets do
    /// not share a cache line.
    pub(crate) fn count_in(&self) -> bool {
        if self.watch_limit == usize::MAX {
            return true;
        }
        let room = |watched: usize| (watched < self.watch_limit).then_some(watched + 1);
        self.watched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    pub(crate) fn count_out(&self) {
        if self.watch_limit != usize::MAX {
            self.watched.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
