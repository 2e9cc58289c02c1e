//! Numbers that the kernel may look up later than the call which names them: those of an io_uring's
//! request that waits for another one. An object that is made under such a number meanwhile is the
//! kernel's.

use crate::sys::reserved::{PIECES, Reserved};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A bit for each number.
static LATE: Reserved<AtomicU64, WORDS> = Reserved::new();
/// A power of two that is enough for all numbers, 64 in a word, and gives pieces of whole pages.
const WORDS: usize = PIECES * 4096 / 8;
static ANY: AtomicBool = AtomicBool::new(false);

/// Notes a number, for good. `false`: there is no room for it.
pub fn note(fd: c_int) -> bool {
    let Ok(number) = usize::try_from(fd) else { return true };
    let Some(word) = LATE.place(number / 64) else { return false };
    word.fetch_or(1 << (number % 64), Ordering::SeqCst);
    ANY.store(true, Ordering::SeqCst);
    true
}

/// Whether a number was noted.
#[inline]
pub(crate) fn is_noted(fd: c_int) -> bool {
    ANY.load(Ordering::Relaxed) && is_among(fd)
}

#[cold]
fn is_among(fd: c_int) -> bool {
    let word = usize::try_from(fd).ok().and_then(|number| LATE.get(number / 64));
    word.is_some_and(|word| word.load(Ordering::SeqCst) & 1 << (fd % 64) != 0)
}
