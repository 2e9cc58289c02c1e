//! Which of the lowest numbers have ever stood for something of ours: a bit for each number that a
//! set of select(2) has room for, so that such a set is looked through word by word.
//!
//! A bit is set before the entry of the table is, and stays: what has none is the kernel's, and
//! what has one may be.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

/// So many words hold the numbers of nearly every program (`FD_SETSIZE`).
pub(crate) const WORDS: usize = libc::FD_SETSIZE / 64;

static EVER_OURS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The number is about to stand for something of ours.
pub(super) fn note(fd: c_int) {
    let (word, bit) = (fd as u32 as usize / 64, 1 << (fd % 64));
    if let Some(word) = EVER_OURS.get(word)
        && word.load(Ordering::SeqCst) & bit == 0
    {
        word.fetch_or(bit, Ordering::SeqCst);
    }
}

/// The numbers of the word with this index that may stand for something of ours.
#[inline(always)]
pub(crate) fn suspects(word: usize) -> u64 {
    EVER_OURS.get(word).map_or(u64::MAX, |word| word.load(Ordering::Acquire))
}
