//! The page that one process image counts in.
//!
//! | part | written by | how |
//! |---|---|---|
//! | header: magic, version, pid, name | [`Page::start`], once | relaxed stores, `magic` last (release) |
//! | header: claimed | [`Page::claim_stripe`], [`Page::release_stripe`] | compare-exchange, fetch-and |
//! | stripes 0 … 61 | the one thread that claimed the stripe | relaxed load and store: no locked instruction |
//! | stripe 62 | every thread that found no free stripe | relaxed fetch-add |
//! | in a stripe: tallies | as the stripe; a thread's own by one instruction ([`tallies`](crate::sys::tallies)) | plain addition and subtraction |
//! | listeners | every thread: they count per connection, not per event | relaxed fetch-add; `len` last (release) |
//! | sets: `number` | the thread that takes the entry; the one that ends the set | compare-exchange, release |
//! | sets: `own` | the thread of the stripe that `stripe` names | relaxed load and store |
//! | sets: `others` | every other thread that waits on the set | relaxed fetch-add |
//! | migrations | the thread that holds the migrations lock | relaxed; `when` last (release) |
//!
//! Counting must cost next to nothing on the wake path, so a thread owns its stripe alone and the
//! reader adds the stripes up. The price: when a signal handler counts between its thread's load
//! and store, the handler's count is lost. Nothing but the printed numbers depends on it.
//!
//! Everything here is async-signal-safe and allocates nothing.

use super::listener::{LISTENERS, Listener};
use super::migration::Migrations;
use super::set::{SETS, Set};
use super::stat::Stat;
use super::summary::Summary;
use crate::sys::tallies::TALLIES;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// What the first eight bytes of a started page hold: `WAKESET` and a zero byte, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WAKESET\0");

/// The layout's version: a reader refuses any other.
pub const VERSION: u32 = 7;

/// Stripes in a page, the shared one included.
pub const STRIPES: usize = 63;

/// The stripe that is shared by all threads that found no other one free.
pub const SHARED_STRIPE: usize = STRIPES - 1;

/// Words in a stripe beside the tallies: enough for every [`Stat`], and whole cache lines with
/// these.
const WORDS: usize = 36;

/// A page's size in bytes. The header takes as much as one stripe.
pub const PAGE_BYTES: usize = size_of::<Page>();

const _: () = assert!(Stat::COUNT <= WORDS);
const _: () = assert!(size_of::<Header>() == size_of::<Stripe>());
const _: () = assert!(
    PAGE_BYTES
        == 5 * 4096
            + LISTENERS * size_of::<Listener>()
            + SETS * size_of::<Set>()
            + size_of::<Migrations>()
);

/// The first 320 bytes of a page.
#[repr(C, align(64))]
pub(super) struct Header {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) pid: AtomicU32,
    /// Bit n: stripe n belongs to a thread. Bits from [`SHARED_STRIPE`] up are never used.
    claimed: AtomicU64,
    /// The process's short name as prctl(PR_GET_NAME) gives it, zero-padded, little-endian.
    pub(super) name: [AtomicU64; 2],
    _reserved: [AtomicU64; WORDS + TALLIES - 5],
}

/// One thread's counts, on cache lines of their own.
#[repr(C, align(64))]
pub(super) struct Stripe {
    pub(super) words: [AtomicU64; WORDS],
    /// By [`Tally`](super::Tally).
    pub(super) tallies: [AtomicU64; TALLIES],
}

impl Stripe {
    const fn zeroed() -> Self {
        Stripe {
            words: [const { AtomicU64::new(0) }; WORDS],
            tallies: [const { AtomicU64::new(0) }; TALLIES],
        }
    }
}

/// All counts of one process image: [`PAGE_BYTES`] of atomics, valid when all zero.
#[allow(missing_debug_implementations, reason = "what it holds is what `summary` says")]
#[repr(C, align(64))]
pub struct Page {
    pub(super) header: Header,
    pub(super) stripes: [Stripe; STRIPES],
    pub(super) listeners: [Listener; LISTENERS],
    pub(super) sets: [Set; SETS],
    pub(super) migrations: Migrations,
}

impl Page {
    /// An unstarted page, for a `static`. It lies in `.bss` and costs no memory until touched.
    pub const fn zeroed() -> Self {
        Page {
            header: Header {
                magic: AtomicU64::new(0),
                version: AtomicU32::new(0),
                pid: AtomicU32::new(0),
                claimed: AtomicU64::new(0),
                name: [const { AtomicU64::new(0) }; 2],
                _reserved: [const { AtomicU64::new(0) }; WORDS + TALLIES - 5],
            },
            stripes: [const { Stripe::zeroed() }; STRIPES],
            listeners: [const { Listener::zeroed() }; LISTENERS],
            sets: [const { Set::zeroed() }; SETS],
            migrations: Migrations::zeroed(),
        }
    }

    /// The page at `ptr`, which may point to a shared mapping.
    ///
    /// # Safety
    /// `ptr` is aligned to 64 bytes (a mapping is), and [`PAGE_BYTES`] from it are mapped
    /// readable and writable, hold zeros or an earlier page, and stay mapped for `'a`. Whatever
    /// else touches them does so with atomic operations only.
    pub unsafe fn page_at<'a>(ptr: *const u8) -> &'a Page {
        // SAFETY: the caller vouches for alignment, extent and lifetime; any bit pattern is a
        // valid page, since it holds nothing but integers.
        unsafe { &*ptr.cast::<Page>() }
    }

