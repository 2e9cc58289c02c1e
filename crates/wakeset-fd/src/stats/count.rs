//! Counting for `wakeset run --stats` and `--share`. Without them nothing is counted, and a count
//! costs one load.

use super::{ListenerStat, Migration, Page, SHARED_STRIPE, SetStat, Stat};
use crate::sys::handler::Handler;
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
fn own_stripe(page: &Page) -> usize {
    stripe().unwrap_or_else(|| {
        let stripe = page.claim_stripe();
        set_stripe(Some(stripe));
        stripe
    })
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

/// Where a set's counts are in the page, once they are anywhere: the page's generation, and below
/// it the index plus 1 or [`NOWHERE`](Self::NOWHERE).
#[derive(Debug)]
pub(crate) struct SetPlace(AtomicU64);

impl SetPlace {
    const GENERATION: u32 = 32;
    /// The page has no entry for it.
    const NOWHERE: u64 = (1 << Self::GENERATION) - 1;

    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    fn index_of(word: u64) -> Option<usize> {
        let place = word & Self::NOWHERE;
        (place != Self::NOWHERE).then(|| (place as usize).checked_sub(1))?
    }

    /// The index of the set with this number, an entry that is taken now if there was none.
    fn index(&self, page: &Page, number: u32, stripe: usize) -> Option<usize> {
        let generation = u64::from(page_generation());
        let word = self.0.load(Ordering::Relaxed);
        if word >> Self::GENERATION == generation && word & Self::NOWHERE != 0 {
            return Self::index_of(word);
        }
        let index = page.claim_set(number, stripe);
        let place = index.map_or(Self::NOWHERE, |index| index as u64 + 1);
        let fresh = generation << Self::GENERATION | place;
        match self.0.compare_exchange(word, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => index,
            // Another waiter was faster.
            Err(theirs) => {
                index.into_iter().for_each(|index| page.release_set(index));
                Self::index_of(theirs)
            }
        }
    }

    /// For a set that nobody waits on any more.
    pub(crate) fn release(&self) {
        let word = self.0.swap(0, Ordering::Relaxed);
        let page = PAGE.load(Ordering::Relaxed);
        let is_of_this_page = word >> Self::GENERATION == u64::from(page_generation());
        if let Some(index) = Self::index_of(word)
            && is_of_this_page
            && !page.is_null()
        {
            // SAFETY: as in `count_in`.
            unsafe { &*page }.release_set(index);
        }
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
    let index = place.index(page, number, stripe);
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
        // SAFETY: as in `count_in`.
        unsafe { &*page }.release_stripe(stripe);
    }
}
