//! Numbers that a forked child has from its parent, in which the objects live on, or may come home.
//! In the child's table they have tags of their own, and no slot. What the child looks up migrates
//! in the parent, and is the kernel's; what it closes, or puts another file over, is forgotten.
//!
//! A read or a write shows nobody the object, so that it may come home when this process has ended
//! or executed another program. By any other look-up the object may get to a further process, or
//! into a set of this one, so the parent is told, and keeps it in the kernel.

use crate::sys::forked;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{self, Entry, INHERITED, SHARED, VACANT, hidden};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use wakeset::mutated;

/// Whether a number is one of those, or one that may come home in the parent.
#[inline]
pub(crate) fn is(fd: c_int) -> bool {
    forked::is_child() && has_tag(fd, &BOTH)
}

const BOTH: [usize; 2] = [INHERITED, SHARED];

fn has_tag(fd: c_int, tags: &[usize]) -> bool {
    let tag = |word: &AtomicUsize| word.load(Ordering::SeqCst) & table::TAG;
    table::word_of(fd).is_some_and(|word| tags.contains(&tag(word)))
}

/// The number no longer stands for what it did at the fork; whether it has until now.
#[inline]
pub(crate) fn forget(fd: c_int) -> bool {
    forked::is_child() && table::retag(fd, &BOTH, VACANT).is_some()
}

/// For a read or a write of such a number: when this returns it is the kernel's, and may come home
/// in the parent once this process has it no more.
#[cold]
pub(super) fn ask(fd: c_int) -> Entry {
    ask_by(fd, fd, &[INHERITED], SHARED)
}

/// For any other look-up of such a number, after which another process may have it: when this
/// returns it is the kernel's for good.
#[cold]
pub(super) fn give(fd: c_int) -> Entry {
    let message = if mutated!("child_passes_on_in_silence") { fd } else { forked::passing_on(fd) };
    ask_by(fd, message, &BOTH, VACANT)
}

fn ask_by(fd: c_int, message: c_int, from: &[usize], to: usize) -> Entry {
    let is_wanted = || has_tag(fd, from);
    let done = || _ = table::retag(fd, from, to);
    let close = || _ = hidden::close_in(forked::end_number(), -1);
    forked::ask(message, is_wanted, done, close);
    Entry::Kernel
}

/// Leaves everything that has been inherited to the kernel, for good.
pub(crate) fn settle() {
    if forked::is_child() {
        table::numbers().filter(|fd| has_tag(*fd, &BOTH)).for_each(|fd| _ = give(fd));
    }
}

/// Before a fork whose child will have such numbers.
pub(crate) fn prepare() {
    lifecycle::sign_up(&CHILDS_END);
}

static CHILDS_END: Participant = Participant {
    rank: Rank::Inherited,
    // `process` does that.
    begin_anew: || {},
    renumber: Some(renumber),
    before_close: None,
};

fn renumber(old: c_int, new: c_int) {
    if new < 0 && old == forked::end() {
        settle();
    }
    forked::renumber(old, new);
}
