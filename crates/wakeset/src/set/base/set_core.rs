//! The set (Linux's eventpoll): interest list, ready list, waiters, one scan lock.
//!
//! Which lock guards what:
//!
//! 1. `Shared::nesting`, only while a set is added to a set.
//! 2. `SetCore::scan`, an outer set's before an inner one's: interest list, pending queue, the
//!    guarded half of each watch.
//! 3. a wait queue's own lock: which slots are in use.
//!
//! A batch of changes holds the second for all that need no more than it (`Changing`, `batch.rs`).
//!
//! Wakers take none of them. They mark a watch `QUEUED` and push it onto `incoming`; the holder of
//! the scan lock moves what is there to `pending`, in the order it was pushed, and delivers from
//! there.

use crate::events::Events;
use crate::memory::pool::Pooled;
use crate::set::base::pending::Pending;
use crate::set::base::scan::Scan;
use crate::set::base::shared::Shared;
use crate::set::deadlines::plans::Plans;
use crate::set::lease::leases::Leases;
use crate::set::ring::ring_core::RingCore;
use crate::sync::lock::ScanLock;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::wake::source::Source;
use crate::wake::state::State;
use crate::wake::watch::{guarded, shared};
use core::ptr::{self, NonNull};
use hashbrown::HashTable;

use crate::set::nesting::seen::Seen;
use crate::sync::line::Line;
use crate::wake::ready_list::ReadyList;
use crate::wake::timed::NEVER;
use crate::wake::wake_side::{SetRef, WakeSide};

/// A set, in type-stable memory. Public in name only: [`Source::as_set`] mentions it.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SetCore {
    /// First, so that a pointer to it is one to the set ([`SetCore::of`]).
    pub(in crate::set) wake: WakeSide,

    pub(in crate::set) link: AtomicPtr<SetCore>,
    /// The engine whose pool this memory is part of.
    pub(in crate::set) home: AtomicPtr<Shared>,
    /// What a descriptor table knows the set by; opaque here.
    owner: AtomicUsize,
    /// The loop and path checks' notes.
    pub(in crate::set) seen: Seen,

    // Written by harvesters and changers.
    /// How many watches are pending, as of the last time the scan lock was free; at least 1 while
    /// a harvester has taken them off the list, so that no other waiter takes that for "nothing
    /// ready".
    pub(in crate::set) pending_hint: AtomicUsize,
    /// Watches on the interest list.
    pub(in crate::set) len: AtomicUsize,
    /// Until when the waiter sleeps that minds the deadline; `NEVER` for none. See
    /// [`planning`](crate::set::deadlines::planning).
    pub(in crate::set) led_until: AtomicU64,
    /// Not 0: the set takes no more watches. Changed and looked at under the scan lock, but for the
    /// beginning of another generation, which needs none for it: a thread that comes late, with the
    /// lock, finds the set closed or open.
    pub(in crate::set) closed: AtomicU32,
    /// Not 0: a thread has harvested without a lease. As `closed`.
    pub(in crate::set) untracked: AtomicU32,
    /// The event ring, null for none. Set and taken away under the scan lock.
    pub(in crate::set) ring: AtomicPtr<RingCore>,
    pub(in crate::set) scan: Line<ScanLock<Scan>>,
}

impl Pooled for SetCore {
    fn vacant() -> Self {
        Self {
            wake: WakeSide::new(),
            link: AtomicPtr::new(ptr::null_mut()),
            home: AtomicPtr::new(ptr::null_mut()),
            owner: AtomicUsize::new(0),
            seen: Seen::new(),
            scan: Line(ScanLock::new(Scan {
                interest: HashTable::new(),
                pending: Pending::EMPTY,
                plans: Plans::new(),
                free: ptr::null_mut(),
                leases: Leases::new(),
            })),
            closed: AtomicU32::new(1),
            untracked: AtomicU32::new(0),
            pending_hint: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            led_until: AtomicU64::new(NEVER),
            ring: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

impl SetCore {
    pub(in crate::set) fn home(&self) -> &Shared {
        // SAFETY: stored by `open` before anybody else saw this set; the engine outlives what is in
        // its pools.
        unsafe { &*self.home.load(Ordering::Relaxed) }
    }

    /// The set that a source names.
    #[inline]
    pub(crate) fn of(set: SetRef<'_>) -> &SetCore {
        // SAFETY: `as_ref` is the only way to make one, of a pointer to the whole set, and so is
        // `add_counted` for what a watch has; the wake side is the first field of a `repr(C)`.
        unsafe { set.side().cast().as_ref() }
    }

    /// The set as a source names it.
    #[inline]
    pub(crate) fn as_ref(&self) -> SetRef<'_> {
        // SAFETY: the wake side is the first field, and the pointer is one to the whole set.
        unsafe { SetRef::new(NonNull::from(self).cast()) }
    }

    /// Begins another generation of this memory as an open set of `home`, whose pool it comes from.
    pub(crate) fn open(&self, home: &Shared, ready_list: ReadyList) {
        self.home.store(ptr::from_ref(home).cast_mut(), Ordering::Relaxed);
        self.led_until.store(NEVER, Ordering::Release);
        self.wake.open(ready_list);
        self.untracked.store(0, Ordering::Relaxed);
        // Release: whoever finds it open finds all of the above.
        self.closed.store(0, Ordering::Release);
    }

    /// Whether it takes no more watches. A thread that has not the scan lock may hear this late.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Whether a harvest could find something. Never false while a ready watch is queued, or taken
    /// off the list by a harvester that has not put it back or reported it.
    #[inline]
    pub(crate) fn may_be_ready(&self) -> bool {
        if mutant!("hint_before_list") {
            return self.pending_hint.load(Ordering::SeqCst) != 0
                || !self.wake.incoming.is_empty()
                || self.is_due();
        }
        // The list first: it is raised to a hint before it is taken (`collect`), so who sees it
        // taken sees the hint.
        !self.wake.incoming.is_empty()
            || self.pending_hint.load(Ordering::SeqCst) != 0
            || self.is_due()
    }

    /// Whether a harvest could find nothing, and no watch is planned for a time. In the order of
    /// [`may_be_ready`](Self::may_be_ready).
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.wake.incoming.is_empty()
            && self.pending_hint.load(Ordering::SeqCst) == 0
            && self.wake.waiters.deadline() == NEVER
    }

    pub(crate) fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }

    pub(crate) fn set_owner(&self, owner: usize) {
        self.owner.store(owner, Ordering::Release);
    }

    /// How many watches the interest list has.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub(crate) fn between_scans<T>(&self, f: impl FnOnce() -> T) -> T {
        let _scan = self.scan.lock();
        f()
    }

    /// Calls `f(descriptor, source, interest, data)` for each watch.
    pub(crate) fn for_each(&self, mut f: impl FnMut(i32, *const dyn Source, Events, u64)) {
        let scan = self.scan.lock();
        for &watch in &scan.interest {
            // SAFETY: on the interest list of this set, whose lock we hold.
            let (fields, state) =
                unsafe { (guarded(watch), State(shared(watch).state.load(Ordering::Relaxed))) };
            f(fields.fd, fields.source, state.interest(), fields.data);
        }
    }
}
