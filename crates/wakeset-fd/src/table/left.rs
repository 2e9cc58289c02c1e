//! Which numbers stand for eventfds, pipes and pairs that are the kernel's, because they have
//! migrated or began there, so that what is written to them can be counted. Nothing is noted in a
//! process that does not count.
//!
//! A number is forgotten when the kernel gives it out again by a call that is seen.

use crate::stats::Stat;
use crate::stats::count::{self, count};
use crate::sys::reserved::{NUMBERS, Reserved};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering};

/// 1 for such a number.
static LEFT: Reserved<AtomicU8, NUMBERS> = Reserved::new();

/// The number stands for one from now on.
pub(crate) fn note(fd: c_int) {
    if count::is_on()
        && let Some(word) = LEFT.place(fd as u32 as usize)
    {
        word.store(1, Ordering::Relaxed);
    }
}

/// The number stands for something else.
#[inline(always)]
pub(crate) fn forget(fd: c_int) {
    if count::is_on() {
        forget_noted(fd);
    }
}

#[cold]
fn forget_noted(fd: c_int) {
    LEFT.clear(fd as u32 as usize);
}

/// Counts a write that is the kernel's, if it is one to such a number.
#[inline(always)]
pub(crate) fn count_write(fd: c_int) {
    if count::is_on() {
        count_noted(fd);
    }
}

#[cold]
fn count_noted(fd: c_int) {
    let is_noted = LEFT.get(fd as u32 as usize).is_some_and(|it| it.load(Ordering::Relaxed) != 0);
    count(Stat::SignalsInKernel, usize::from(is_noted));
}
