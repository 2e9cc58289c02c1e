//! Counting for `wakeset run --stats` and `--share`. Without them nothing is counted, and a count
//! costs one load.

use super::{ListenerStat, Page, SHARED_STRIPE, Stat};
use crate::sys::handler::Handler;
use crate::sys::{set_stripe, stripe};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

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

/// Gives back the calling thread's stripe. For the thread's last moment.
pub fn release_stripe() {
    let page = PAGE.load(Ordering::Relaxed);
    if let (false, Some(stripe)) = (page.is_null(), stripe()) {
        set_stripe(Some(SHARED_STRIPE));
        // SAFETY: as in `count_in`.
        unsafe { &*page }.release_stripe(stripe);
    }
}
