//! Listeners for which one thread of one process waits, as far as is known: this process has called
//! bind(2), has not forked since nor given the socket to a program, has it under one number, and no
//! set and no second thread of it has waited for it.
//!
//! There is nobody to take turns with, so such a thread may wait for them as for anything else that
//! is the kernel's, and the objects beside them stay in process. Nothing depends on it but how many
//! are woken: a thread that waits so is woken for each connection, as without this library. What is
//! not seen is a message by which another process gets the listener.

use crate::sys;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use wakeset::mutated;

/// One such listener.
struct Alone {
    /// Its number plus one; [`FREE`] or [`BEGINNING`] for none.
    number: AtomicI32,
    /// Which thread waits for it; 0 for none so far.
    thread: AtomicUsize,
}

const FREE: i32 = 0;
/// The place is somebody's who has not written it yet.
const BEGINNING: i32 = -1;

/// Beyond so many, threads take turns.
const MOST: usize = 8;
static ALONE: [Alone; MOST] =
    [const { Alone { number: AtomicI32::new(FREE), thread: AtomicUsize::new(0) } }; MOST];
/// Whether there are any, so that a fork writes nothing where there are none.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether there may be any.
#[inline(always)]
pub fn any_alone() -> bool {
    ANY.load(Ordering::Acquire)
}

/// bind(2) has just given a stream socket its address. It is a listener from listen(2) on.
pub fn begin_alone(fd: c_int) {
    end_alone(fd);
    let claim = |place: &&Alone| {
        place.number.compare_exchange(FREE, BEGINNING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = ALONE.iter().find(claim) {
        place.thread.store(0, Ordering::Release);
        ANY.store(true, Ordering::Release);
        // Unless a fork has ended it already.
        let _ =
            place.number.compare_exchange(BEGINNING, fd + 1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The number is another file's, or others may wait for the listener.
#[inline(always)]
pub fn end_alone(fd: c_int) {
    if any_alone() {
        end_where(|number| number == fd);
    }
}

/// [`end_alone`] for all numbers from `first` to `last`.
pub(super) fn end_range(first: u32, last: u32) {
    if any_alone() {
        end_where(|number| (first..=last).contains(&(number as u32)));
    }
}

#[cold]
fn end_where(ends: impl Fn(c_int) -> bool) {
    for place in &ALONE {
        let number = place.number.load(Ordering::Acquire);
        if number > FREE && ends(number - 1) {
            let (to, order) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = place.number.compare_exchange(number, FREE, to, order);
        }
    }
}

/// Another process has them all: around a fork by any call, before it, and after it on both sides
/// for those that have begun meanwhile.
pub fn end_all_alone() {
    if any_alone() && !mutated!("forked_listener_is_alone") {
        ANY.store(false, Ordering::Release);
        ALONE.iter().for_each(|place| place.number.store(FREE, Ordering::Release));
    }
}

/// Before a program is spawned: it has those that are not closed by exec.
pub(super) fn end_inherited() {
    if any_alone() {
        end_where(|fd| sys::raw!(fcntl, fd, libc::F_GETFD) != Ok(libc::FD_CLOEXEC as usize));
    }
}

/// Whether the calling thread, by an address of its own, is the only one that waits for a listener,
/// of which there are [some](any_alone). If it is the second one, neither is from now on.
pub fn is_only_waiter(fd: c_int, thread: usize) -> bool {
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
