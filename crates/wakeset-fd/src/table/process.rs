//! Whether objects may be made in this process, which begins anew if it is a forked child.

use crate::stats::count;
use crate::sys::forked::{self, ChildsEnd};
use crate::sys::handler::Handler;
use crate::sys::process::{self, Memory};
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::{essential, notice};
use crate::table::{self, closing, engine, gate, hidden, lifecycle};
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset::{ScanGuard, mutated};

/// What else a forked child does.
static IN_CHILD: Handler = Handler::none();

/// Says what a forked child does besides, once it has begun anew. It has no object then, and one
/// thread.
pub fn set_in_child(act: fn()) {
    IN_CHILD.set(act);
}

/// Before an object is made: notices a child of a fork that nobody told us of (clone(2) by hand),
/// and begins anew. Whether the object may live here: not if it is made by a vfork(2) child, whose
/// numbers are not those of the owner of this memory.
#[inline]
pub fn may_make_objects() -> bool {
    if process::is_owner() && !IS_PARENTS.load(Ordering::SeqCst) && essential::for_objects() {
        return true;
    }
    may_begin_to_make_objects()
}

/// [`may_make_objects`] where that has not been so before.
#[cold]
fn may_begin_to_make_objects() -> bool {
    if IS_PARENTS.load(Ordering::SeqCst) {
        let _guard = SignalGuard::enter();
        begin(&gate::hold_migrations());
    }
    let memory = process::memory();
    if memory == Memory::Copied {
        begin_anew();
    }
    memory != Memory::Shared && is_granted()
}

/// Whether objects can live here at all: see [`essential`].
fn is_granted() -> bool {
    let granted = essential::for_objects();
    if !granted && gate::may_open() {
        gate::close_for_good();
        notice::say(format_args!(
            "a filter refuses futex(2), rt_sigprocmask(2) or getpid(2): objects stay in the kernel"
        ));
    }
    granted
}

/// [`may_make_objects`] for a call of the program's. A handler of SIGSYS may make it in the middle
/// of one of our critical sections, whose locks its thread then holds: what it makes is the
/// kernel's.
pub(crate) fn may_be_ours() -> bool {
    !signal_guard::is_inside() && may_make_objects()
}

/// The table is that of the parent, which has left everything in it to the kernel. It is to be
/// forgotten before the first object is made.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static IS_PARENTS: AtomicBool = AtomicBool::new(false);

/// Whether nothing in the table is this process's.
#[inline]
pub(crate) fn has_empty_table() -> bool {
    IS_PARENTS.load(Ordering::SeqCst) || table::numbers().is_empty()
}

/// [`may_make_objects`] for a thread that must not wait for a fork, which holds the migrations lock
/// for its length.
pub(crate) fn may_make_objects_beside_fork() -> bool {
    if IS_PARENTS.load(Ordering::SeqCst) {
        let _guard = SignalGuard::enter();
        match gate::try_hold_migrations() {
            Some(migrating) => begin(&migrating),
            None => return false,
        }
    }
    may_make_objects()
}

/// Before the first object of a forked child. Of several threads one forgets what was the parent's,
/// and no other goes on before it has, because each of them takes the lock first.
#[cold]
fn begin(_migrating: &ScanGuard<'_, ()>) {
    if IS_PARENTS.load(Ordering::SeqCst) {
        if !mutated!("child_keeps_parents_table") {
            table::forget_all(false);
            engine::abandon();
        }
        IS_PARENTS.store(false, Ordering::SeqCst);
    }
}

/// In the child of a fork before which everything has migrated. Most such children make no object,
/// and end or execute another program soon; so what is only in the way of new objects stays until
/// there is one.
pub(crate) fn begin_anew_late() {
    let acts = count::acts_in_child() || IN_CHILD.is_set();
    if acts || lifecycle::has_participants() {
        return begin_anew();
    }
    gate::begin_anew();
    hidden::begin_anew();
    IS_PARENTS.store(true, Ordering::SeqCst);
    process::disown();
}

/// In a forked child: everything was the parent's, and is forgotten.
#[cold]
pub(crate) fn begin_anew() {
    begin_anew_with(None);
}

/// [`begin_anew`] in a child whose parent keeps in process what both have, and which asks for it by
/// `end`.
pub(crate) fn begin_anew_with(end: Option<ChildsEnd>) {
    forked::begin(end);
    // Before any number is looked up.
    closing::begin_anew();
    // They close their hidden numbers, which they find in the table.
    lifecycle::begin_anew();
    table::forget_all(end.is_some());
    hidden::hide_inherited_again();
    engine::abandon();
    IS_PARENTS.store(false, Ordering::SeqCst);
    gate::begin_anew();
    hidden::begin_anew();
    process::own_memory();
    count::begin_anew();
    IN_CHILD.call();
}
