//! Descriptors of ours that the program does not see: to it their numbers are closed.
//!
//! There is one way to close such a number, which dup2(2), close(2) and close_range(2) of the
//! program may meet at any step: [`claims`].

pub(super) mod claims;

use crate::sys::births::{self, Birth};
use crate::sys::process::{Memory, is_foreign, memory};
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step, step_lock};
use crate::sys::{self, forked};
use crate::table;
use crate::table::doorbells::{count_spare_in, count_spare_out, put_claimed};
use crate::table::lifecycle::{self, Participant, Rank};
use claims::{CLAIMED, Claims, DOORBELL, LEFT, SPARE_DOORBELL, TAG, VACANT};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Numbers to stay above if the limit allows, so that the program's own come out as they would
/// without us.
pub(crate) const ABOVE: usize = 400;
/// Else a number this near the limit, which the program comes to last.
const NEAR: usize = 16;

/// Makes a descriptor of ours and [hides](hide) it.
pub(crate) fn make(make: impl FnOnce() -> Option<c_int>) -> Option<c_int> {
    let _birth = Birth::begin();
    make().map(hide)
}

/// Gives a descriptor of ours, which was made a moment ago, a number that the program is not likely
/// to want, and hides it; the old number is closed. The caller has had a [`Birth`] since before it
/// was made.
pub(crate) fn hide(low: c_int) -> c_int {
    let _guard = SignalGuard::enter();
    let low = Claim::new(low);
    match born_duplicate(low.fd) {
        Some(high) => {
            low.close();
            high
        }
        None if low.entry.is_some() => low.end_as(DOORBELL),
        None => {
            table::put_doorbell(low.fd);
            low.fd
        }
    }
}

/// A hidden duplicate of a descriptor. `None`: there is no number for it.
pub(crate) fn hidden_duplicate(fd: c_int) -> Option<c_int> {
    let _birth = Birth::begin();
    born_duplicate(fd)
}

/// [`hidden_duplicate`] within the caller's [`Birth`].
fn born_duplicate(fd: c_int) -> Option<c_int> {
    lifecycle::sign_up(&HIDDEN);
    duplicate(fd).inspect(|high| table::put_doorbell(*high))
}

/// Calls `f` with a duplicate of a descriptor. `None`: there is no number for it.
pub(crate) fn with_duplicate<T>(fd: c_int, f: impl FnOnce(c_int) -> T) -> Option<T> {
    lifecycle::sign_up(&HIDDEN);
    let _guard = SignalGuard::enter();
    let birth = Birth::begin();
    let copy = duplicate(fd)?;
    // The table is not about the numbers of a vfork(2) child.
    let claim = (!is_foreign()).then(|| Claim::new(copy));
    drop(birth);
    let result = f(copy);
    match claim {
        Some(claim) => claim.close(),
        None => _ = sys::close(copy),
    }
    Some(result)
}

/// A duplicate under a number that the program is not likely to want. The caller has a [`Birth`].
pub(crate) fn duplicate(fd: c_int) -> Option<c_int> {
    let above = |number| sys::duplicate_above(fd, number);
    above(ABOVE).or_else(|| {
        let limit = sys::number_limit();
        (limit.saturating_sub(NEAR)..limit).rev().find_map(above)
    })
}

// The parent writes to it around each fork.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static CLAIMS: Claims = Claims::new();

/// A hidden number that is the calling thread's alone. It ends it, one way or another, before it
/// takes a lock or waits, and holds a signal guard until then.
#[must_use = "others wait until the claim is ended"]
#[derive(Debug)]
pub(crate) struct Claim {
    fd: c_int,
    /// `None`: the table does not know of the number, and only its owner does.
    entry: Option<&'static AtomicUsize>,
    tag: usize,
}

/// Claims a hidden number that stays what it is, because the caller holds the migrations lock, or
/// one that is taken to change it. `None`: nothing is hidden there.
pub(crate) fn claim(fd: c_int) -> Option<Claim> {
    if fd < 0 {
        return None;
    }
    let entry = table::noted(fd);
    let tag = match entry {
        Some(entry) => CLAIMS.claim(entry, is_copy)?,
        None => DOORBELL,
    };
    Some(Claim { fd, entry, tag })
}

/// Claims the number that `field` has, if any, and has `none` there instead.
fn take(field: &AtomicI32, none: c_int) -> Option<Claim> {
    let fd = CLAIMS.take(field, none, table::noted, is_copy)?;
    Some(Claim { fd, entry: table::noted(fd), tag: DOORBELL })
}

/// Whether the table is that of another process.
fn is_copy() -> bool {
    memory() == Memory::Copied
}

impl Claim {
    /// For a number that the kernel has given this thread a moment ago.
    fn new(fd: c_int) -> Self {
        let entry = put_claimed(fd);
        if let Some(_entry) = entry {
            step_lock!(Locked, _entry);
        }
        Self { fd, entry, tag: DOORBELL }
    }

