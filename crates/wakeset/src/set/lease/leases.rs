//! The leases of a set as the set knows them, under its scan lock.

use crate::memory::counted::Counted;
use crate::sync::time::Deadline;
use crate::sync::{Futex, Ordering, Slept};
use crate::wake::handle::Handle;
use crate::wake::state::State;
use crate::wake::watch::{Watch, shared};
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::fmt;
use core::num::NonZeroU32;
use core::ptr;

const EVERY_CLASS: NonZeroU32 = NonZeroU32::MAX;
pub(in crate::set) const HOLDS: u32 = 1;
const AWAITED: u32 = 2;
const ROUND: u32 = 4;

/// What tells a watch from all others, also from later ones in the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known(Handle);

impl Known {
    /// For the holder of the scan lock.
    #[inline]
    pub(in crate::set) fn of(watch: *mut Watch) -> Self {
        // SAFETY: type-stable.
        let state = State(unsafe { shared(watch) }.state.load(Ordering::Relaxed));
        Self(Handle::new(watch, state, false))
    }
}

/// A lease as its set knows it.
pub(crate) struct LeaseCore {
    pub(in crate::set) round: Futex,
    /// What the current round was given. Guarded by the scan lock of the set.
    held: UnsafeCell<Vec<Known>>,
    /// The next lease of the set. Guarded in the same way.
    next: UnsafeCell<Option<Counted<LeaseCore>>>,
}

// SAFETY: the cells are touched with the scan lock held only.
unsafe impl Sync for LeaseCore {}
// SAFETY: as above.
unsafe impl Send for LeaseCore {}

/// # Safety (of the unsafe methods)
/// The caller holds the scan lock of the set.
impl LeaseCore {
    pub(in crate::set) fn new() -> Self {
        Self {
            round: Futex::new(0),
            held: UnsafeCell::new(Vec::new()),
            next: UnsafeCell::new(None),
        }
    }

    /// Room for one more note; `false` if there is no memory.
    pub(crate) unsafe fn has_room(&self) -> bool {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.held.get() }.try_reserve(1).is_ok()
    }

    /// Notes a report, for which there is room.
    pub(crate) unsafe fn take(&self, known: Known) -> bool {
        // SAFETY: the caller's contract.
        let held = unsafe { &mut *self.held.get() };
        // Only the thread that has the lease changes these bits, and it is here.
        let round = self.round.word().load(Ordering::Relaxed);
        if round & HOLDS == 0 {
            held.clear();
            // Relaxed: a removal looks for it under the lock.
            self.round.word().store(round | HOLDS, Ordering::Relaxed);
        }
        if !mutant!("report_is_not_noted") {
            held.push(known);
        }
        true
    }

    /// Forgets a report of this round.
    pub(crate) unsafe fn give_back(&self, known: Known) {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.held.get() }.retain(|held| *held != known);
    }

    /// Whether it holds an event of the watch, and since which round.
    pub(in crate::set) unsafe fn holds(&self, known: Known) -> Option<u32> {
        // Acquire: what was done with the event, if it has been put down.
        let round = self.round.word().load(ordering!(Acquire, "hand_look_relaxed"));
        // SAFETY: the caller's contract.
        (round & HOLDS != 0 && unsafe { &*self.held.get() }.contains(&known)).then_some(round)
    }

    #[inline]
    pub(in crate::set) fn release(&self) {
        let round = self.round.word().load(Ordering::Relaxed);
        if round & HOLDS == 0 {
            return;
        }
        let empty = (round & !(HOLDS | AWAITED)).wrapping_add(ROUND);
        // Release: what was done with the events comes before.
        let round = self.round.word().swap(empty, ordering!(Release, "put_down_relaxed"));
        if round & AWAITED != 0 {
            self.round.wake(u32::MAX >> 1, EVERY_CLASS);
        }
    }

    /// Waits until what it held at `round` is released; `false` if the time is up before.
    pub(in crate::set) fn wait_past(&self, round: u32, deadline: Option<Deadline>) -> bool {
        loop {
            // Relaxed: a removal that waits looks through the leases again, under the lock.
            let now = self.round.word().load(Ordering::Relaxed);
            if now & !AWAITED != round & !AWAITED {
                return true;
            }
            let awaited = now | AWAITED;
            let marked = now == awaited
                || mutant!("wait_without_mark")
                || self
                    .round
                    .word()
                    .compare_exchange(now, awaited, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            let expected = if mutant!("wait_without_mark") { now } else { awaited };
            if marked && self.round.sleep(expected, deadline, EVERY_CLASS) == Slept::TimedOut {
                return false;
            }
        }
    }
}

/// The leases of a set; guarded by its scan lock.
pub(crate) struct Leases {
    first: Option<Counted<LeaseCore>>,
}

impl Leases {
    pub(crate) const fn new() -> Self {
        Self { first: None }
    }

    /// The first lease but `but` that holds an event of the watch, and since when.
    pub(crate) fn holder(
        &self,
        known: Known,
        but: Option<&LeaseCore>,
    ) -> Option<(Counted<LeaseCore>, u32)> {
        let mut next = &self.first;
        while let Some(lease) = next {
            // SAFETY: whoever has the list holds the scan lock.
            let (round, after) = unsafe { (lease.holds(known), &*lease.next.get()) };
            if let Some(round) = round
                && !but.is_some_and(|but| ptr::eq(but, &**lease))
            {
                return Some((lease.clone(), round));
            }
            next = after;
        }
        None
    }

    pub(in crate::set) fn insert(&mut self, lease: Counted<LeaseCore>) {
        // SAFETY: as above.
        unsafe { *lease.next.get() = self.first.take() };
        self.first = Some(lease);
    }

    pub(in crate::set) fn remove(&mut self, lease: &LeaseCore) {
        let mut place = &mut self.first;
        while let Some(other) = place {
            // SAFETY: as above. Nobody else has a reference into the list.
            let after = unsafe { &mut *other.next.get() };
            if ptr::eq(&raw const **other, lease) {
                let after = after.take();
                *place = after;
                return;
            }
            place = after;
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("any", &self.first.is_some()).finish()
    }
}
