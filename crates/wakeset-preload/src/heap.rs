//! The library's own heap, because a hook may run where libc's malloc must not be called.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use syscalls::{Sysno, syscall};
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;
use talc::sync::TalcLock;
use wakeset_fd::section::Section;

/// How much is mapped at a time, at least. Pages are touched only when used.
const CHUNK: usize = 256 << 10;

#[global_allocator]
static HEAP: TalcLock<SectionLock, Mapped, talc::DefaultBinning> = TalcLock::new(Mapped);

/// Memory from mmap(2), never returned.
#[derive(Debug)]
struct Mapped;

// SAFETY: `acquire` touches the heap it is given and nothing else.
unsafe impl Source for Mapped {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: core::alloc::Layout) -> Result<(), ()> {
        let size = (layout.size() + layout.align()).saturating_mul(2).max(CHUNK).next_multiple_of(4096);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let base = unsafe { syscall!(Sysno::mmap, 0, size, protection, flags, -1_isize, 0) }.map_err(drop)?;
        // SAFETY: nobody else knows this memory.
        unsafe { talc.claim(base as *mut u8, size) }.map(drop).ok_or(())
    }
}

/// A lock whose holder is in a section, so that a handler on the same thread cannot want it.
#[derive(Debug)]
struct SectionLock(AtomicU32);

// SAFETY: the word goes from 0 to 1 for one thread at a time.
unsafe impl lock_api::RawMutex for SectionLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "what the trait asks for")]
    const INIT: Self = Self(AtomicU32::new(0));
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            // SAFETY: has no arguments.
            let _ = unsafe { syscall!(Sysno::sched_yield) };
        }
    }

    fn try_lock(&self) -> bool {
        let section = Section::enter();
        let locked = self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if locked {
            // Ends in `unlock`.
            core::mem::forget(section);
        }
        locked
    }

    unsafe fn unlock(&self) {
        self.0.store(0, Ordering::Release);
        Section::leave();
    }
}

type Guard = lock_api::MutexGuard<'static, SectionLock, Talc<Mapped, talc::DefaultBinning>>;

/// The guard that is held across a fork.
struct Held(UnsafeCell<Option<Guard>>);
// SAFETY: only touched by the thread that holds the guard.
unsafe impl Sync for Held {}
static HELD: Held = Held(UnsafeCell::new(None));

/// Locks the heap across a fork.
pub(crate) fn hold() {
    let guard = HEAP.lock();
    // SAFETY: see `Held`.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// Unlocks it, in the parent and in the child.
///
/// # Safety
/// This thread, or the one it was forked from, has called [`hold`].
pub(crate) unsafe fn release() {
    // SAFETY: see `Held`.
    drop(unsafe { (*HELD.0.get()).take() });
}
