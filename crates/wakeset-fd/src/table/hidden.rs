//! Descriptors of ours that the program does not see: to it their numbers are closed.

use crate::sys::{self, forked};
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{self, Entry};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Numbers to stay above if the limit allows, so that the program's own come out as they would
/// without us.
pub(crate) const ABOVE: usize = 400;
/// Else a number this near the limit, which the program comes to last.
const NEAR: usize = 16;

/// Gives a descriptor of ours a number that the program is not likely to want, and hides it; the
/// old number is closed.
pub(crate) fn hide(low: c_int) -> c_int {
    if let Some(high) = hidden_duplicate(low) {
        let _ = sys::close(low);
        return high;
    }
    table::put_doorbell(low);
    low
}

/// A hidden duplicate of a descriptor. `None`: there is no number for it.
pub(crate) fn hidden_duplicate(fd: c_int) -> Option<c_int> {
    lifecycle::sign_up(&HIDDEN);
    duplicate(fd).inspect(|high| table::put_doorbell(*high))
}

/// A hidden number, which no doorbell has, is about to be closed.
pub(crate) fn disclose(fd: c_int) {
    table::forget_doorbell(fd);
}

/// A duplicate under a number that the program is not likely to want.
pub(crate) fn duplicate(fd: c_int) -> Option<c_int> {
    let above = |number| sys::duplicate_above(fd, number);
    above(ABOVE).or_else(|| {
        let limit = sys::number_limit();
        (limit.saturating_sub(NEAR)..limit).rev().find_map(above)
    })
}

static HIDDEN: Participant = Participant {
    rank: Rank::Hidden,
    begin_anew: close_all,
    renumber: Some(renumber_inherited),
    before_close: None,
};

/// Another process has this one's descriptor table.
static SHARED: AtomicBool = AtomicBool::new(false);

/// From now on the hidden numbers are not only this process's.
pub(crate) fn share() {
    SHARED.store(true, Ordering::SeqCst);
}

/// The hidden numbers that a forked child has from its parent, -1 for none.
fn kept() -> [c_int; 3] {
    let [baton, hints] = Kept::ALL.map(inherited);
    [baton, hints, forked::end()]
}

/// Closes all hidden descriptors: a forked child has its own, but for those that it has inherited.
fn close_all() {
    if SHARED.load(Ordering::SeqCst) {
        return;
    }
    let kept = kept();
    for fd in table::numbers() {
        if !kept.contains(&fd) && matches!(table::peek(fd), Entry::Doorbell) {
            let _ = sys::close(fd);
        }
    }
}

/// A hidden descriptor that forked children keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    /// By which the waiters of listeners wake each other.
    Baton,
    /// The file of what they say of themselves.
    Hints,
}

impl Kept {
    const ALL: [Kept; 2] = [Kept::Baton, Kept::Hints];

    fn number(self) -> &'static AtomicI32 {
        match self {
            Kept::Baton => &BATON,
            Kept::Hints => &HINTS,
        }
    }
}

/// The numbers, -1 for none. Changed with the migrations lock held. Children that do nothing but
/// end look at them, too.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static BATON: AtomicI32 = AtomicI32::new(-1);
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static HINTS: AtomicI32 = AtomicI32::new(-1);

/// The number of a hidden descriptor that forked children keep, -1 for none.
#[inline]
pub(crate) fn inherited(kept: Kept) -> c_int {
    kept.number().load(Ordering::SeqCst)
}

/// Hides a descriptor that forked children keep, under a number that the program is not likely to
/// want, and closes the old number. Closes it altogether if there is no such number, or if there is
/// such a descriptor already. The caller holds the migrations lock.
pub(crate) fn hide_inherited(kept: Kept, low: c_int) {
    let high = if inherited(kept) < 0 { hidden_duplicate(low) } else { None };
    let _ = sys::close(low);
    if let Some(high) = high {
        kept.number().store(high, Ordering::SeqCst);
    }
}

/// In a forked child, whose table has been forgotten.
pub(crate) fn hide_inherited_again() {
    kept().into_iter().filter(|kept| *kept >= 0).for_each(table::put_doorbell);
}

fn renumber_inherited(old: c_int, new: c_int) {
    for kept in Kept::ALL {
        let _ = kept.number().compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    }
}
