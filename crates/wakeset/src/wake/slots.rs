//! The slots of a wait queue: the first one in the queue itself, the others in segments.

use crate::error::Error;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::testing::steps::step;
use crate::wake::handle::Handle;
use crate::wake::wait_queue::WaitQueue;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr;

/// The first segment holds this many slots, each later one twice as many as the one before.
const FIRST_SEGMENT: u32 = 4;

/// A place for one watch.
#[derive(Debug)]
pub(in crate::wake) struct Slot {
    pub(in crate::wake) watch: AtomicU64,
    /// When it was put there, counted in attaches of this queue. Written before `watch`.
    pub(in crate::wake) stamp: AtomicU32,
}

impl Slot {
    pub(in crate::wake) fn new() -> Self {
        Self { watch: AtomicU64::new(0), stamp: AtomicU32::new(0) }
    }
}

/// A block of `len` slots after this header. Freed with the queue, never before.
pub(in crate::wake) struct Segment {
    pub(in crate::wake) next: AtomicPtr<Segment>,
    pub(in crate::wake) len: u32,
}

impl Segment {
    pub(in crate::wake) fn layout(len: u32) -> Option<(Layout, usize)> {
        let (layout, first) =
            Layout::new::<Self>().extend(Layout::array::<Slot>(len as usize).ok()?).ok()?;
        Some((layout.pad_to_align(), first))
    }

    pub(in crate::wake) fn allocate(len: u32) -> Result<*mut Self, Error> {
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

    pub(in crate::wake) fn slots(this: *const Self) -> *const [Slot] {
        // SAFETY: segments are made by `allocate` and live as long as the queue.
        let len = unsafe { (*this).len };
        let offset = Self::layout(len).map_or(0, |(_, offset)| offset);
        // SAFETY: `allocate` placed the slots there.
        ptr::slice_from_raw_parts(unsafe { this.byte_add(offset) }.cast(), len as usize)
    }
}

impl WaitQueue {
    /// Calls `f` for each handle and its stamp, in slot order, until it says `false`.
    pub(crate) fn each(&self, mut f: impl FnMut(Handle, u32) -> bool) {
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

    pub(in crate::wake) fn slot(&self, index: u32) -> Option<(&AtomicU64, &AtomicU32)> {
        let Some(mut index) = index.checked_sub(1) else {
            return Some((&self.first, &self.first_stamp));
        };
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

    /// The slot, growing the queue by one segment if it lies just after its end.
    pub(in crate::wake) fn slot_or_grow(
        &self,
        index: u32,
    ) -> Result<(&AtomicU64, &AtomicU32), Error> {
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
