//! The state word of a set: which of its halves hold something, and what may become of it.
//!
//! | bit | means | set by | cleared by |
//! |---|---|---|---|
//! | `IN_KERNEL` | everything in the set is, or is about to be, in the kernel half | the migrating thread, as it begins with the set | – |
//! | `CLOSED` | the number has been closed: a wait that is still in the set, and a migration, must not use it | the closing thread, before the kernel closes the number | – |
//! | `HAS_KERNEL` | the kernel half has, or had, a watch of the program's, or an io_uring watches for it | whoever puts the first watch there; a migration; an export | – |
//! | `ONLY_POLLS` | only the io_uring has watches, the kernel epoll has none | the thread that gives the set its io_uring | whoever puts a watch into the kernel epoll, before the watch is there |
//! | `KERNEL_EDGES` | the kernel epoll may hold an edge or a one-shot report that no wait has returned | an addition or change with `EPOLLET` or `EPOLLONESHOT`, before it is made; a migration; the end of the io_uring | the return of the last watch with edges, where `ASKED_EDGES` is not set |
//! | `ASKED_EDGES` | some of that may be of watches that no migration has put there | as `KERNEL_EDGES`, but for a migration; the return of the set itself | – |
//! | `TOOK_EDGES` | a watch with edges has come over from the in-process half in this round of a migration | the migrating thread | the same, at the end of the round, for `KERNEL_EDGES` |
//! | `EXPORTED` | the number tells of both halves, by a doorbell that is rung for each event | an export | the end of the object |
//! | `FIXED` | the set has, or had, a custom source, which the kernel cannot take over, and never migrates | the addition of one | – |
//! | `TIMED` | the set has, or had, a custom source that time may make ready | the addition of one | – |
//!
//! Above the bits is counted how many watches with edges migrations have put into the kernel epoll,
//! and how many of them have not come home.
//!
//! A new set in the same slot clears all of them. `IN_KERNEL`, `TOOK_EDGES`, `EXPORTED`, `FIXED`
//! and `TIMED` change only while the migrations lock is held, and so does `ONLY_POLLS` when it is
//! set; the others may be set at any time.
//!
//! | combination | what it is | a wait |
//! |---|---|---|
//! | none, or `KERNEL_EDGES` alone | *pure*: in-process watches only | sleeps on the set's futex |
//! | `HAS_KERNEL` | both halves | looks at both, and sleeps in the kernel half, where the doorbell reaches it |
//! | `HAS_KERNEL`, `ONLY_POLLS` | in-process watches, and an io_uring | looks at the io_uring instead of the kernel epoll, and sleeps as above |
//! | `IN_KERNEL` without `HAS_KERNEL` | a set whose migration has begun, and which had nothing in the kernel half | waits until that is over |
//! | `IN_KERNEL`, `HAS_KERNEL` | a kernel epoll, or about to be one | goes there |
//! | `CLOSED`, whatever else | a set without a number: *pure*, as nothing comes from the kernel half | sleeps on the set's futex, or, with a signal mask, on nothing |
//! | `FIXED`, `EXPORTED` | a set that other sets watch by its number | as for the rest of its bits |
//!
//! `FIXED` and `IN_KERNEL` exclude each other. `ONLY_POLLS` without `HAS_KERNEL` does not occur.
//!
//! **Orderings.** All are SeqCst. A thread that sets a bit then looks for those whom it concerns (a
//! sleeper to kick, an addition that has begun), and they announce themselves before they look at
//! the word: each is the store-then-load of two parties, of which one must see the other's store.

use crate::sys::sync::{
    AtomicU32,
    Ordering::{Release, SeqCst},
};
use wakeset::mutated;

const IN_KERNEL: u32 = 1;
const CLOSED: u32 = 1 << 1;
const HAS_KERNEL: u32 = 1 << 2;
const ONLY_POLLS: u32 = 1 << 3;
const KERNEL_EDGES: u32 = 1 << 4;
const TOOK_EDGES: u32 = 1 << 5;
const EXPORTED: u32 = 1 << 6;
const FIXED: u32 = 1 << 7;
const TIMED: u32 = 1 << 8;
const ASKED_EDGES: u32 = 1 << 9;
/// The count's lowest bit.
const ONE_TAKEN: u32 = 1 << 16;
const TAKEN: u32 = !(ONE_TAKEN - 1);
const BITS: u32 = !TAKEN;

/// The state word of a set.
#[derive(Debug)]
pub(crate) struct SetState(AtomicU32);

