//! select(2)'s sets as an array of pollfd, and back.
//!
//! The kernel takes a number that is not open for EBADF, unless it lies beyond the table of the
//! process's descriptors, where it is passed over; and it does not count what nobody asks for in
//! a set, as an end of file of a number that is in the third set only. A call for which that
//! matters is the kernel's.

use super::entries::Asked;
use crate::sys::user;
use crate::table::low_numbers::WORDS;
use core::cell::Cell;
use core::ffi::c_int;
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND,
    POLLWRNORM, fd_set, pollfd,
};

/// What makes a number ready in each of the sets.
pub(super) const BITS: [i16; 3] = [
    POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR,
    POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR,
    POLLPRI,
];

/// The numbers in a word of a set.
pub(super) fn numbers(bits: u64, word: usize) -> impl Iterator<Item = c_int> {
    let first = (word * 64) as c_int;
    let mut left = bits;
    core::iter::from_fn(move || {
        let bit = left.checked_ilog2().map(|_| left.trailing_zeros())?;
        left &= left - 1;
        Some(first + bit as c_int)
    })
}

/// A call of select(2) or pselect(2). One with numbers beyond so many words is the kernel's.
pub(super) struct Selected {
    places: [*mut u64; 3],
    asked: [[u64; WORDS]; 3],
    words: usize,
}

impl Selected {
    /// A call that asks for nothing.
    pub(super) fn new(sets: [*mut fd_set; 3]) -> Self {
        Self { places: sets.map(|set| set.cast::<u64>()), asked: [[0; WORDS]; 3], words: 0 }
    }

    /// Fills in what the sets say. `None`: the memory is not there, or only the kernel can answer.
    /// In place, because the stack may be too small for a copy.
    ///
    /// # Safety
    /// As select(2).
    pub(super) unsafe fn read(&mut self, n: c_int) -> Option<()> {
        let n = usize::try_from(n).ok()?;
        let words = n.div_ceil(64);
        if words > WORDS {
            return None;
        }
        let sets = self.asked.iter_mut().zip(self.places);
        for (set, place) in sets.filter(|(_, place)| !place.is_null()) {
            for (i, word) in set.iter_mut().enumerate().take(words) {
                // SAFETY: any bits are a word of a set.
                *word = unsafe { user::load(place.cast_const().wrapping_add(i)) }?;
            }
            if let Some(last) = set.get_mut(n / 64) {
                // What lies beyond the last number is not asked for.
                *last &= (1 << (n % 64)) - 1;
            }
        }
        self.words = words;
        Some(())
    }

    fn word(&self, i: usize) -> u64 {
        self.asked.iter().fold(0, |all, set| all | set[i])
    }

    /// The numbers in any of the sets, in order.
    fn all(&self) -> impl Iterator<Item = c_int> {
        (0..self.words).flat_map(|i| numbers(self.word(i), i))
    }

    /// The sets that ask for a number.
    fn sets_with(&self, fd: c_int) -> impl Iterator<Item = usize> {
        let (word, bit) = (fd as usize / 64, fd as usize % 64);
        (0..3).filter(move |set| self.asked[*set][word] >> bit & 1 == 1)
    }

    /// The sets in which an entry is ready.
    fn ready(&self, entry: pollfd) -> impl Iterator<Item = usize> {
        let fd = super::entries::number(entry).unwrap_or_default();
        self.sets_with(fd).filter(move |set| entry.revents & BITS[*set] != 0)
    }
}

impl Asked for Selected {
    fn len(&self) -> usize {
        (0..self.words).map(|i| self.word(i).count_ones() as usize).sum()
    }

    fn load(&self, entries: &[Cell<pollfd>]) -> bool {
        for (fd, entry) in self.all().zip(entries) {
            let events = self.sets_with(fd).fold(0, |all, set| all | BITS[set]);
            entry.set(pollfd { fd, events: events & !(POLLHUP | POLLERR), revents: 0 });
        }
        true
    }

    fn count(&self, entries: &[Cell<pollfd>]) -> Option<usize> {
        let mut count = 0;
        let mut is_kernels = false;
        for entry in entries.iter().map(Cell::get).filter(|entry| entry.revents != 0) {
            let ready = self.ready(entry).count();
            is_kernels |= entry.revents & POLLNVAL != 0 || ready == 0;
            count += ready;
        }
        (!is_kernels).then_some(count)
    }

    fn store(&self, entries: &[Cell<pollfd>]) -> bool {
        let mut found = [[0_u64; WORDS]; 3];
        for entry in entries.iter().map(Cell::get) {
            let fd = super::entries::number(entry).unwrap_or_default() as usize;
            self.ready(entry).for_each(|set| found[set][fd / 64] |= 1 << (fd % 64));
        }
        self.places.iter().zip(&found).filter(|(place, _)| !place.is_null()).all(|(place, set)| {
            set.iter().take(self.words).enumerate().all(|(i, word)| {
                // SAFETY: the caller of select(2) gives the memory.
                unsafe { user::store_u64(place.wrapping_add(i), *word) }
            })
        })
    }

    /// A call that fails leaves the sets as they are.
    fn store_interrupted(&self) -> bool {
        true
    }
}
