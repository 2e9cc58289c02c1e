//! Whether a set may have used up the wake for a connection of which it has told no thread. That is
//! asked when the program stops watching a listener, because another waiter has to be woken then.
//!
//! A connection wakes one waiter that *sleeps*. What a sleep was woken for is reported by the wait
//! that slept, unless something else has filled its buffer, it has ended with an error, or a watch
//! was removed meanwhile. So where no other call is in the set, and no wait has left something
//! behind, the connection has been reported, and the thread that was told answers for it.
//!
//! | a thread that waits | a thread that removes the watch |
//! |---|---|
//! | counts its call among the set's, reads the version of the members and how many notes there are | begins a version |
//! | sleeps in the kernel: may be woken, and reports that if there is room | removes the watch, in the kernel |
//! | notes a full buffer, or that the version is another | counts its own call: is it the only one? |
//! | counts its call out | looks for a note, and at the listener if there is one, or another call |
//!
//! A call that is counted in later finds the watch gone. A note is kept until a wait that has begun
//! since tells of all that is there, whichever listener is removed meanwhile. Under loom this file
//! runs as it is.

use crate::sys::sync::{AtomicU32, Ordering, const_fn, mutant};
use core::ffi::c_int;
use wakeset::mutated;

#[derive(Debug)]
pub(crate) struct Leftover {
    /// How many waits have left without having reported all that was there.
    notes: AtomicU32,
    /// For how many of them a later wait has made up.
    done: AtomicU32,
}

impl Leftover {
    const_fn! {
        pub(crate) const fn none() -> Self {
            Self { notes: AtomicU32::new(0), done: AtomicU32::new(0) }
        }
    }

    /// A wait begins: how many notes there are.
    #[inline(always)]
    pub(crate) fn begin_wait(&self) -> u32 {
        self.notes.load(Ordering::SeqCst)
    }

    /// A sleep has found `found` events, -1 for an error, and had room for `capacity`. Its call is
    /// still counted. Returns whether that is all there was.
    #[inline(always)]
    pub(crate) fn note_sleep(&self, found: c_int, capacity: c_int) -> bool {
        let is_whole = (0..capacity).contains(&found);
        if !is_whole && !mutant!("full_wait_leaves_no_note") && !mutated!("full_wait_tells_all") {
            self.note();
        }
        is_whole
    }

    /// The same at the end of a wait that found `begun` notes when it began. `is_still`: the
    /// version of the members is what it was then.
    #[inline(always)]
    pub(crate) fn note_wait(&self, begun: u32, found: c_int, capacity: c_int, is_still: bool) {
        let is_whole = self.note_sleep(found, capacity);
        if !is_still {
            if !mutant!("wait_sees_no_removal") {
                self.note();
            }
        } else if is_whole && self.done.load(Ordering::SeqCst) != begun {
            // At worst an earlier wait's, which says less.
            self.done.store(begun, Ordering::SeqCst);
        }
    }

    #[cold]
    fn note(&self) {
        self.notes.fetch_add(1, Ordering::SeqCst);
    }

    /// After a listener's watch was removed: whether the caller, whose call has been counted in
    /// since, is to look for a connection. `is_alone`: it is the only call.
    pub(crate) fn may_have(&self, is_alone: bool) -> bool {
        let notes = self.notes.load(Ordering::SeqCst);
        notes != self.done.load(Ordering::SeqCst)
            || !is_alone && !mutant!("remover_is_always_alone")
    }
}