    /// Closes it.
    pub(crate) fn close(self) {
        if self.tag == SPARE_DOORBELL {
            count_spare_out();
        }
        let close = || {
            step!(hidden_before_close);
            let _ = sys::close(self.fd);
        };
        match self.entry {
            Some(entry) => CLAIMS.close(entry, close),
            None => close(),
        }
    }

    /// Lets it be what it was.
    fn release(self) {
        let tag = self.tag;
        self.end_as(tag);
    }

    fn end_as(self, tag: usize) -> c_int {
        if let Some(entry) = self.entry {
            CLAIMS.settle(entry, tag);
        }
        self.fd
    }
}

/// Closes a hidden number that stays what it is until then, as for [`claim`]; whether there was
/// one.
pub(crate) fn close(fd: c_int) -> bool {
    let _guard = SignalGuard::enter();
    claim(fd).map(Claim::close).is_some()
}

/// Closes the hidden number that `field` has, if any, and has `none` there instead; whether there
/// was one. The field is changed when the number is ([`lifecycle::renumber`]).
pub(crate) fn close_in(field: &AtomicI32, none: c_int) -> bool {
    if field.load(Ordering::SeqCst) < 0 {
        return false;
    }
    let _guard = SignalGuard::enter();
    take(field, none).map(Claim::close).is_some()
}

/// Takes the doorbell out of `field`, as [`close_in`], and keeps it for the next set. `leave` has
/// the last one forget it.
pub(crate) fn spare_in(field: &AtomicI32, none: c_int, leave: impl FnOnce(c_int)) {
    if field.load(Ordering::SeqCst) < 0 {
        return;
    }
    let _guard = SignalGuard::enter();
    if let Some(claim) = take(field, none) {
        leave(claim.fd);
        claim.end_as(SPARE_DOORBELL);
        count_spare_in();
    }
}

/// Calls `duplicate` with a hidden number that nobody closes meanwhile.
pub(crate) fn duplicate_by(
    fd: c_int,
    duplicate: impl FnOnce(c_int) -> Option<c_int>,
) -> Option<c_int> {
    let claim = claim(fd)?;
    let copy = duplicate(fd);
    claim.release();
    copy
}

/// Calls `replace` to put the program's file under a hidden number, of which whatever has it has
/// `copy` instead by now, if it could be duplicated. Whether it has been closed since is decided
/// here: then nothing has that copy. The caller holds the migrations lock and has a signal guard.
pub(crate) fn give(fd: c_int, copy: Option<c_int>, replace: impl FnOnce()) {
    let Some(claim) = claim(fd) else {
        copy.map(close);
        return;
    };
    let was_spare = claim.tag == SPARE_DOORBELL;
    replace();
    claim.end_as(VACANT);
    if was_spare {
        count_spare_out();
        copy.into_iter().for_each(table::spare_doorbell);
    }
}

/// Waits until a number is no more claimed.
#[cold]
pub(super) fn wait(fd: c_int) {
    if let Some(entry) = table::word_of(fd) {
        CLAIMS.wait(entry, &is_copy);
    }
}

/// Before a fork: from here on what is hidden stays open, until [`end_fork`] in the parent or
/// [`begin_anew`] in the child. The caller holds the migrations lock. Not for the fork of a
/// vfork(2) child, which has numbers of its own.
pub(crate) fn begin_fork() {
    if !is_foreign() {
        CLAIMS.begin_fork();
    }
}

/// After it, in the parent: closes what was to be closed meanwhile. The caller has a signal guard.
pub(crate) fn end_fork() {
    if is_foreign() || !CLAIMS.end_fork() {
        return;
    }
    table::numbers().for_each(close_left);
}

/// Closes a number whose close was left to a fork which is over: the thread that left it may not
/// have looked whether it is. The caller holds the migrations lock, so that no fork is under way,
/// and has a signal guard.
pub(crate) fn close_left(fd: c_int) {
    if let Some(entry) = table::word_of(fd) {
        CLAIMS.close_left(entry, || _ = sys::close(fd));
    }
}

/// In a forked child, once it has closed what is hidden.
pub(crate) fn begin_anew() {
    births::begin_anew();
    CLAIMS.begin_anew();
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
        if !kept.contains(&fd) && is_copy_of_hidden(fd) {
            let _ = sys::close(fd);
        }
    }
}

/// Whether a number was hidden at the fork. A claimed one may have been the program's at a fork of
/// which we were not told, and stays open.
fn is_copy_of_hidden(fd: c_int) -> bool {
    match table::word_of(fd).map_or(0, |word| word.load(Ordering::SeqCst)) & TAG {
        DOORBELL | SPARE_DOORBELL | LEFT => true,
        CLAIMED => CLAIMS.is_forking(),
        _ => false,
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
/// such a descriptor already. The caller holds the migrations lock, and has a [`Birth`] as for
/// [`hide`].
pub(crate) fn hide_inherited(kept: Kept, low: c_int) {
    let _guard = SignalGuard::enter();
    let low = Claim::new(low);
    let high = if inherited(kept) < 0 { born_duplicate(low.fd) } else { None };
    low.close();
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

#[cfg(test)]
mod tests;
