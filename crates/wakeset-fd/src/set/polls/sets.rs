//! The sets that have polls, and what they do at a close, a renumbering and a fork.

use super::life::{KEPT, give_up};
use crate::kernel_half::uring::poll_uring::PollUring;
use crate::kernel_half::uring::sizes::POLLED_SETS;
use crate::set::FdSet;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::sync::{AtomicPtr, AtomicUsize, Ordering, array_of, statics};
use crate::table::lifecycle::{self, Closes, Participant, Rank};
use core::ffi::c_int;
use core::ptr;
use wakeset::mutated;

statics! {
    /// The sets, null for a free entry. An entry is filled with the migrations lock and that of the
    /// set's polls held, and emptied with the latter.
    pub(crate) static SETS: [AtomicPtr<FdSet>; POLLED_SETS] =
        array_of![AtomicPtr::new(ptr::null_mut()); POLLED_SETS];
    /// How many there are, so that a program without them pays for one load.
    pub(crate) static ACTIVE: AtomicUsize = AtomicUsize::new(0);
}

/// The io_urings are hidden, hold the files they watch, and are not in a forked child.
pub(crate) static POLLS: Participant = Participant {
    rank: Rank::Polls,
    begin_anew: forget_in_child,
    renumber: Some(renumber),
    before_close: Some(Closes { before: before_close, numbers_end }),
};

fn all() -> impl Iterator<Item = &'static FdSet> {
    // SAFETY: null, or a slot, which is never freed.
    SETS.iter().filter_map(|entry| unsafe { entry.load(Ordering::SeqCst).as_ref() })
}

/// An entry for one more set. It stays free for as long as the caller holds the migrations lock.
pub(super) fn free_entry() -> Option<&'static AtomicPtr<FdSet>> {
    lifecycle::sign_up(&POLLS);
    SETS.iter().find(|entry| entry.load(Ordering::SeqCst).is_null())
}

/// Adds a set. The caller holds the lock of the set's polls.
pub(super) fn add(set: &FdSet, entry: &AtomicPtr<FdSet>) {
    entry.store(ptr::from_ref(set).cast_mut(), Ordering::SeqCst);
    ACTIVE.fetch_add(1, Ordering::SeqCst);
}

/// Removes a set. The caller holds the lock of the set's polls.
pub(super) fn remove(set: &FdSet) {
    let set = ptr::from_ref(set).cast_mut();
    for entry in SETS.iter() {
        let removed =
            entry.compare_exchange(set, ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        if removed.is_ok() {
            ACTIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Returns whether the process has any.
#[inline]
fn any() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// One above the highest number that may be watched.
fn numbers_end() -> c_int {
    if !any() {
        return 0;
    }
    all().map(|set| set.polls.with(|watches| watches.end)).max().unwrap_or(0)
}

/// Before a number is closed, or becomes another file's: ends the polls that hold its file.
#[inline]
fn before_close(fd: c_int) {
    if any() && !mutated!("polls_hold_closed_files") {
        end_polls_of(fd);
    }
}

#[cold]
fn end_polls_of(fd: c_int) {
    let _guard = SignalGuard::enter();
    for set in all() {
        let polls = &set.polls;
        let ended = polls.with(|watches| {
            if !polls.are_usable(watches) || watches.is_watched(fd) != Some(true) {
                return true;
            }
            polls.are_mine() && watches.remove(fd)
        });
        if !ended {
            // From then on the close ends the watch, which is the kernel epoll's.
            give_up(set);
        }
    }
}

/// A hidden number has become another, or -1.
fn renumber(old: c_int, new: c_int) {
    let change = |uring: &mut PollUring| {
        for number in [&mut uring.fd, &mut uring.gone] {
            if *number == old {
                *number = new;
            }
        }
    };
    for set in all() {
        set.polls.with(|watches| {
            if let Some(uring) = watches.uring.as_mut() {
                change(uring);
                watches.broken |= uring.fd < 0;
            }
        });
    }
    // After those of the sets: one that a set has no more use for is kept.
    KEPT.for_each(change);
}

/// In a forked child, which has none of it. The hidden numbers are closed with the doorbells.
fn forget_in_child() {
    SETS.iter().for_each(|entry| entry.store(ptr::null_mut(), Ordering::SeqCst));
    ACTIVE.store(0, Ordering::SeqCst);
    // SAFETY: a forked child has one thread, which is here. Another of its parent's may have been
    // at the slots.
    unsafe { KEPT.forget_in_child() };
}