    /// Marks the page as used by process `pid`; until then a reader ignores it.
    ///
    /// `name` is cut at 15 bytes. Call this once, before other threads count.
    pub fn start(&self, pid: u32, name: &[u8]) {
        let mut padded = [0u8; 16];
        for (to, from) in padded[..15].iter_mut().zip(name) {
            *to = *from;
        }
        let (low, high) = padded.split_at(8);
        for (word, half) in self.header.name.iter().zip([low, high]) {
            let mut bytes = [0u8; 8];
            bytes.copy_from_slice(half);
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
        self.header.version.store(VERSION, Relaxed);
        self.header.pid.store(pid, Relaxed);
        self.header.magic.store(MAGIC, Release);
    }

    /// Gives the calling thread a stripe: one of its own, or [`SHARED_STRIPE`] if none is free.
    ///
    /// The number belongs to this page: after a fork the child has a page of its own and claims
    /// again. Wait-free unless other threads claim at the same moment.
    pub fn claim_stripe(&self) -> usize {
        const OWNABLE: u64 = (1 << SHARED_STRIPE) - 1;
        let mut claimed = self.header.claimed.load(Relaxed);
        loop {
            let free = !claimed & OWNABLE;
            if free == 0 {
                return SHARED_STRIPE;
            }
            let bit = free & free.wrapping_neg();
            // Acquire pairs with the release in `release_stripe`: the new owner's plain loads
            // see the last counts of the old one.
            match self.header.claimed.compare_exchange_weak(
                claimed,
                claimed | bit,
                Acquire,
                Relaxed,
            ) {
                Ok(_) => return bit.trailing_zeros() as usize,
                Err(now) => claimed = now,
            }
        }
    }

    /// Gives a stripe back at thread exit; its counts stay. The shared stripe may be given too.
    pub fn release_stripe(&self, stripe: usize) {
        if stripe < SHARED_STRIPE {
            self.header.claimed.fetch_and(!(1 << stripe), AcqRel);
        }
    }

    /// Adds `n` to a count. `stripe` is what [`Page::claim_stripe`] gave this thread; a number
    /// out of range counts in the shared stripe.
    #[inline]
    pub fn bump(&self, stripe: usize, stat: Stat, n: u64) {
        match self.stripes.get(stripe) {
            Some(own) if stripe != SHARED_STRIPE => {
                let word = &own.words[stat as usize];
                word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
            }
            _ => {
                self.stripes[SHARED_STRIPE].words[stat as usize].fetch_add(n, Relaxed);
            }
        }
    }

    /// Where the thread that has this stripe alone counts its tallies; `None` for the shared one.
    pub(super) fn tallies(&self, stripe: usize) -> Option<&[AtomicU64; TALLIES]> {
        self.stripes[..SHARED_STRIPE].get(stripe).map(|own| &own.tallies)
    }

    /// Adds what a thread has counted elsewhere, which is wrapped around 0, to the tallies of a
    /// stripe; a number out of range counts in the shared one.
    pub(super) fn add_tallies(&self, stripe: usize, had: [u64; TALLIES]) {
        let to = &self.stripes[stripe.min(SHARED_STRIPE)].tallies;
        for (word, n) in to.iter().zip(had).filter(|(_, n)| *n != 0) {
            word.fetch_add(n, Relaxed);
        }
    }

    /// Adds what another page has counted to the shared stripe of this one, and leaves that page
    /// all zero. Nothing may count there any more.
    pub(super) fn absorb(&self, other: &Page) {
        for stripe in &other.stripes {
            let shared = &self.stripes[SHARED_STRIPE];
            let words = shared.words.iter().zip(&stripe.words);
            for (to, from) in words.chain(shared.tallies.iter().zip(&stripe.tallies)) {
                move_count(to, from);
            }
        }
        for listener in &other.listeners {
            self.absorb_listener(listener);
        }
        // Its sets have ended with it.
        other.sets.iter().for_each(Set::clear);
        other.migrations.clear();
        let header = &other.header;
        header.magic.store(0, Relaxed);
        header.version.store(0, Relaxed);
        header.pid.store(0, Relaxed);
        header.claimed.store(0, Relaxed);
        header.name.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// The sums as they stand. Threads may go on counting meanwhile.
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }
}

/// Adds one count to another, which other processes may add to as well, and clears it.
pub(super) fn move_count(to: &AtomicU64, from: &AtomicU64) {
    if from.load(Relaxed) != 0 {
        to.fetch_add(from.swap(0, Relaxed), Relaxed);
    }
}

#[cfg(test)]
pub(super) mod tests {
    extern crate std;

    use super::*;

    static PAGE: Page = Page::zeroed();

    /// The bytes that the file of a shared mapping would hold.
    pub(in super::super) fn bytes_of(page: &Page) -> &[u8] {
        // SAFETY: a page is PAGE_BYTES of initialised integers, and no test thread writes to
        // this one while the slice lives.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(page).cast(), PAGE_BYTES) }
    }

    #[test]
    fn stripes_are_reused_and_the_last_is_shared() {
        let page = Page::zeroed();
        for expected in 0..SHARED_STRIPE {
            assert_eq!(page.claim_stripe(), expected);
        }
        assert_eq!(page.claim_stripe(), SHARED_STRIPE);
        page.release_stripe(SHARED_STRIPE);
        assert_eq!(page.claim_stripe(), SHARED_STRIPE);
        page.release_stripe(17);
        assert_eq!(page.claim_stripe(), 17);
    }

    #[test]
    fn no_count_is_lost_between_threads() {
        let threads = STRIPES + 8;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let stripe = PAGE.claim_stripe();
                    for _ in 0..1000 {
                        PAGE.bump(stripe, Stat::Events, 1);
                    }
                    PAGE.release_stripe(stripe);
                });
            }
        });
        assert_eq!(PAGE.summary().get(Stat::Events), threads as u64 * 1000);
    }
}
