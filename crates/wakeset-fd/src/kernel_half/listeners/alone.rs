//! Listeners for which one thread of one process waits, as far as is known: this process has called
//! listen(2), has not forked since, and no set and no second thread of it has waited for them.
//!
//! There is nobody to take turns with, so such a thread may wait for them as for anything else that
//! is the kernel's, and the objects beside them stay in process. Nothing depends on it but how many
//! are woken: a thread that waits so is woken for each connection, as without this library. Another
//! process may have the listener from a message.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use wakeset::mutated;

/// One such listener.
struct Alone {
    /// Its number plus one; 0 for a free place.
    number: AtomicI32,
    /// Which thread waits for it; 0 for none so far.
    thread: AtomicUsize,
}

/// Beyond so many, threads take turns.
const MOST: usize = 8;
static ALONE: [Alone; MOST] =
    [const { Alone { number: AtomicI32::new(0), thread: AtomicUsize::new(0) } }; MOST];
/// Whether there are any, so that a fork writes nothing where there are none.
static ANY: AtomicBool = AtomicBool::new(false);

/// listen(2) has just made the number a listener.
pub fn begin_alone(fd: c_int) {
    end_alone(fd);
    let claim = |place: &&Alone| {
        place.number.compare_exchange(0, fd + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = ALONE.iter().find(claim) {
        place.thread.store(0, Ordering::Release);
        ANY.store(true, Ordering::Release);
    }
}

/// The number is another file's, or others wait for the listener.
pub(crate) fn end_alone(fd: c_int) {
    for place in &ALONE {
        let _ = place.number.compare_exchange(fd + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Before a fork: the child has them all.
pub(super) fn end_all() {
    if ANY.load(Ordering::Acquire) && !mutated!("forked_listener_is_alone") {
        ANY.store(false, Ordering::Release);
        ALONE.iter().for_each(|place| place.number.store(0, Ordering::Release));
    }
}

/// Whether the calling thread, by an address of its own, is the only one that waits for a listener.
/// If it is the second one, neither is from now on.
pub fn is_only_waiter(fd: c_int, thread: usize) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return false;
    }
    let Some(place) = ALONE.iter().find(|place| place.number.load(Ordering::Acquire) == fd + 1)
    else {
        return false;
    };
    let waits = place.thread.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire);
    let is_only = waits.is_ok() || waits == Err(thread);
    if !is_only {
        end_alone(fd);
    }
    is_only || mutated!("second_waiter_is_alone")
}

#[cfg(test)]
mod tests;
