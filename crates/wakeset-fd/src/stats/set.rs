//! The counts of epoll sets: how they lie in a page, and what a reader makes of them.
//!
//! They are counted by the waiter when its wait is over, never by a waker. The first thread that
//! waits on a set counts in words of its own, by plain loads and stores; others, which is what
//! threads that share a set are, count beside it by additions.

use super::page::{Page, SHARED_STRIPE};
use crate::sys::tallies::SET_TALLIES;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Sets that a process counts for at once; it does not count for any more.
pub const SETS: usize = 32;

/// What is counted for each set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum SetStat {
    /// Waits that ended with a report, or with none in time.
    Waits,
    /// Events that they reported.
    Events,
    /// Sleeps that an event, or another thread, ended.
    Wakes,
    /// Those after which there was nothing to report.
    SpuriousWakes,
}

const COUNTS: usize = 4;
const _: () = assert!(SetStat::Waits as usize == 0 && SetStat::Events as usize == 1);

/// One set's counts in a page.
#[repr(C, align(64))]
pub(super) struct Set {
    /// The set's number plus 1, 0 for a free entry or [`CLAIMED`], and above [`SERIAL`] how often
    /// the entry has been taken.
    number: AtomicU64,
    /// The stripe of the thread that counts in `own`.
    stripe: AtomicU64,
    own: [AtomicU64; COUNTS],
    _apart: [AtomicU64; 2],
    others: [AtomicU64; COUNTS],
    _rest: [AtomicU64; 4],
}

const SERIAL: u32 = 32;
/// It is about to be filled in.
const CLAIMED: u64 = (1 << SERIAL) - 1;

impl Set {
    pub(super) const fn zeroed() -> Self {
        Set {
            number: AtomicU64::new(0),
            stripe: AtomicU64::new(0),
            own: [const { AtomicU64::new(0) }; COUNTS],
            _apart: [const { AtomicU64::new(0) }; 2],
            others: [const { AtomicU64::new(0) }; COUNTS],
            _rest: [const { AtomicU64::new(0) }; 4],
        }
    }

    fn clear_counts(&self) {
        self.own.iter().chain(&self.others).for_each(|count| count.store(0, Relaxed));
    }

    /// Leaves the entry all zero. Nothing may count there any more.
    pub(super) fn clear(&self) {
        self.clear_counts();
        self.stripe.store(0, Relaxed);
        self.number.store(0, Relaxed);
    }
}

impl Page {
    /// A free entry for the set of this number; `stripe` is the calling thread's. `None` if all
    /// are taken.
    pub fn claim_set(&self, number: u32, stripe: usize) -> Option<usize> {
        self.sets.iter().position(|set| {
            let word = set.number.load(Relaxed);
            let serial = (word >> SERIAL).wrapping_add(1) << SERIAL;
            let free = word & CLAIMED == 0;
            // Acquire: the last counts of the set that had it come before.
            let claim = || set.number.compare_exchange(word, serial | CLAIMED, Acquire, Relaxed);
            if !free || claim().is_err() {
                return false;
            }
            set.clear_counts();
            set.stripe.store(stripe as u64, Relaxed);
            set.number.store(serial | (u64::from(number) + 1), Release);
            true
        })
    }

    /// How often the entry has been taken: tells its sets apart.
    pub(super) fn serial_of_set(&self, index: usize) -> u32 {
        self.sets.get(index).map_or(0, |set| (set.number.load(Relaxed) >> SERIAL) as u32)
    }

    /// Where the thread of this stripe counts waits and events of the set, by plain additions:
    /// `None` if that is another thread's.
    pub(super) fn tallies_of_set(
        &self,
        index: usize,
        stripe: usize,
    ) -> Option<&[AtomicU64; SET_TALLIES]> {
        let set = self.sets.get(index)?;
        let is_own = stripe < SHARED_STRIPE && set.stripe.load(Relaxed) == stripe as u64;
        is_own.then(|| set.own.first_chunk())?
    }

