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

use crate::error::Error;
use crate::events::Events;
use crate::lock::ScanLock;
use crate::state::{GENERATION_BITS, State};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence_after_rmw, full_fence};
use crate::watch::Watch;
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::vec::Vec;
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

/// Slots inside the queue itself; most sources have one watch.
const INLINE: u32 = 2;
/// The first further segment holds this many, each later one twice as many as the one before.
const FIRST_SEGMENT: u32 = 4;

/// A block of `len` slots behind this header. Freed with the queue, never before.
struct Segment {
    next: AtomicPtr<Segment>,
    len: u32,
}

impl Segment {
    fn layout(len: u32) -> Option<(Layout, usize)> {
        let (layout, first) = Layout::new::<Self>().extend(Layout::array::<AtomicU64>(len as usize).ok()?).ok()?;
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
            let slots = segment.byte_add(offset).cast::<AtomicU64>();
            for i in 0..len as usize {
                slots.add(i).write(AtomicU64::new(0));
            }
        }
        Ok(segment)
    }

    fn slots(this: *const Self) -> *const [AtomicU64] {
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
    slots: [AtomicU64; INLINE as usize],
    more: AtomicPtr<Segment>,
    membership: ScanLock<Membership>,
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
            slots: [AtomicU64::new(0), AtomicU64::new(0)],
            more: AtomicPtr::new(ptr::null_mut()),
            membership: ScanLock::new(Membership::default()),
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
        if !cfg!(wakeset_mutant = "wake_without_fence") {
            full_fence();
        }
        self.wake_published(events);
    }

    /// [`wake`](Self::wake) for a caller whose change was a `SeqCst` read-modify-write.
    #[inline(always)]
    pub(crate) fn wake_published(&self, events: Events) {
        if !cfg!(wakeset_mutant = "wake_without_fence") {
            fence_after_rmw();
        }
        // SeqCst, pairing with the slot store in `attach` and the poll behind it: either we see the watch or its
        // adder's poll sees our change.
        let first = self.slots[0].load(Ordering::SeqCst);
        let others = self.slots[1].load(Ordering::SeqCst) | self.more.load(Ordering::SeqCst).addr() as u64;
        if others == 0 {
            if let Some(handle) = Handle::decode(first) {
                // SAFETY: handles in a queue of this engine lead to type-stable watches.
                unsafe { crate::wake::wake_watch(handle, events) };
            }
            return;
        }
        self.wake_many(events);
    }

    #[cold]
    fn wake_many(&self, events: Events) {
        // As in a Linux wait queue: everybody who is not exclusive, then exclusive ones until one has taken it.
        let mut exclusive = false;
        self.each(|handle| {
            if handle.is_exclusive() {
                exclusive = true;
            } else {
                // SAFETY: handles in a queue of this engine lead to type-stable watches.
                unsafe { crate::wake::wake_watch(handle, events) };
            }
            true
        });
        if exclusive {
            self.each(|handle| {
                // SAFETY: as above.
                !(handle.is_exclusive() && unsafe { crate::wake::wake_watch(handle, events) })
            });
        }
    }

    /// Calls `f` for each handle in slot order until it says `false`.
    fn each(&self, mut f: impl FnMut(Handle) -> bool) {
        let mut segment = self.more.load(Ordering::SeqCst);
        for slot in &self.slots {
            if let Some(handle) = Handle::decode(slot.load(Ordering::SeqCst))
                && !f(handle)
            {
                return;
            }
        }
        while !segment.is_null() {
            // SAFETY: segments live as long as the queue.
            for slot in unsafe { &*Segment::slots(segment) } {
                if let Some(handle) = Handle::decode(slot.load(Ordering::SeqCst))
                    && !f(handle)
                {
                    return;
                }
            }
            // SAFETY: as above.
            segment = unsafe { &*segment }.next.load(Ordering::SeqCst);
        }
    }

    /// Whether any watch is here. A hint: emptied slots may make it say yes.
    #[inline]
    pub(crate) fn may_have_watches(&self) -> bool {
        let slots = self.slots[0].load(Ordering::SeqCst) | self.slots[1].load(Ordering::SeqCst);
        slots | self.more.load(Ordering::SeqCst).addr() as u64 != 0
    }

    /// The handles that are here now.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let mut handles = Vec::new();
        let _stable = self.membership.lock();
        self.each(|handle| {
            handles.push(handle);
            true
        });
        handles
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
        let slot = self.slot_or_grow(index)?;
        if index == membership.used {
            membership.used += 1;
        } else {
            membership.free = slot.load(Ordering::Relaxed) as u32;
        }
        // A read-modify-write, so that the caller's poll is ordered behind it without an mfence.
        slot.swap(handle.0, Ordering::SeqCst);
        fence_after_rmw();
        Ok(index)
    }

    /// Takes a watch out again. Wakers that have read the slot before may still come to the watch.
    pub(crate) fn detach(&self, index: u32) {
        let mut membership = self.membership.lock();
        let Some(slot) = self.slot(index) else { return };
        if Handle::decode(slot.load(Ordering::Relaxed)).is_some() {
            slot.store(u64::from(membership.free), Ordering::Release);
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
        for handle in self.handles() {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::set::remove_watch(handle, |_| {}) };
        }
    }

    /// Removes every watch like [`close`](Self::close), calling `take` for each with the scan lock of its set held, so that the
    /// set is never seen with both the old watch and what `take` puts in its place.
    #[doc(hidden)]
    pub fn hand_over(&self, mut take: impl FnMut(crate::set::Leaving)) {
        self.refuse_watches();
        for handle in self.handles() {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { crate::set::remove_watch(handle, &mut take) };
        }
    }

    /// Whether one of the watches has an edge or a one-shot report that no wait has returned yet.
    #[doc(hidden)]
    pub fn has_pending_edge(&self) -> bool {
        self.handles().into_iter().any(|handle| {
            // SAFETY: watches are type-stable.
            let state = State(unsafe { &*handle.watch() }.state.load(Ordering::SeqCst));
            state.is_queued() && state.flags().intersects(Events::ET | Events::ONESHOT)
        })
    }

    /// Whether a watch is here.
    #[doc(hidden)]
    pub fn has_watches(&self) -> bool {
        !self.handles().is_empty()
    }

    /// Makes a closed queue usable again, for a descriptor table that uses the memory of a closed object for
    /// the next one.
    #[doc(hidden)]
    pub fn reopen(&self) {
        self.membership.lock().closed = false;
    }

    fn slot(&self, index: u32) -> Option<&AtomicU64> {
        if let Some(slot) = self.slots.get(index as usize) {
            return Some(slot);
        }
        let mut index = index - INLINE;
        let mut segment = self.more.load(Ordering::Acquire);
        while !segment.is_null() {
            // SAFETY: segments live as long as the queue.
            let slots = unsafe { &*Segment::slots(segment) };
            if let Some(slot) = slots.get(index as usize) {
                return Some(slot);
            }
            index -= slots.len() as u32;
            // SAFETY: as above.
            segment = unsafe { &*segment }.next.load(Ordering::Acquire);
        }
        None
    }

    /// The slot, growing the queue by one segment if it lies just behind its end.
    fn slot_or_grow(&self, index: u32) -> Result<&AtomicU64, Error> {
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
        link.store(Segment::allocate(len)?, Ordering::SeqCst);
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
