//! Counting for `wakeset run --stats` and `--share`. Without them nothing is counted, and a count
//! costs one load; that of a call on the fastest path costs the same with them
//! (`sys::tallies`).

use super::{ListenerStat, Migration, Page, SHARED_STRIPE, SetStat, Stat, Tally};
use crate::sys::handler::Handler;
use crate::sys::tallies::{self, NO_PLACE};
use crate::sys::{set_stripe, stripe};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The page to count in; null: do not count.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// What gives a forked child a page of its own.
static RESTART: Handler = Handler::none();
/// Changes with the page.
static PAGES_SO_FAR: AtomicU32 = AtomicU32::new(0);

/// Counts in `page` from now on, or no longer with `None`.
pub fn set_page(page: Option<&'static Page>) {
    set_stripe(None);
    // What is there is another page's.
    let _ = tallies::set_tallies(None);
    tallies::set_place(0, None);
    PAGES_SO_FAR.fetch_add(1, Ordering::Relaxed);
    PAGE.store(
        page.map_or(ptr::null_mut(), |page| ptr::from_ref(page).cast_mut()),
        Ordering::Release,
    );
}

/// Calls `restart` in each child of a fork from now on, as soon as the fork is noticed there. It
/// has to be async-signal-safe.
pub fn set_restart(restart: fn()) {
    RESTART.set(restart);
}

/// Whether [`begin_anew`] does anything.
pub(crate) fn acts_in_child() -> bool {
    RESTART.is_set()
}

/// In a forked child, whose page is its parent's.
pub(crate) fn begin_anew() {
    RESTART.call();
}

/// Returns whether the process counts.
#[inline(always)]
pub fn is_on() -> bool {
    !PAGE.load(Ordering::Relaxed).is_null()
}

/// Adds `n` to a count.
#[inline(always)]
pub fn count(stat: Stat, n: usize) {
    let page = PAGE.load(Ordering::Relaxed);
    if !page.is_null() {
        count_in(page, stat, n);
    }
}

#[cold]
fn count_in(page: *mut Page, stat: Stat, n: usize) {
    // SAFETY: `set_page` stores pages that live as long as the process.
    let page = unsafe { &*page };
    page.bump(own_stripe(page), stat, n as u64);
}

/// The calling thread's stripe, which it claims now if it had none.
fn own_stripe(page: &'static Page) -> usize {
    stripe().unwrap_or_else(|| {
        let stripe = page.claim_stripe();
        set_stripe(Some(stripe));
        tallies::set_place(NO_PLACE, None);
        page.add_tallies(stripe, tallies::set_tallies(page.tallies(stripe)));
        stripe
    })
}

/// Counts a write to an eventfd, a pipe or a pair that was answered in process.
#[inline(always)]
pub(crate) fn count_signal() {
    tallies::count_one::<{ Tally::Signals as usize }>(note_first);
}

/// Counts another call that was, but for waits.
#[inline(always)]
pub(crate) fn count_avoided() {
    tallies::count_one::<{ Tally::Avoided as usize }>(note_first);
}

/// After a tally that has found its word at 0: a thread's first one, or the first one in its
/// stripe; or any of a thread that has no stripe of its own.
#[cold]
fn note_first() {
    let page = PAGE.load(Ordering::Relaxed);
    if page.is_null() {
        return;
    }
    // SAFETY: as in `count_in`.
    let page = unsafe { &*page };
    let stripe = own_stripe(page);
    // What is in its own words: all that a thread without a stripe counts.
    page.add_tallies(stripe, tallies::set_tallies(page.tallies(stripe)));
}

/// A number that changes with the page: what is known of a page, as the index of a listening
/// socket, holds as long as this is the same.
pub(crate) fn page_generation() -> u32 {
    PAGES_SO_FAR.load(Ordering::Relaxed)
}

/// Counts for a listening socket and returns its index in the page. `index` gives that, from what
/// is known or from the page. `None` if the process does not count, or has no index for the socket.
pub(crate) fn count_listener(
    stat: ListenerStat,
    index: impl FnOnce(&Page) -> Option<usize>,
) -> Option<usize> {
    let page = PAGE.load(Ordering::Relaxed);
    if page.is_null() {
        return None;
    }
    // SAFETY: as in `count_in`.
    let page = unsafe { &*page };
    let index = index(page)?;
    page.bump_listener(index, own_stripe(page), stat);
    Some(index)
}

/// Where a set's counts are in the page, once they are anywhere: the index plus 1 or
/// [`NOWHERE`](Self::NOWHERE), above it how often the entry there has been taken, and above that
/// the page's generation. So no two sets have the same, unless it is 0.
#[derive(Debug)]
pub(crate) struct SetPlace(AtomicU64);

impl SetPlace {
    const SERIAL: u32 = 16;
    const GENERATION: u32 = 48;
    /// The page has no entry for it.
    const NOWHERE: u64 = (1 << Self::SERIAL) - 1;

    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    fn index_of(word: u64) -> Option<usize> {
        let place = word & Self::NOWHERE;
        (place != Self::NOWHERE).then(|| (place as usize).checked_sub(1))?
    }

    fn is_of_page(word: u64) -> bool {
        word != 0 && word >> Self::GENERATION == u64::from(page_generation() as u16)
    }

