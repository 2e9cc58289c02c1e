//! The notes of listeners: bits by which related processes name them to each other.
//!
//! A listener has the place of its inode in a list in the shared memory, where the first that asks
//! for it has put it, and keeps it. Those for which there is no place left share the last note. The
//! list is never emptied, because nobody knows when the last process closes a listener: a family
//! that has more than 63 of them one after the other comes to share, which costs passes of the
//! baton, and loses nothing. Those that share have a second bit, by their inodes, which says for
//! which of them a waiter sleeps. Where two have that in common, a waiter may leave a connection to
//! one that cannot take it, for as long as it leaves any.

use super::rounds::NOTES;
use crate::kernel_half::listeners::shared_hint;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

/// Listeners, by their notes. In the upper half are the second bits.
pub type Notes = u128;

/// The note of all listeners without a place.
pub(in super::super) const OTHERS: u64 = 1 << LAST;
const LAST: usize = NOTES - 1;

/// The inodes, by note.
pub(in super::super) type Names = [AtomicU64; NOTES];

/// The note of a listener, by its inode: its alone, unless it is `OTHERS`; 0 for none.
pub fn note_of(inode: Option<u64>) -> Notes {
    let inode = inode.filter(|inode| *inode != 0);
    inode.map_or(0, |inode| note_in(&shared_hint::declined().names, inode))
}

fn note_in(names: &Names, inode: u64) -> Notes {
    let is_own = |name: &AtomicU64| {
        let is_free = name.load(SeqCst) == 0;
        is_free && name.compare_exchange(0, inode, SeqCst, SeqCst).is_ok()
            || name.load(SeqCst) == inode
    };
    let second = || 1 << (NOTES as u64 + inode % NOTES as u64);
    let place = names.iter().take(LAST).position(is_own);
    place.map_or_else(|| Notes::from(OTHERS) | second(), |place| 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two listeners with one note took each other's wakes.
    #[test]
    fn a_note_is_one_listeners() {
        let names: Names = [const { AtomicU64::new(0) }; NOTES];
        for _ in 0..2 {
            for place in 0..LAST as u64 {
                // All have the same last bits.
                assert_eq!(note_in(&names, 64 * (place + 1)), 1 << place);
            }
            let (one, next) = (note_in(&names, 1), note_in(&names, 2));
            assert_eq!((one as u64, next as u64), (OTHERS, OTHERS), "there is no place left");
            assert_eq!(one & next, Notes::from(OTHERS), "they are still told apart");
        }
        assert_eq!(note_of(None), 0);
    }
}
