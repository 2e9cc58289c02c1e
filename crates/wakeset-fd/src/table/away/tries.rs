//! How often it was tried in vain to bring an object home.
//!
//! A try reads from `/proc` with the migrations lock held, and what is in the way may stay there: a
//! semaphore that holds much, or a wait that sleeps. So after each try in vain twice as many calls
//! are made in the kernel before the next one, and after [`MOST`] the object stays there.

use crate::sys::reserved::{NUMBERS, Reserved};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use wakeset::mutated;

/// So many tries.
const MOST: u64 = 16;
/// As many calls between two tries at most, as a power of two.
const MOST_CALLS: u64 = 10;

/// By number: how many calls are to be made before the next try, and above it how many tries were
/// in vain.
static TRIES: Reserved<AtomicU64, NUMBERS> = Reserved::new();
const IN_VAIN: u32 = 32;

fn tries(fd: c_int) -> Option<&'static AtomicU64> {
    TRIES.get(fd as u32 as usize)
}

/// The object leaves: whether there is room to count.
pub(super) fn begin(fd: c_int) -> bool {
    TRIES.place(fd as u32 as usize).inspect(|tries| tries.store(0, Ordering::Relaxed)).is_some()
}

/// Before a call: whether a try is due, or the call brings the next one nearer.
pub(super) fn is_due(fd: c_int) -> bool {
    let Some(tries) = tries(fd) else { return false };
    let word = tries.load(Ordering::Relaxed);
    if word as u32 == 0 || mutated!("return_is_tried_at_each_call") {
        return true;
    }
    // Of several calls at a moment one may count.
    let _ = tries.compare_exchange(word, word - 1, Ordering::Relaxed, Ordering::Relaxed);
    false
}

/// A try was in vain; whether it was the last. The caller holds the migrations lock.
pub(super) fn note(fd: c_int) -> bool {
    let Some(tries) = tries(fd) else { return true };
    let in_vain = (tries.load(Ordering::Relaxed) >> IN_VAIN) + 1;
    let calls = 1 << in_vain.min(MOST_CALLS);
    tries.store(in_vain << IN_VAIN | calls, Ordering::Relaxed);
    in_vain >= MOST
}

/// How many were.
#[cfg(test)]
pub(super) fn in_vain(fd: c_int) -> u64 {
    tries(fd).map_or(0, |tries| tries.load(Ordering::Relaxed) >> IN_VAIN)
}
