//! The wait queue of a source: which watches to tell when it changes.
//!
//! Wakers read it without a lock while sets come and go. It is an array of slots that only ever
//! grows; a slot is one word, so a waker sees a watch or does not. A watch that
//! a waker misses because it is added meanwhile is no loss: its adder polls the source afterwards.
//!
//! | slot | means |
//! |---|---|
//! | address and generation | a watch, with its `EXCLUSIVE` flag in bit 0 |
//! | small number | empty; the number is the next empty slot, plus one |
//!
//! Beside each slot stands a stamp that says how old its watch is, because Linux tells them in
//! order: those that are not exclusive from the newest to the oldest, then exclusive ones from the
//! oldest on, until one has taken the wake.

use crate::error::Error;
use crate::events::Events;
use crate::sync::lock::ScanLock;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, after_publishing, full_fence};
use crate::testing::steps::step;
use crate::wake::handle::Handle;
use crate::wake::slots::Segment;
use crate::wake::state::State;
use crate::wake::wake_side::SetRef;
use crate::wake::watch::Watch;
use core::ptr::{self, NonNull};

/// Up to this many watches are told in exact order; beyond, only the first exclusive ones are.
const SORTED: usize = 32;

/// In [`WaitQueue::used`]: no watch may be added any more.
const CLOSED: u32 = 1 << 31;

/// The wait queue of one source: the watches to tell when it changes.
///
/// A [`Source`](crate::Source) owns one and calls [`WaitQueue::wake`] after each change of its
/// readiness.
#[derive(Debug)]
pub struct WaitQueue {
    /// The first slot; most sources have one watch.
    pub(in crate::wake) first: AtomicU64,
    pub(in crate::wake) more: AtomicPtr<Segment>,
    /// Which slots are in use changes only under this lock, but for the close of a queue that has
    /// had no watch.
    membership: ScanLock<()>,
    /// The first empty slot below `used`, plus one; 0 for none.
    free: AtomicU32,
    /// Slots ever used: all others are empty. With [`CLOSED`] no watch may be added any more. One
    /// word for both: a close of a queue that has had no watch and the first addition decide in it,
    /// without the lock, which of them comes first; and a counter and its queue fit into a cache
    /// line.
    used: AtomicU32,
    pub(in crate::wake) first_stamp: AtomicU32,
    /// The stamp of the next watch.
    now: AtomicU32,
}

