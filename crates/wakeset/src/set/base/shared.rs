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
    pub(in crate::set) fn new(watch_limit: usize) -> Self {
        Self {
            watches: Pool::new(),
            sets: Pool::new(),
            rings: Pool::new(),
            nesting: ScanLock::new(0),
            watched: AtomicUsize::new(0),
            watch_limit,
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