impl SetState {
    /// Of a set with nothing in it.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    fn has(&self, bit: u32) -> bool {
        self.0.load(SeqCst) & bit != 0
    }

    /// Sets a bit; whether it was not set before.
    fn set(&self, bit: u32) -> bool {
        self.0.fetch_or(bit, SeqCst) & bit == 0
    }

    /// Clears a bit; whether it was set before.
    fn clear(&self, bit: u32) -> bool {
        self.has(bit) && self.0.fetch_and(!bit, SeqCst) & bit != 0
    }

    #[inline]
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.has(IN_KERNEL)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.has(CLOSED)
    }

    /// Whether a wait that has found nothing may not sleep in the kernel half as one in both halves
    /// does: everything is there, or is about to be; or the set has no number any more.
    #[inline]
    pub(crate) fn has_left_halves(&self) -> bool {
        self.has(if mutated!("closed_set_is_slept_in") { IN_KERNEL } else { IN_KERNEL | CLOSED })
    }

    #[inline]
    pub(crate) fn has_kernel(&self) -> bool {
        self.has(HAS_KERNEL)
    }

    #[inline]
    pub(crate) fn has_only_polls(&self) -> bool {
        self.has(ONLY_POLLS)
    }

    pub(crate) fn has_kernel_edges(&self) -> bool {
        self.has(KERNEL_EDGES)
    }

    /// Whether it may hold edges of watches that no migration has put there.
    pub(crate) fn has_asked_edges(&self) -> bool {
        self.has(ASKED_EDGES)
    }

    pub(crate) fn is_exported(&self) -> bool {
        self.has(EXPORTED)
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.has(FIXED)
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.has(TIMED)
    }

    /// Whether other sets watch it by what the kernel says of its number.
    pub(crate) fn is_watched_as_number(&self) -> bool {
        self.0.load(SeqCst) & (EXPORTED | FIXED) == EXPORTED | FIXED
    }

    /// Whether a wait may sleep in the in-process half and hears of everything.
    #[inline]
    pub(crate) fn is_pure(&self) -> bool {
        let now = self.0.load(SeqCst);
        now & CLOSED != 0 || now & (HAS_KERNEL | IN_KERNEL) == 0
    }

    /// Whether the set has a kernel half, and nothing else is to be known of it: its number is
    /// open, and it has neither migrated nor an io_uring, nor been exported, nor a custom source.
    #[inline(always)]
    pub(crate) fn is_plainly_mixed(&self) -> bool {
        self.0.load(SeqCst) & (BITS & !(KERNEL_EDGES | ASKED_EDGES)) == HAS_KERNEL
    }

    /// For a new set, which nobody knows yet: on a kernel epoll that holds watches, with edges for
    /// all we know, or on one that is empty.
    pub(crate) fn begin(&self, holds_watches: bool) {
        let held = HAS_KERNEL | KERNEL_EDGES | ASKED_EDGES;
        self.0.store(if holds_watches { held } else { 0 }, Release);
    }

    /// A migration has begun with the set: additions wait for it from here on.
    pub(crate) fn begin_migration(&self) {
        self.set(IN_KERNEL);
    }

    /// Nothing is left in the in-process half: waits go to the kernel epoll.
    pub(crate) fn arrive_in_kernel(&self) {
        self.set(HAS_KERNEL);
    }

    pub(crate) fn close(&self) {
        self.set(CLOSED);
    }

    /// The kernel epoll has, or is about to have, a watch of the program's. Whether the set had no
    /// kernel half, so that waits asleep in process have to be sent there.
    pub(crate) fn note_kernel_watch(&self) -> bool {
        self.clear(ONLY_POLLS);
        self.set(HAS_KERNEL)
    }

    /// A set that had no kernel half has one, in which the io_uring alone watches.
    pub(crate) fn note_only_polls(&self) {
        self.set(ONLY_POLLS);
    }

    /// The kernel epoll is about to get a watch beside those of the io_uring.
    pub(crate) fn note_not_only_polls(&self) {
        self.clear(ONLY_POLLS);
    }

    /// The kernel epoll is about to get a watch with edges, or may have an edge by now.
    pub(crate) fn note_kernel_edges(&self) {
        self.set(KERNEL_EDGES | ASKED_EDGES);
    }

    /// What a migration has just put into the kernel epoll has an edge that is not reported.
    pub(crate) fn note_pending_edge(&self) {
        self.set(KERNEL_EDGES);
    }

    /// A migration has put a watch with edges into the kernel epoll.
    pub(crate) fn note_taken_edges(&self) {
        let count = |word: u32| match word.checked_add(ONE_TAKEN) {
            Some(counted) => Some(counted | TOOK_EDGES),
            // From here on nobody knows.
            None => Some(word | TOOK_EDGES | ASKED_EDGES),
        };
        let _ = self.0.fetch_update(SeqCst, SeqCst, count);
    }

    /// Such a watch is no longer there. With the last one go the edges, if there were no others.
    pub(crate) fn give_up_taken_edges(&self) {
        let _ = self.0.fetch_update(SeqCst, SeqCst, |word| {
            // None is counted where there were too many.
            let left = if word & TAKEN == 0 { word } else { word - ONE_TAKEN };
            let others = left & (TAKEN | TOOK_EDGES | ASKED_EDGES) != 0;
            let stay = others || mutated!("edges_stay_in_the_kernel");
            Some(if stay { left } else { left & !KERNEL_EDGES })
        });
    }

    /// The round of a migration is over: the edges of the watches that came over are the kernel's
    /// from now on, and nobody knows which have been reported.
    pub(crate) fn settle_taken_edges(&self) {
        if self.clear(TOOK_EDGES) {
            self.set(KERNEL_EDGES);
        }
    }

    /// Whether it was not exported before.
    pub(crate) fn export(&self) -> bool {
        self.set(EXPORTED)
    }

    /// The object has ended. Whether it was exported.
    pub(crate) fn end_export(&self) -> bool {
        self.clear(EXPORTED)
    }

    /// The set never migrates from here on.
    pub(crate) fn fix(&self) {
        self.set(FIXED);
    }

    /// From here on the set is not exported for a loop of the program's.
    pub(crate) fn note_timed(&self) {
        self.set(TIMED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has been reported of an edge is told with each migration, not with the first one alone.
    #[test]
    fn edges_that_have_come_home_are_not_the_kernels() {
        let state = SetState::new();
        for _ in 0..2 {
            (0..3).for_each(|_| state.note_taken_edges());
            state.settle_taken_edges();
            (0..2).for_each(|_| state.give_up_taken_edges());
            assert!(state.has_kernel_edges(), "one is there");
            state.give_up_taken_edges();
            assert!(!state.has_kernel_edges() && !state.has_asked_edges());
        }
        state.note_taken_edges();
        state.settle_taken_edges();
        state.note_kernel_edges();
        (0..2).for_each(|_| state.give_up_taken_edges());
        assert!(state.has_kernel_edges(), "the program's own are there");
    }
}
