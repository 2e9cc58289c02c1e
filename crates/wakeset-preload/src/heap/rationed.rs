//! A heap that can be told to refuse, in debug builds only: for tests of what happens when the
//! library's memory has run out.
//!
//! | `WAKESET_ALLOCATIONS` | what is refused |
//! |---|---|
//! | `N` | every allocation after the first N |
//! | `N!` | only the one after the first N |
//!
//! The first refusal is announced on stderr.

use super::own::HEAP;
use crate::environment;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use syscalls::{Sysno, syscall};

struct Rationed;

#[global_allocator]
static RATIONED: Rationed = Rationed;

/// Allocations that will still be granted.
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether only one allocation is refused, and there is memory again afterwards.
static ONE_REFUSAL: AtomicBool = AtomicBool::new(false);
static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Before main: reads `WAKESET_ALLOCATIONS`.
pub(crate) fn start() {
    let Some(value) = environment::setting(c"WAKESET_ALLOCATIONS") else { return };
    let text = value.to_str().unwrap_or_default();
    let (number, one) = text.strip_suffix('!').map_or((text, false), |number| (number, true));
    let Ok(number) = number.parse() else {
        return environment::unknown(c"WAKESET_ALLOCATIONS=", value, "no allocation is refused");
    };
    ONE_REFUSAL.store(one, Ordering::Relaxed);
    LEFT.store(number, Ordering::Relaxed);
}

fn is_refused() -> bool {
    let after_refusal = if ONE_REFUSAL.load(Ordering::Relaxed) { u64::MAX } else { 0 };
    let take = |left: u64| Some(left.checked_sub(1).unwrap_or(after_refusal));
    let refused = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) == Ok(0);
    if refused && !ANNOUNCED.swap(true, Ordering::Relaxed) {
        let text = b"wakeset: an allocation is refused\n";
        // SAFETY: bytes of our own.
        let _ = unsafe { syscall!(Sysno::write, 2, text.as_ptr(), text.len()) };
    }
    refused
}

// SAFETY: passes every request on to the heap, or refuses it.
unsafe impl GlobalAlloc for Rationed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused() {
            return core::ptr::null_mut();
        }
        // SAFETY: the caller's contract.
        unsafe { HEAP.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { HEAP.dealloc(memory, layout) }
    }
}
