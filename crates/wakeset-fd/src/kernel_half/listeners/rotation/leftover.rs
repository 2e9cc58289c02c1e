//! Whether a set may have used up the wake for a connection of which it has told nobody: asked when
//! the program stops watching a listener, because that wake is then another waiter's.
//!
//! A connection wakes one waiter that *sleeps*. What a sleep was woken for is reported by the wait
//! that slept, unless something else has filled its buffer, it has ended with an error, or a watch
//! was removed meanwhile. So where no call is in the set, and no wait has left something behind,
//! what the wake was for has been told of, and the thread that was told answers for it.
//!
//! | a thread that waits | a thread that removes the watch |
//! |---|---|
//! | counts its call among the set's, and reads the version of the members | begins a version |
//! | sleeps in the kernel: may be woken, and reports that if there is room | removes the watch, in the kernel |
//! | notes a full buffer, or that the version is another | counts its own call: is it the only one? |
//! | counts its call out | looks for the note, and at the listener if there is one or another call |
//!
//! A call that is counted in later finds the watch gone. Under loom this file runs as it is.

use crate::sys::sync::{AtomicBool, Ordering, const_fn, mutant};
use core::ffi::c_int;
use wakeset::mutated;

#[derive(Debug)]
pub(crate) struct Leftover {
    /// A wait has left without having reported all that was there.
    any: AtomicBool,
}

impl Leftover {
    const_fn! {
        pub(crate) const fn none() -> Self {
            Self { any: AtomicBool::new(false) }
        }
    }

    /// A sleep has found so many events, or -1 for an error, and there was room for so many. Its
    /// call is counted still.
    #[inline(always)]
    pub(crate) fn note_sleep(&self, found: c_int, capacity: c_int) {
        let is_whole = (0..capacity).contains(&found);
        if !is_whole && !mutant!("full_wait_leaves_no_note") && !mutated!("full_wait_tells_all") {
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// The same at the end of a wait. `is_still`: the version of the members is what it was before.
    #[inline(always)]
    pub(crate) fn note_wait(&self, found: c_int, capacity: c_int, is_still: impl FnOnce() -> bool) {
        self.note_sleep(found, capacity);
        if !is_still() && !mutant!("wait_sees_no_removal") {
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// After a listener's watch was removed: whether the caller, whose call is counted since, looks
    /// whether there is a connection. `is_alone`: it is the only call. The note goes: what it is
    /// about is there, or is gone.
    pub(crate) fn take(&self, is_alone: bool) -> bool {
        let has_left = self.any.load(Ordering::SeqCst) && self.any.swap(false, Ordering::SeqCst);
        has_left || !is_alone && !mutant!("remover_is_always_alone")
    }
}