    /// The word, with an entry that is taken now if there was none.
    fn find(&self, page: &Page, number: u32, stripe: usize) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        if Self::is_of_page(word) {
            return word;
        }
        let index = page.claim_set(number, stripe);
        let place = index.map_or(Self::NOWHERE, |index| {
            u64::from(page.serial_of_set(index)) << Self::SERIAL | (index as u64 + 1)
        });
        let fresh = u64::from(page_generation()) << Self::GENERATION | place;
        match self.0.compare_exchange(word, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            // Another waiter was faster.
            Err(theirs) => {
                index.into_iter().for_each(|index| page.release_set(index));
                theirs
            }
        }
    }

    /// For a set that nobody waits on any more.
    pub(crate) fn release(&self) {
        let word = self.0.swap(0, Ordering::Relaxed);
        let page = PAGE.load(Ordering::Relaxed);
        if let Some(index) = Self::index_of(word)
            && Self::is_of_page(word)
            && !page.is_null()
        {
            // SAFETY: as in `count_in`.
            unsafe { &*page }.release_set(index);
        }
    }
}

/// Counts a wait on a set that was answered at once, in process, with `n` events.
#[inline(always)]
pub(crate) fn count_served(place: &SetPlace, number: u32, n: usize) {
    tallies::count_wait::<{ Tally::Served as usize }, { Tally::Events as usize }>(
        place.0.load(Ordering::Relaxed),
        n as u64,
        || count_served_here(place, number, n),
        || note_first_served(place, number, n),
    );
}

/// The same for a thread that has no words for that set, or had none so far.
#[cold]
fn count_served_here(place: &SetPlace, number: u32, n: usize) {
    let page = PAGE.load(Ordering::Relaxed);
    if page.is_null() {
        // The set was counted once, in the parent of this process.
        place.0.store(0, Ordering::Relaxed);
        tallies::set_place(0, None);
        return;
    }
    // SAFETY: as in `count_in`.
    let page = unsafe { &*page };
    let stripe = own_stripe(page);
    let word = place.find(page, number, stripe);
    let index = SetPlace::index_of(word);
    match index.map(|index| page.tallies_of_set(index, stripe)) {
        // Another thread's.
        Some(None) => {}
        // From now on at once; without an entry in words that nobody reads.
        own => tallies::set_place(word, own.flatten()),
    }
    for stat in Tally::Served.stats() {
        page.bump(stripe, *stat, 1);
    }
    page.bump(stripe, Stat::Events, n as u64);
    count_served_of_set(page, index, stripe, n);
}

fn count_served_of_set(page: &Page, index: Option<usize>, stripe: usize, n: usize) {
    if let Some(index) = index {
        page.bump_set(index, stripe, SetStat::Events, n as u64);
        page.bump_set(index, stripe, SetStat::Waits, 1);
    }
}

/// After a wait that was the first thing that the thread has counted, or the first in its stripe.
#[cold]
fn note_first_served(place: &SetPlace, number: u32, n: usize) {
    let had_stripe = stripe().is_some();
    note_first();
    let page = PAGE.load(Ordering::Relaxed);
    if let (false, Some(stripe), false) = (page.is_null(), stripe(), had_stripe) {
        // SAFETY: as in `count_in`.
        let page = unsafe { &*page };
        // So far in words that nobody reads.
        let index = SetPlace::index_of(place.find(page, number, stripe));
        count_served_of_set(page, index, stripe, n);
    }
}

/// Counts a wait on a set that is over and has reported `n` events.
#[inline(always)]
pub(crate) fn count_wait(place: &SetPlace, number: u32, n: usize) {
    let page = PAGE.load(Ordering::Relaxed);
    if !page.is_null() {
        count_in_set(
            page,
            place,
            number,
            [(Some(Stat::Events), SetStat::Events, n as u64), (None, SetStat::Waits, 1)],
        );
    }
}

/// Counts a wake of a wait on a set.
#[inline(always)]
pub(crate) fn count_wake(place: &SetPlace, number: u32, is_spurious: bool) {
    let page = PAGE.load(Ordering::Relaxed);
    if !page.is_null() {
        let spurious = u64::from(is_spurious);
        let counts = [
            (Some(Stat::Wakes), SetStat::Wakes, 1),
            (Some(Stat::SpuriousWakes), SetStat::SpuriousWakes, spurious),
        ];
        count_in_set(page, place, number, counts);
    }
}

#[cold]
fn count_in_set(
    page: *mut Page,
    place: &SetPlace,
    number: u32,
    counts: [(Option<Stat>, SetStat, u64); 2],
) {
    // SAFETY: as in `count_in`.
    let page = unsafe { &*page };
    let stripe = own_stripe(page);
    let index = SetPlace::index_of(place.find(page, number, stripe));
    for (stat, set_stat, n) in counts {
        stat.into_iter().for_each(|stat| page.bump(stripe, stat, n));
        index.into_iter().for_each(|index| page.bump_set(index, stripe, set_stat, n));
    }
}

/// Counts a migration, and notes it. The caller holds the lock of migrations.
pub(crate) fn count_migration(migration: impl FnOnce() -> Migration) {
    let page = PAGE.load(Ordering::Relaxed);
    if !page.is_null() {
        let migration = migration();
        count_in(page, migration.reason, 1);
        // SAFETY: as in `count_in`.
        unsafe { &*page }.note_migration(&migration);
    }
}

/// Gives back the calling thread's stripe. For the thread's last moment.
pub fn release_stripe() {
    let page = PAGE.load(Ordering::Relaxed);
    if let (false, Some(stripe)) = (page.is_null(), stripe()) {
        set_stripe(Some(SHARED_STRIPE));
        let _ = tallies::set_tallies(None);
        tallies::set_place(NO_PLACE, None);
        // SAFETY: as in `count_in`.
        unsafe { &*page }.release_stripe(stripe);
    }
}
