//! How often it was tried in vain to bring an object home.
//!
//! A try takes some microseconds with the migrations lock held, and what is in the way may stay
//! there: a semaphore that holds much, or a wait that sleeps. So after each try in vain twice as
//! many calls are made in the kernel before the next one, and after [`MOST`] tries the object stays
//! there.
//!
//! An object that children use again and again goes each time, for a hundred microseconds, and
//! would come home at once. So one that goes within [`SOON`] of its return comes home after twice
//! as many calls as the last time.

use crate::stats::area;
use crate::sys::reserved::{NUMBERS, Reserved};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use wakeset::mutated;

/// So many tries.
const MOST: u64 = 16;
/// As many calls between two tries at most, as a power of two.
const MOST_CALLS: u64 = 10;

/// In milliseconds.
const SOON: u64 = 1000;

/// By number: how many calls are to be made before the next try, and above it how many tries were
/// in vain.
static TRIES: Reserved<AtomicU64, NUMBERS> = Reserved::new();
const IN_VAIN: u32 = 32;
/// By number: when an object last came home, and above it how often in a row one went soon after.
static RETURNS: Reserved<AtomicU64, NUMBERS> = Reserved::new();
const IN_A_ROW: u32 = 56;
const WHEN: u64 = (1 << IN_A_ROW) - 1;

fn tries(fd: c_int) -> Option<&'static AtomicU64> {
    TRIES.get(fd as u32 as usize)
}

/// The object leaves: whether there is room to count. The caller holds the migrations lock.
pub(super) fn begin(fd: c_int) -> bool {
    let places = (TRIES.place(fd as u32 as usize), RETURNS.place(fd as u32 as usize));
    let (Some(tries), Some(returns)) = places else { return false };
    let last = returns.load(Ordering::Relaxed);
    let is_soon = last & WHEN != 0 && now() < (last & WHEN) + SOON;
    let in_a_row = if is_soon && !mutated!("comes_home_at_once_each_time") {
        (last >> IN_A_ROW) + 1
    } else {
        0
    };
    let in_a_row = in_a_row.min(MOST_CALLS);
    returns.store(in_a_row << IN_A_ROW, Ordering::Relaxed);
    tries.store(if in_a_row > 0 { 1 << in_a_row } else { 0 }, Ordering::Relaxed);
    true
}

/// The object has come home. The caller holds the migrations lock.
pub(super) fn end(fd: c_int) {
    if let Some(returns) = RETURNS.get(fd as u32 as usize) {
        let in_a_row = returns.load(Ordering::Relaxed) >> IN_A_ROW;
        returns.store(in_a_row << IN_A_ROW | now() & WHEN, Ordering::Relaxed);
    }
}

/// The number stands for another object, which has never come home.
pub(super) fn forget(fd: c_int) {
    RETURNS.clear(fd as u32 as usize);
}

/// In milliseconds.
fn now() -> u64 {
    area::now() / 1_000_000
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
