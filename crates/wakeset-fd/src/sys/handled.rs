//! How many signals the calling thread has handled, which the interposer counts: what ends a call
//! that consists of several steps with EINTR, as one system call would end.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A `fn() -> u32` as an address, 0 for none.
struct Count(AtomicUsize);

impl Count {
    const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn set(&self, count: fn() -> u32) {
        self.0.store(count as *const () as usize, Ordering::Release);
    }

    #[inline]
    fn ask(&self) -> u32 {
        let count = self.0.load(Ordering::Acquire);
        if count == 0 {
            return 0;
        }
        // SAFETY: only `set` stores here, and it stores a `fn() -> u32`.
        unsafe { core::mem::transmute::<*const (), fn() -> u32>(count as *const ())() }
    }
}

static ANY: Count = Count::none();
static NOT_RESTARTING: Count = Count::none();

/// Installs the functions that return how many signals the calling thread has handled, and how
/// many of them have handlers that were registered without `SA_RESTART`.
pub fn set_counts(any: fn() -> u32, not_restarting: fn() -> u32) {
    ANY.set(any);
    NOT_RESTARTING.set(not_restarting);
}

/// How many signals the calling thread has handled. A wait ends with EINTR if the number has grown
/// between two of its steps.
#[inline]
pub(crate) fn any() -> u32 {
    ANY.ask()
}

/// How many of them end a read or write that waits.
#[inline]
pub(crate) fn not_restarting() -> u32 {
    NOT_RESTARTING.ask()
}
