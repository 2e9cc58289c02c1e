//! The wait queue of a source: which watches to tell when it changes.
//!
//! Wakers read it without a lock while sets come and go. It is an array of slots that only ever grows; a slot is one word, so
//! a waker sees a watch or does not. A watch added behind a waker's back is no loss: whoever
//! adds one polls the source afterwards.
//!
//! | slot | means |
//! |---|---|
//! | address and generation | a watch, with its `EXCLUSIVE` flag in bit 0 |
//! | small number | empty; the number is the next empty slot, plus one |
//!
//! Beside each slot stands a stamp that says how old its watch is, because Linux tells them in order: those that are
//! not exclusive from the newest to the oldest, then exclusive ones from the oldest on, until one has taken the wake.

use crate::error::Error;
use crate::events::Events;
use crate::lock::ScanLock;
use crate::set::SetCore;
use crate::state::{GENERATION_BITS, State};
use crate::steps::step;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence_after_rmw, full_fence};
use crate::watch::Watch;
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ptr;

/// A watch as a wait queue knows it: address, generation, exclusive or not; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(u64);

/// Watches are 64-byte aligned and user addresses are below 2^48: 42 bits say which one.
const ADDRESS_SHIFT: u32 = GENERATION_BITS + 1;

impl Handle {
    pub(crate) fn new(watch: *mut Watch, state: State, exclusive: bool) -> Self {
        let address = (watch.expose_provenance() as u64) >> 6;
        Self(address << ADDRESS_SHIFT | state.generation() << 1 | u64::from(exclusive))
    }

    /// The handle in a slot, if it holds one.
    #[inline]
    fn decode(slot: u64) -> Option<Self> {
        (slot >> ADDRESS_SHIFT != 0).then_some(Self(slot))
    }

    #[inline]
    pub(crate) fn watch(self) -> *mut Watch {
        ptr::with_exposed_provenance_mut(((self.0 >> ADDRESS_SHIFT) << 6) as usize)
    }

    #[inline]
    pub(crate) const fn generation(self) -> u64 {
        (self.0 >> 1) & ((1 << GENERATION_BITS) - 1)
    }

    #[inline]
    pub(crate) const fn is_exclusive(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The first segment holds this many slots, each later one twice as many as the one before.
const FIRST_SEGMENT: u32 = 4;
/// Up to this many watches are told in exact order; beyond, only the first exclusive ones are.
const SORTED: usize = 32;

/// A place for one watch.
#[derive(Debug)]
struct Slot {
    watch: AtomicU64,
    /// When it was put there, counted in attaches of this queue. Written before `watch`.
    stamp: AtomicU32,
}

impl Slot {
    fn new() -> Self {
        Self { watch: AtomicU64::new(0), stamp: AtomicU32::new(0) }
    }
}

/// A block of `len` slots behind this header. Freed with the queue, never before.
struct Segment {
    next: AtomicPtr<Segment>,
    len: u32,
}

impl Segment {
    fn layout(len: u32) -> Option<(Layout, usize)> {
        let (layout, first) = Layout::new::<Self>().extend(Layout::array::<Slot>(len as usize).ok()?).ok()?;
        Some((layout.pad_to_align(), first))
    }

    fn allocate(len: u32) -> Result<*mut Self, Error> {
        let (layout, offset) = Self::layout(len).ok_or(Error::NoMemory)?;
        // SAFETY: the layout holds a header and is not empty.
        let segment = unsafe { alloc(layout) }.cast::<Self>();
        if segment.is_null() {
            return Err(Error::NoMemory);
        }
        // SAFETY: fresh memory of that layout, with `len` slots at `offset`.
        unsafe {
            segment.write(Self { next: AtomicPtr::new(ptr::null_mut()), len });
            let slots = segment.byte_add(offset).cast::<Slot>();
            for i in 0..len as usize {
                slots.add(i).write(Slot::new());
            }
        }
        Ok(segment)
    }

    fn slots(this: *const Self) -> *const [Slot] {
        // SAFETY: segments are made by `allocate` and live as long as the queue.
        let len = unsafe { (*this).len };
        let offset = Self::layout(len).map_or(0, |(_, offset)| offset);
        // SAFETY: `allocate` placed the slots there.
        ptr::slice_from_raw_parts(unsafe { this.byte_add(offset) }.cast(), len as usize)
    }
}

/// What changes only under the queue's own lock.
#[derive(Debug, Default)]
struct Membership {
    /// The first empty slot below `used`, plus one; 0 for none.
    free: u32,
    /// Slots ever used: all others are empty.
    used: u32,
    /// No watch may be added any more.
    closed: bool,
}

/// The wait queue of one source: the watches to tell when it changes.
///
/// A [`Source`](crate::Source) owns one and calls [`WaitQueue::wake`] after each change of its readiness.
#[derive(Debug)]
pub struct WaitQueue {
    /// The first slot; most sources have one watch.
    first: AtomicU64,
    more: AtomicPtr<Segment>,
    membership: ScanLock<Membership>,
    first_stamp: AtomicU32,
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
            membership: ScanLock::new(Membership::default()),
            first_stamp: AtomicU32::new(0),
            now: AtomicU32::new(0),
        }
    }

