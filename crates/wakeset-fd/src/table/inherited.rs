//! Numbers that a forked child has from its parent, in which the objects live on. In the child's
//! table they have a tag of their own, and no slot. What the child looks up migrates in the parent,
//! and is the kernel's; what it closes, or puts another file over, is forgotten.

use crate::sys::{self, forked};
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{self, Entry, INHERITED, VACANT, hidden};
use core::ffi::c_int;
use core::sync::atomic::Ordering;

/// Whether a number is one of those.
#[inline]
pub(crate) fn is(fd: c_int) -> bool {
    forked::is_child() && has_tag(fd)
}

fn has_tag(fd: c_int) -> bool {
    table::word_of(fd).is_some_and(|word| word.load(Ordering::SeqCst) & table::TAG == INHERITED)
}

/// The number no longer stands for what it did at the fork; whether it has until now.
#[inline]
pub(crate) fn forget(fd: c_int) -> bool {
    forked::is_child() && table::retag(fd, &[INHERITED], VACANT).is_some()
}

/// For a look-up of such a number: when this returns it is the kernel's.
#[cold]
pub(super) fn ask(fd: c_int) -> Entry {
    let is_wanted = || has_tag(fd);
    let done = || _ = table::retag(fd, &[INHERITED], VACANT);
    if let Some(end) = forked::ask(fd, is_wanted, done) {
        hidden::disclose(end);
        let _ = sys::close(end);
    }
    Entry::Kernel
}

/// Leaves everything that has been inherited to the kernel.
pub(crate) fn settle() {
    if forked::is_child() {
        table::numbers().filter(|fd| has_tag(*fd)).for_each(|fd| _ = ask(fd));
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
