//! Whether objects may be made in this process, which begins anew if it is a forked child.

use crate::sys::process::{self, Memory};
use crate::sys::signal_guard;
use crate::table::{self, engine, gate, lifecycle};

/// Before an object is made: notices a child of a fork that nobody told us of (clone(2) by hand),
/// and begins anew. Whether the object may live here: not if it is made by a vfork(2) child, whose
/// numbers are not those of the owner of this memory.
pub fn may_make_objects() -> bool {
    let memory = process::memory();
    if memory == Memory::Copied {
        begin_anew();
    }
    memory != Memory::Shared
}

/// [`may_make_objects`] for a call of the program's. A handler of SIGSYS may make it in the middle
/// of one of our critical sections, whose locks its thread then holds: what it makes is the
/// kernel's.
pub(crate) fn may_be_ours() -> bool {
    !signal_guard::is_inside() && may_make_objects()
}

/// In a forked child: everything was the parent's, and is forgotten.
pub(crate) fn begin_anew() {
    // They close their hidden numbers, which they find in the table.
    lifecycle::begin_anew();
    table::forget_all();
    engine::abandon();
    gate::begin_anew();
    process::own_memory();
}