    /// Tells the watches that the source has changed: those that asked for one of `events` go onto
    /// their sets' ready lists, and one waiter of each set is woken.
    ///
    /// Call it *after* the change, with the bits that may have become true (`IN` when something can be
    /// read now, `OUT` when something can be written); empty means "look for yourself". Every call is an
    /// edge. A call too many costs a re-poll; a call too few loses events.
    ///
    /// Takes no lock, allocates nothing, enters the kernel only if a waiter sleeps, and is async-signal-safe.
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
        if !mutant!("wake_without_fence") {
            fence_after_rmw();
        }
        step!(queue_before_slot);
        // SeqCst, pairing with the slot store in `attach` and the poll behind it: either we see the watch or its
        // adder's poll sees our change.
        let first = self.first.load(ordering!(SeqCst, "slot_read_relaxed"));
        step!(queue_slot_read);
        if self.more.load(Ordering::SeqCst).is_null() {
            if let Some(handle) = Handle::decode(first) {
                step!(queue_before_tell);
                // SAFETY: handles in a queue of this engine lead to type-stable watches.
                unsafe { crate::wake::wake_watch(handle, events) };
                step!(queue_told);
            }
            return;
        }
        self.wake_many(events);
    }

    /// Tells all watches that the owner, a timer, has been set to expire at `at`. The change was a `SeqCst` read-modify-write.
    pub(crate) fn wake_at(&self, at: u64) {
        fence_after_rmw();
        self.tell_in_order(|handle| {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::wake::plan_watch(handle, at) };
            // Each looks at the clock for itself.
            false
        });
    }

    #[cold]
    fn wake_many(&self, events: Events) {
        self.tell_in_order(|handle| {
            step!(many_before_tell);
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            let taken = unsafe { crate::wake::wake_watch(handle, events) };
            step!(many_told);
            taken
        });
    }

    /// Tells all watches in Linux's order, of the exclusive ones until one takes it.
    fn tell_in_order(&self, tell: impl Fn(Handle) -> bool) {
        let now = self.now.load(Ordering::Relaxed);
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
            let _taken =
                sorted.iter().rev().filter(|(_, handle)| handle.is_exclusive()).any(|(_, handle)| tell(*handle));
            return;
        }
        self.each(|handle, _| {
            if !handle.is_exclusive() {
                tell(handle);
            }
            true
        });
        self.wake_exclusive(now, tell);
    }

    /// Tells exclusive watches, the oldest first, until one takes it. Looks for the next oldest a few times, which nearly
    /// always ends it, and then takes the rest as they come.
    fn wake_exclusive(&self, now: u32, tell: impl Fn(Handle) -> bool) {
        let mut younger_than = u32::MAX;
        for _ in 0..SORTED {
            let mut oldest = None;
            self.each(|handle, stamp| {
                let age = now.wrapping_sub(stamp);
                step!(stamp_read);
                if handle.is_exclusive() && age < younger_than && oldest.is_none_or(|(most, _)| age > most) {
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
        self.each(|handle, stamp| !(handle.is_exclusive() && now.wrapping_sub(stamp) < younger_than && tell(handle)));
    }

    /// Calls `f` for each handle and its stamp, in slot order, until it says `false`.
    fn each(&self, mut f: impl FnMut(Handle, u32) -> bool) {
        let mut segment = self.more.load(Ordering::SeqCst);
        if let Some(handle) = Handle::decode(self.first.load(Ordering::SeqCst))
            && !f(handle, self.first_stamp.load(Ordering::Relaxed))
        {
            return;
        }
        while !segment.is_null() {
            // SAFETY: segments live as long as the queue.
            for slot in unsafe { &*Segment::slots(segment) } {
                step!(walk_before_slot);
                if let Some(handle) = Handle::decode(slot.watch.load(Ordering::SeqCst))
                    && !f(handle, slot.stamp.load(Ordering::Relaxed))
                {
                    return;
                }
            }
            // SAFETY: as above.
            segment = unsafe { &*segment }.next.load(Ordering::SeqCst);
            step!(walk_segment_read);
        }
    }

    /// Whether any watch is here. A hint: emptied slots may make it say yes.
    #[inline]
    pub(crate) fn may_have_watches(&self) -> bool {
        self.first.load(Ordering::SeqCst) != 0 || !self.more.load(Ordering::SeqCst).is_null()
    }

    /// Whether `f` says so of one of the handles that are here now, none of which goes meanwhile: `f` takes no wait queue's lock.
    fn any_held(&self, mut f: impl FnMut(Handle) -> bool) -> bool {
        let mut found = false;
        let _stable = self.membership.lock();
        self.each(|handle, _| {
            found = f(handle);
            !found
        });
        found
    }

    /// Calls `f` with the sets that watch the owner of this queue, one call for each watch, until it says `false`. No set
    /// comes or goes meanwhile, so `f` takes no wait queue's lock.
    pub(crate) fn each_set(&self, mut f: impl FnMut(*const SetCore) -> bool) {
        self.any_held(|handle| {
            // SAFETY: watches are type-stable.
            !f(unsafe { &*handle.watch() }.set.load(Ordering::Relaxed).cast_const())
        });
    }

    /// As `each_set`, of all, with what [`EventPoll::set_owner`](crate::EventPoll::set_owner) has set.
    #[doc(hidden)]
    pub fn each_owner(&self, mut f: impl FnMut(usize)) {
        self.each_set(|set| {
            // SAFETY: sets are type-stable.
            f(unsafe { &*set }.owner());
            true
        });
    }

    /// Puts a watch into the queue; the slot it got.
    ///
    /// # Errors
    /// [`Error::Closed`] after [`WaitQueue::close`]; [`Error::NoMemory`].
    pub(crate) fn attach(&self, handle: Handle) -> Result<u32, Error> {
        let mut membership = self.membership.lock();
        if membership.closed {
            return Err(Error::Closed);
        }
        let index = membership.free.checked_sub(1).unwrap_or(membership.used);
        let (slot, stamp) = self.slot_or_grow(index)?;
        if index == membership.used {
            membership.used += 1;
        } else {
            membership.free = slot.load(Ordering::Relaxed) as u32;
        }
        stamp.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::Relaxed);
        step!(attach_stamped);
        // A read-modify-write, so that the caller's poll is ordered behind it without an mfence.
        slot.swap(handle.0, ordering!(SeqCst, "attach_relaxed"));
        step!(attached);
        fence_after_rmw();
        Ok(index)
    }

    /// Takes a watch out again. Wakers that have read the slot before may still come to the watch.
    pub(crate) fn detach(&self, index: u32) {
        let mut membership = self.membership.lock();
        let Some((slot, _)) = self.slot(index) else { return };
        if Handle::decode(slot.load(Ordering::Relaxed)).is_some() {
            step!(detach_before_slot);
            slot.store(u64::from(membership.free), Ordering::Release);
            step!(detached);
            membership.free = index + 1;
        }
    }

    /// Lets no further watch in. Those that are here stay; see [`WaitQueue::close`].
    #[doc(hidden)]
    pub fn refuse_watches(&self) {
        self.membership.lock().closed = true;
    }

    /// Closes the queue: removes every watch from its set and lets no further one in. What the last close of a
    /// description does; [`Description`](crate::Description) calls it.
    ///
    /// Takes the scan lock of one watching set after the other, never two, and costs O(watches here).
    pub fn close(&self) {
        self.refuse_watches();
        self.remove_each(&mut |_| {});
    }

    /// Removes every watch like [`close`](Self::close), calling `take` for each with the scan lock of its set held, so that the
    /// set is never seen with both the old watch and what `take` puts in its place. The oldest comes first, as far as there is memory
    /// to sort them.
    #[doc(hidden)]
    pub fn hand_over(&self, mut take: impl FnMut(crate::set::Leaving)) {
        self.refuse_watches();
        let now = self.now.load(Ordering::Relaxed);
        let mut by_age = Vec::new();
        self.each(|handle, stamp| {
            let room = by_age.try_reserve(1).is_ok();
            if room {
                by_age.push((now.wrapping_sub(stamp), handle));
            }
            room
        });
        by_age.sort_unstable_by_key(|(age, _)| Reverse(*age));
        for (_, handle) in by_age {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::set::remove_watch(handle, &mut take) };
        }
        // Those there was no memory for.
        self.remove_each(&mut take);
    }

    /// Removes every watch of a queue that lets none in, in slot order.
    fn remove_each(&self, take: &mut impl FnMut(crate::set::Leaving)) {
        // None comes any more, so looking at each slot once is enough, without the lock, which a removal takes.
        self.each(|handle, _| {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::set::remove_watch(handle, &mut *take) };
            true
        });
        // Whoever emptied a slot just before we looked may still hold the lock, which goes with the source.
        drop(self.membership.lock());
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

    /// Makes a closed queue usable again, for a descriptor table that uses the memory of a closed object for
    /// the next one.
    #[doc(hidden)]
    pub fn reopen(&self) {
        let mut membership = self.membership.lock();
        for index in 0..membership.used {
            if let Some((slot, _)) = self.slot(index) {
                slot.store(0, Ordering::Relaxed);
            }
        }
        *membership = Membership::default();
    }

    fn slot(&self, index: u32) -> Option<(&AtomicU64, &AtomicU32)> {
        let Some(mut index) = index.checked_sub(1) else { return Some((&self.first, &self.first_stamp)) };
        let mut segment = self.more.load(Ordering::Acquire);
        while !segment.is_null() {
            // SAFETY: segments live as long as the queue.
            let slots = unsafe { &*Segment::slots(segment) };
            if let Some(slot) = slots.get(index as usize) {
                return Some((&slot.watch, &slot.stamp));
            }
            index -= slots.len() as u32;
            // SAFETY: as above.
            segment = unsafe { &*segment }.next.load(Ordering::Acquire);
        }
        None
    }

    /// The slot, growing the queue by one segment if it lies just behind its end.
    fn slot_or_grow(&self, index: u32) -> Result<(&AtomicU64, &AtomicU32), Error> {
        if let Some(slot) = self.slot(index) {
            return Ok(slot);
        }
        let mut link = &self.more;
        let mut len = FIRST_SEGMENT;
        loop {
            let segment = link.load(Ordering::Acquire);
            if segment.is_null() {
                break;
            }
            // SAFETY: segments live as long as the queue.
            link = unsafe { &(*segment).next };
            len = len.saturating_mul(2).min(1 << 20);
        }
        link.store(Segment::allocate(len)?, ordering!(SeqCst, "segment_relaxed"));
        self.slot(index).ok_or(Error::NoMemory)
    }
}

impl Drop for WaitQueue {
    fn drop(&mut self) {
        let mut segment = self.more.load(Ordering::Acquire);
        while !segment.is_null() {
            // SAFETY: made by `allocate`, and nobody uses the queue any more.
            unsafe {
                let next = (*segment).next.load(Ordering::Acquire);
                let Some((layout, _)) = Segment::layout((*segment).len) else { return };
                let slots = Segment::slots(segment).cast_mut();
                ptr::drop_in_place(slots);
                ptr::drop_in_place(segment);
                dealloc(segment.cast(), layout);
                segment = next;
            }
        }
    }
}
