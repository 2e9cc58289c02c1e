//! Counting for `wakeset run --stats`; nothing at all without it.

use crate::listeners;
use crate::section;
use crate::stats::{ListenerStat, Page, SHARED_STRIPE, Stat};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The page to count in; null: do not count.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// Counts in `page` from now on, or no longer.
pub fn set_page(page: Option<&'static Page>) {
    section::set_stripe(None);
    listeners::forget_places();
    PAGE.store(page.map_or(ptr::null_mut(), |page| ptr::from_ref(page).cast_mut()), Ordering::Release);
}

/// Whether somebody counts.
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
    page.bump(stripe(page), stat, n as u64);
}

/// This thread's, from now on if it had none.
fn stripe(page: &Page) -> usize {
    section::stripe().unwrap_or_else(|| {
        let stripe = page.claim_stripe();
        section::set_stripe(Some(stripe));
        stripe
    })
}

/// Counts for a listening socket, whose place in the page is `known` or asked for with its address.
pub(crate) fn count_listener(
    stat: ListenerStat,
    known: Option<usize>,
    address: impl FnOnce(&Page) -> Option<usize>,
) -> Option<usize> {
    let page = PAGE.load(Ordering::Relaxed);
    if page.is_null() {
        return None;
    }
    // SAFETY: as in `count_in`.
    let page = unsafe { &*page };
    let place = known.or_else(|| address(page))?;
    page.bump_listener(place, stripe(page), stat);
    Some(place)
}

/// Gives back this thread's stripe; for its last moment.
pub fn release_stripe() {
    let page = PAGE.load(Ordering::Relaxed);
    if let (false, Some(stripe)) = (page.is_null(), section::stripe()) {
        section::set_stripe(Some(SHARED_STRIPE));
        // SAFETY: as in `count_in`.
        unsafe { &*page }.release_stripe(stripe);
    }
}