    /// Frees the entry of a set that has ended, or has migrated.
    pub fn release_set(&self, index: usize) {
        if let Some(set) = self.sets.get(index) {
            let word = set.number.load(Relaxed);
            set.number.store(word & !CLAIMED, Release);
        }
    }

    /// Adds `n` to a count of the set at `index`; does nothing for an index that no set can have.
    /// `stripe` is as for [`bump`](Self::bump).
    #[inline]
    pub fn bump_set(&self, index: usize, stripe: usize, stat: SetStat, n: u64) {
        let Some(set) = self.sets.get(index) else { return };
        match stripe < SHARED_STRIPE && set.stripe.load(Relaxed) == stripe as u64 {
            true => {
                let word = &set.own[stat as usize];
                word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
            }
            false => _ = set.others[stat as usize].fetch_add(n, Relaxed),
        }
    }
}

/// The counts that one page has of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSummary {
    /// The set's number.
    pub fd: u32,
    /// Tells sets apart that have had the same number: the entry, and how often it was taken.
    pub life: (usize, u32),
    counts: [u64; COUNTS],
}

impl SetSummary {
    /// Reads the sets of a page from its bytes. [`Summary::parse`](super::Summary::parse) says
    /// whether the bytes are a page at all.
    pub fn parse(bytes: &[u8]) -> impl Iterator<Item = SetSummary> {
        (0..SETS).filter_map(move |i| {
            let start = offset_of!(Page, sets) + i * size_of::<Set>();
            let word = |at: usize| -> Option<u64> {
                let eight = bytes.get(start + at..start + at + 8)?;
                Some(u64::from_ne_bytes(eight.try_into().ok()?))
            };
            let number = word(offset_of!(Set, number))?;
            let fd = (number & CLAIMED) as u32;
            if fd == 0 || u64::from(fd) == CLAIMED {
                return None;
            }
            let mut counts = [0; COUNTS];
            for (stat, count) in counts.iter_mut().enumerate() {
                let own = word(offset_of!(Set, own) + 8 * stat)?;
                *count = own.wrapping_add(word(offset_of!(Set, others) + 8 * stat)?);
            }
            Some(SetSummary { fd: fd - 1, life: (i, (number >> SERIAL) as u32), counts })
        })
    }

    /// One count.
    pub fn get(&self, stat: SetStat) -> u64 {
        self.counts[stat as usize]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::page::tests::bytes_of;
    use super::*;
    use std::vec::Vec;

    fn read(page: &Page) -> Vec<SetSummary> {
        SetSummary::parse(bytes_of(page)).collect()
    }

    #[test]
    fn sets_have_an_entry_each_until_they_end() {
        let page = Page::zeroed();
        for fd in 0..SETS as u32 {
            assert_eq!(page.claim_set(fd, 0), Some(fd as usize));
        }
        assert_eq!(page.claim_set(99, 0), None);
        page.bump_set(3, 0, SetStat::Waits, 1);
        page.bump_set(SETS, 0, SetStat::Waits, 1);
        let first = read(&page)[3];
        page.release_set(3);
        assert_eq!(read(&page).len(), SETS - 1);
        assert_eq!(page.claim_set(3, 0), Some(3));
        let second = read(&page)[3];
        assert_eq!((first.get(SetStat::Waits), second.get(SetStat::Waits)), (1, 0));
        assert_eq!((first.fd, second.fd), (3, 3));
        assert_ne!(first.life, second.life);
    }

    /// The thread that came first, another one, and one without a stripe of its own.
    #[test]
    fn threads_that_share_a_set_are_added_up() {
        let page = Page::zeroed();
        let set = page.claim_set(7, 2).expect("an entry");
        for stripe in [2, 5, SHARED_STRIPE, usize::MAX] {
            page.bump_set(set, stripe, SetStat::Events, 10);
        }
        assert_eq!(read(&page)[0].get(SetStat::Events), 40);
        let shared = page.claim_set(8, SHARED_STRIPE).expect("an entry");
        page.bump_set(shared, SHARED_STRIPE, SetStat::Wakes, 1);
        assert_eq!(read(&page)[1].get(SetStat::Wakes), 1);
    }
}
