//! Threads' numbers for the model checkers, in place of `sync/thread_id.rs`.

extern crate std;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(loom)]
use loom::thread_local;
#[cfg(shuttle)]
use shuttle::thread_local;

/// Not the checker's: which numbers threads get must differ, and changes nothing else.
static NEXT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static ID: u32 = 1 + NEXT.fetch_add(1, Ordering::Relaxed) % 0x3fff_fffe;
}

pub(crate) fn current() -> u32 {
    ID.with(|id| *id)
}

pub(crate) fn process() -> u32 {
    std::process::id()
}

pub(crate) fn known() -> Option<u32> {
    Some(current())
}
