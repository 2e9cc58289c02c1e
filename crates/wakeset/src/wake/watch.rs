//! A watch: Linux's epitem. One (descriptor, description) pair in one set.

use crate::memory::pool::Pooled;
use crate::sync::{AtomicPtr, AtomicU64};
use crate::wake::source::Source;
use crate::wake::state::State;
use crate::wake::wake_side::WakeSide;
use core::cell::UnsafeCell;
use core::ptr;

/// One watch: 64 bytes, one cache line. Lives in a [`Pool`](crate::memory::pool::Pool), so a late
/// waker may read it at any time.
#[derive(Debug)]
#[cfg_attr(not(any(loom, shuttle)), repr(C, align(64)))]
#[cfg_attr(any(loom, shuttle), repr(align(64)))]
pub(crate) struct Watch {
    /// See [`State`](crate::wake::state).
    pub(crate) state: AtomicU64,
    /// The set it belongs to. Atomic because a late waker reads it while the memory may be
    /// starting another generation; what it reads is then some set of the same engine, which a
    /// hint cannot hurt.
    pub(crate) set: AtomicPtr<WakeSide>,
    /// The link of, by turns, the pool's free list, the set's free list, the incoming list and the
    /// pending queue; in the event ring its place there (see `set::ring`). Owned by whoever
    /// turned `QUEUED` on, then by the holder of the scan lock.
    pub(crate) next: AtomicPtr<Watch>,
    /// The rest is guarded by the scan lock of the set.
    pub(crate) guarded: UnsafeCell<Guarded>,
}

/// The part of a watch that only the holder of its set's scan lock may touch.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// The watch before it in the pending queue, itself if it is the first, null if it is not
    /// there.
    pub(crate) prev: *mut Watch,
    /// What it watches. The source removes its watches before it goes, so this does not dangle.
    pub(crate) source: *const dyn Source,
    /// The caller's 64 bits.
    pub(crate) data: u64,
    /// The descriptor half of the key.
    pub(crate) fd: i32,
    /// Its place in the source's wait queue.
    pub(crate) slot: u32,
}

/// The guarded half of a watch.
///
/// # Safety
/// The caller holds the scan lock of the watch's set and no other reference to it.
#[inline]
pub(crate) unsafe fn guarded<'a>(watch: *mut Watch) -> &'a mut Guarded {
    // SAFETY: by the caller.
    unsafe { &mut *(*watch).guarded.get() }
}

/// The shared half of a watch.
///
/// # Safety
/// The pointer leads to type-stable memory.
#[inline]
pub(crate) unsafe fn shared<'a>(watch: *mut Watch) -> &'a Watch {
    // SAFETY: by the caller.
    unsafe { &*watch }
}

/// Stands where a free watch has no source.
struct NoSource;
impl Source for NoSource {
    fn poll(&self) -> crate::Events {
        crate::Events::empty()
    }
    fn wait_queue(&self) -> &crate::WaitQueue {
        unreachable!("a free watch is in no wait queue")
    }
}

pub(crate) const NO_SOURCE: *const dyn Source = ptr::null::<NoSource>() as *const dyn Source;

impl Pooled for Watch {
    fn vacant() -> Self {
        Self {
            state: AtomicU64::new(State::FREE.0),
            set: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
            guarded: UnsafeCell::new(Guarded {
                prev: ptr::null_mut(),
                source: NO_SOURCE,
                data: 0,
                fd: -1,
                slot: 0,
            }),
        }
    }

    fn link(&self) -> &AtomicPtr<Self> {
        &self.next
    }
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Watch>() == 64);
