//! Whether objects may be made in this process, which begins anew if it is a forked child.

use crate::sys::process::{self, Memory};
use crate::table::{self, engine, gate, lifecycle};
use core::sync::atomic::{AtomicUsize, Ordering};

/// What else a forked child does: a `fn()` as an address, 0 for none.
static IN_CHILD: AtomicUsize = AtomicUsize::new(0);

/// Says what a forked child does besides, once it has begun anew. It has no object then, and one
/// thread.
pub fn set_in_child(act: fn()) {
    IN_CHILD.store(act as *const () as usize, Ordering::Release);
}

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

/// In a forked child: everything was the parent's, and is forgotten.
pub(crate) fn begin_anew() {
    // They close their hidden numbers, which they find in the table.
    lifecycle::begin_anew();
    table::forget_all();
    engine::abandon();
    gate::begin_anew();
    process::own_memory();
    let act = IN_CHILD.load(Ordering::Acquire);
    if act != 0 {
        // SAFETY: only `set_in_child` stores here, and it stores a `fn()`.
        let act: fn() = unsafe { core::mem::transmute::<*const (), fn()>(act as *const ()) };
        act();
    }
}