// SAFETY: segments are shared through atomics and freed only with the queue.
unsafe impl Send for WaitQueue {}
// SAFETY: as above.
unsafe impl Sync for WaitQueue {}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            more: AtomicPtr::new(ptr::null_mut()),
            membership: ScanLock::new(()),
            free: AtomicU32::new(0),
            used: AtomicU32::new(0),
            first_stamp: AtomicU32::new(0),
            now: AtomicU32::new(0),
        }
    }

    /// Tells the watches that the source has changed: those that asked for one of `events` go onto
    /// their sets' ready lists, and one waiter of each set is woken.
    ///
    /// Call it *after* the change, with the bits that may have become true (`IN` when something can
    /// be read now, `OUT` when something can be written); empty means "look for yourself".
    /// Every call is an edge. A call too many costs a re-poll; a call too few loses events.
    ///
    /// Takes no lock, allocates nothing, enters the kernel only if a waiter sleeps or is about to,
    /// and is async-signal-safe.
    pub fn wake(&self, events: Events) {
        step!(queue_before_fence);
        if !mutant!("wake_without_fence") {
            full_fence();
        }
        self.wake_published(events);
    }

    /// [`wake`](Self::wake) for a caller whose change was a `SeqCst` read-modify-write.
    #[doc(hidden)]
    #[inline(always)]
    pub fn wake_published(&self, events: Events) {
        after_publishing(mutant!("wake_without_fence"));
        step!(queue_before_slot);
        // SeqCst, pairing with the slot store in `attach` and the poll after it: either we see the
        // watch or its adder's poll sees our change.
        let first = self.first.load(ordering!(SeqCst, "slot_read_relaxed"));
        step!(queue_slot_read);
        if self.more.load(Ordering::SeqCst).is_null() {
            if let Some(handle) = Handle::decode(first) {
                step!(queue_before_tell);
                // SAFETY: handles in a queue of this engine lead to type-stable watches.
                unsafe { crate::wake::path::wake_watch(handle, events) };
                step!(queue_told);
            }
            return;
        }
        self.wake_many(events);
    }

    /// Tells all watches to look for themselves, the exclusive ones too: nothing more will come.
    /// For a caller whose change was a `SeqCst` read-modify-write.
    #[doc(hidden)]
    #[cold]
    pub fn wake_all_published(&self) {
        after_publishing(mutant!("wake_without_fence"));
        self.tell_in_order(|handle| {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::wake::path::wake_watch(handle, Events::empty()) };
            // However many take it.
            false
        });
    }

    /// Tells all watches that the owner, a timer, has been set to expire at `at`. The caller has
    /// passed the barrier of a publish-then-check since the change.
    pub(crate) fn wake_at(&self, at: u64) {
        self.tell_in_order(|handle| {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::wake::path::plan_watch(handle, at) };
            // Each looks at the clock for itself.
            false
        });
    }

    #[cold]
    fn wake_many(&self, events: Events) {
        self.tell_in_order(|handle| {
            step!(many_before_tell);
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            let taken = unsafe { crate::wake::path::wake_watch(handle, events) };
            step!(many_told);
            taken
        });
    }

    /// Tells all watches in Linux's order, of the exclusive ones until one takes it.
    fn tell_in_order(&self, tell: impl Fn(Handle) -> bool) {
        let now = self.now();
        let mut sorted = [(0, Handle(0)); SORTED];
        let mut n = 0;
        self.each(|handle, stamp| {
            if let Some(place) = sorted.get_mut(n) {
                *place = (now.wrapping_sub(stamp), handle);
            }
            n += 1;
            true
        });
        if let Some(sorted) = sorted.get_mut(..n) {
            sorted.sort_unstable_by_key(|(age, _)| *age);
            for (_, handle) in sorted.iter().filter(|(_, handle)| !handle.is_exclusive()) {
                tell(*handle);
            }
            step!(many_before_exclusive);
            let _taken = sorted
                .iter()
                .rev()
                .filter(|(_, handle)| handle.is_exclusive())
                .any(|(_, handle)| tell(*handle));
            return;
        }
        self.each(|handle, _| {
            if !handle.is_exclusive() {
                tell(handle);
            }
            true
        });
        self.wake_exclusive(now, u32::MAX, tell);
    }

    /// Tells the exclusive watches that are younger than `watch`, for a set whose waiter has taken
    /// an exclusive wake of it and leaves with other events: what the waker would have done if it
    /// had known.
    pub(crate) fn pass_on(&self, watch: *mut Watch, events: Events) {
        let now = self.now();
        let mut age = None;
        self.each(|handle, stamp| {
            if handle.watch() == watch {
                age = Some(now.wrapping_sub(stamp));
            }
            age.is_none()
        });
        if let Some(age) = age {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            let tell = |handle| unsafe { crate::wake::path::wake_watch(handle, events) };
            self.wake_exclusive(now, age, tell);
        }
    }

    /// Tells exclusive watches that are not as old as that, the oldest first, until one takes it.
    /// Looks for the next oldest a few times, which nearly always ends it, and then takes the rest
    /// as they come.
    fn wake_exclusive(&self, now: u32, mut younger_than: u32, tell: impl Fn(Handle) -> bool) {
        for _ in 0..SORTED {
            let mut oldest = None;
            self.each(|handle, stamp| {
                let age = now.wrapping_sub(stamp);
                step!(stamp_read);
                if handle.is_exclusive()
                    && age < younger_than
                    && oldest.is_none_or(|(most, _)| age > most)
                {
                    oldest = Some((age, handle));
                }
                true
            });
            let Some((age, handle)) = oldest else { return };
            if tell(handle) {
                return;
            }
            younger_than = age;
        }
        self.each(|handle, stamp| {
            !(handle.is_exclusive() && now.wrapping_sub(stamp) < younger_than && tell(handle))
        });
    }

    /// Calls `f` with the handles that are here. Watches come and go meanwhile: `f` checks that
    /// each is still the one that its handle is of.
    pub(crate) fn each_watch(&self, mut f: impl FnMut(Handle)) {
        self.each(|handle, _| {
            f(handle);
            true
        });
    }

    /// Whether any watch is here. A hint: emptied slots may make it say yes.
    #[inline]
    pub(crate) fn may_have_watches(&self) -> bool {
        self.first.load(Ordering::SeqCst) != 0 || !self.more.load(Ordering::SeqCst).is_null()
    }

    /// Whether `f` says so of one of the handles that are here now, none of which goes meanwhile:
    /// `f` takes no wait queue's lock.
    fn any_held(&self, mut f: impl FnMut(Handle) -> bool) -> bool {
        let mut found = false;
        let _stable = self.membership.lock();
        self.each(|handle, _| {
            found = f(handle);
            !found
        });
        found
    }

    /// Calls `f` with the sets that watch the owner of this queue, one call for each watch, until
    /// it says `false`. No set comes or goes meanwhile, so `f` takes no wait queue's lock.
    pub(crate) fn each_set(&self, mut f: impl FnMut(SetRef<'_>) -> bool) {
        self.any_held(|handle| {
            // SAFETY: watches are type-stable.
            let side = unsafe { &*handle.watch() }.set.load(Ordering::Relaxed);
            // SAFETY: a watch that is in a queue has its set, stored as a pointer to all of it, and
            // sets are type-stable.
            NonNull::new(side).is_some_and(|side| !f(unsafe { SetRef::new(side) }))
        });
    }

    /// Puts a watch into the queue; the slot it got.
    ///
    /// # Errors
    /// [`Error::Closed`] after [`WaitQueue::close`]; [`Error::NoMemory`].
    pub(crate) fn attach(&self, handle: Handle) -> Result<u32, Error> {
        let _changing = self.membership.lock();
        let used = self.used.load(Ordering::Acquire);
        if used & CLOSED != 0 {
            return Err(Error::Closed);
        }
        let index = self.free.load(Ordering::Relaxed).checked_sub(1).unwrap_or(used);
        let (slot, stamp) = self.slot_or_grow(index)?;
        if index != used {
            self.free.store(slot.load(Ordering::Relaxed) as u32, Ordering::Relaxed);
        } else if !self.use_next(used) {
            return Err(Error::Closed);
        }
        stamp.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::Relaxed);
        step!(attach_stamped);
        // A read-modify-write, so that the caller's poll is ordered after it without an mfence: the
        // barrier is the one before the poll (`queue_if_ready`).
        slot.swap(handle.0, ordering!(SeqCst, "attach_relaxed"));
        step!(attached);
        Ok(index)
    }

    /// Takes the slot after those ever used, for the holder of the lock; `false` if the queue has
    /// been closed without it meanwhile.
    fn use_next(&self, used: u32) -> bool {
        if mutant!("attach_without_compare") {
            self.used.store(used + 1, Ordering::Release);
            return true;
        }
        let (won, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        self.used.compare_exchange(used, used + 1, won, lost).is_ok()
    }

    /// Takes a watch out again. Wakers that have read the slot before may still come to the watch.
    pub(crate) fn detach(&self, index: u32) {
        let _changing = self.membership.lock();
        let Some((slot, _)) = self.slot(index) else { return };
        if Handle::decode(slot.load(Ordering::Relaxed)).is_some() {
            step!(detach_before_slot);
            slot.store(u64::from(self.free.load(Ordering::Relaxed)), Ordering::Release);
            step!(detached);
            self.free.store(index + 1, Ordering::Relaxed);
        }
    }

    /// The stamp of the next watch: what the ages of those here are counted from.
    pub(crate) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Waits until a [`detach`](Self::detach) that has emptied a slot already no longer uses the
    /// queue.
    pub(crate) fn wait_for_detach(&self) {
        drop(self.membership.lock());
    }

    /// Lets no further watch in. Those that are here stay; see [`WaitQueue::close`]. Returns
    /// whether there may be any: `false` for a queue that has had none since it was made or
    /// reopened, of which nothing is left to be removed.
    #[doc(hidden)]
    #[inline]
    pub fn refuse_watches(&self) -> bool {
        match self.used.load(Ordering::Acquire) {
            CLOSED => false,
            // An addition under way either has its slot already, or finds the queue closed; it may
            // still hold the lock.
            0 if self
                .used
                .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok() =>
            {
                false
            }
            _ => self.refuse_further_watches(),
        }
    }

    /// [`refuse_watches`](Self::refuse_watches) of a queue that has, or had, some.
    fn refuse_further_watches(&self) -> bool {
        let _changing = self.membership.lock();
        let used = self.used.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED;
        used != 0 && !mutant!("close_takes_used_for_unused")
    }

    /// Whether one of the watches has an edge or a one-shot report that no wait has returned yet.
    #[doc(hidden)]
    pub fn has_pending_edge(&self) -> bool {
        self.any_held(|handle| {
            // SAFETY: watches are type-stable.
            let state = State(unsafe { &*handle.watch() }.state.load(Ordering::SeqCst));
            state.is_queued() && state.flags().intersects(Events::ET | Events::ONESHOT)
        })
    }

    /// Whether a watch is here.
    #[doc(hidden)]
    pub fn has_watches(&self) -> bool {
        self.any_held(|_| true)
    }

    /// Whether more than one is.
    #[doc(hidden)]
    pub fn has_several_watches(&self) -> bool {
        let mut watches = 0;
        self.any_held(|_| {
            watches += 1;
            watches > 1
        })
    }

    /// Makes a closed queue usable again, for a descriptor table that uses the memory of a closed
    /// object for the next one.
    #[doc(hidden)]
    #[inline]
    pub fn reopen(&self) {
        match self.used.load(Ordering::Acquire) {
            0 => return,
            CLOSED => {}
            used => self.empty(used & !CLOSED),
        }
        self.used.store(0, Ordering::Release);
    }

    /// Empties the slots of a closed queue.
    #[cold]
    fn empty(&self, used: u32) {
        let _changing = self.membership.lock();
        for index in 0..used {
            if let Some((slot, _)) = self.slot(index) {
                slot.store(0, Ordering::Relaxed);
            }
        }
        self.free.store(0, Ordering::Relaxed);
    }
}
