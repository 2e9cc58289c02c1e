//! A heap in memory from mmap(2), with a lock that keeps signal handlers out.

use core::cell::UnsafeCell;
use syscalls::{Sysno, syscall};
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;
use talc::sync::TalcLock;
use wakeset_fd::signal_guard;

/// How many bytes are mapped at a time, at least. A page is not touched before it is used.
const CHUNK: usize = 256 << 10;

#[cfg_attr(not(debug_assertions), global_allocator)]
#[unsafe(link_section = "wakeset_fork")]
pub(super) static HEAP: TalcLock<HeapLock, Mapped, talc::DefaultBinning> = TalcLock::new(Mapped);

/// Memory from mmap(2), never returned.
#[derive(Debug)]
pub(super) struct Mapped;

// SAFETY: `acquire` touches the heap it is given and nothing else.
unsafe impl Source for Mapped {
    fn acquire<B: Binning>(
        talc: &mut Talc<Self, B>,
        layout: core::alloc::Layout,
    ) -> Result<(), ()> {
        let least = (layout.size() + layout.align()).saturating_mul(2).next_multiple_of(4096);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let map = |size: usize| {
            // SAFETY: a fresh private mapping at an address of the kernel's choice.
            let base = unsafe { syscall!(Sysno::mmap, 0, size, protection, flags, -1_isize, 0) };
            base.ok().map(|base| (base, size))
        };
        // Under a limit what is needed now has to do.
        let (base, size) = map(least.max(CHUNK)).or_else(|| map(least)).ok_or(())?;
        // SAFETY: no other thread knows this memory.
        unsafe { talc.claim(base as *mut u8, size) }.map(drop).ok_or(())
    }
}

/// [`signal_guard::SignalSafeLock`] with the interface that the allocator asks for.
pub(super) struct HeapLock(signal_guard::SignalSafeLock);

// SAFETY: a lock that one thread holds at a time.
unsafe impl lock_api::RawMutex for HeapLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "what the trait asks for")]
    const INIT: Self = Self(signal_guard::SignalSafeLock::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    unsafe fn unlock(&self) {
        self.0.unlock();
    }
}

type Guard = lock_api::MutexGuard<'static, HeapLock, Talc<Mapped, talc::DefaultBinning>>;

/// The guard that is held across a fork.
struct Held(UnsafeCell<Option<Guard>>);
// SAFETY: only touched by the thread that holds the guard.
unsafe impl Sync for Held {}
#[unsafe(link_section = "wakeset_fork")]
static HELD: Held = Held(UnsafeCell::new(None));

/// Before a fork: locks the heap, so that no thread is in the middle of a change.
pub(crate) fn hold() {
    let guard = HEAP.lock();
    // SAFETY: see `Held`.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// After a fork, in the parent and in the child: unlocks the heap.
///
/// # Safety
/// This thread, or the one it was forked from, has called [`hold`].
pub(crate) unsafe fn release() {
    // SAFETY: see `Held`.
    drop(unsafe { (*HELD.0.get()).take() });
}
