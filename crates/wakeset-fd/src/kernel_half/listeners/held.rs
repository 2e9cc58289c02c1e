//! Which threads still hold connections that they have accepted, for the automatic order: a thread
//! that waits again and holds some goes to the end of the queue at once.
//!
//! accept(2) notes the thread under the new number, and counts one for it and for the process. The
//! close of that number, by whichever thread, counts one less. The numbers are all of this process;
//! a forked child goes on with a copy, as it does with the connections.
//!
//! | what is not seen | is found out |
//! |---|---|
//! | a close inside libc, or by an io_uring | before the next decision, if it was the latest number; when accept(2) gives the number out again; within a second by the count |
//! | a fork between the note and the count | within a second by the count |
//! | two threads with one holder, after 254 of them | not: each goes to the end for the other's connections |
//!
//! The *count* goes through all notes, checks that the numbers are open, and corrects the counters.
//! Nothing else depends on these counters, so nothing here orders memory: one that is wrong for a
//! second costs a place in the queue, and no wake.

use super::rescue_clock::RescueClock;
use super::shares;
use crate::sys::process::is_foreign;
use crate::sys::reserved::{self, NUMBERS, Reserved};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering::Relaxed};

/// The process as a whole, in place of a thread.
pub const PROCESS: u8 = 0;
/// A thread that has accepted nothing yet.
pub const NOBODY: u8 = u8::MAX;
pub(super) const HOLDERS: usize = 256;

/// Numbers that a count checks at most; any more count as open.
const MOST_CHECKS: u32 = 1024;

/// Which party has accepted a connection, by its number; 0 for no connection.
static NOTES: Reserved<AtomicU8, NUMBERS> = Reserved::new();
/// One above the highest number with a note.
static END: AtomicU32 = AtomicU32::new(0);
/// Connections held.
static HELD: [AtomicU32; HOLDERS] = [const { AtomicU32::new(0) }; HOLDERS];
/// The latest number that each has accepted and that was not checked since, -1 for none.
static LATEST: [AtomicI32; HOLDERS] = [const { AtomicI32::new(-1) }; HOLDERS];
/// The holder that was given out last.
static NEWEST: AtomicU32 = AtomicU32::new(0);
/// When the counters were last corrected.
static COUNTED: RescueClock = RescueClock::never();

/// A holder for a thread that is about to accept for the first time.
pub fn new_holder() -> u8 {
    (NEWEST.fetch_add(1, Relaxed) % u32::from(NOBODY - 1)) as u8 + 1
}

/// One more for this holder, which the caller is to publish.
fn count_in(holder: u8) {
    if let Some(held) = HELD.get(usize::from(holder)) {
        held.fetch_add(1, Relaxed);
    }
}

/// For tests that hold connections which have no number.
#[cfg(test)]
pub(super) fn raise(holder: u8) {
    count_in(holder);
    shares::publish(holder, count_of(holder));
}

pub(super) fn lower(holder: u8) {
    if let Some(held) = HELD.get(usize::from(holder)) {
        let _ = held.fetch_update(Relaxed, Relaxed, |held| held.checked_sub(1));
        shares::publish(holder, count_of(holder));
    }
}

/// How many connections a holder has, as far as is known.
pub fn count_of(holder: u8) -> u32 {
    HELD.get(usize::from(holder)).map_or(0, |held| held.load(Relaxed))
}

/// A thread has accepted a connection under this number.
pub fn note_accepted(fd: c_int, holder: u8) {
    let Some(note) = NOTES.place(fd as u32 as usize) else { return };
    reserved::raise(&END, fd as u32 + 1);
    forget(note.swap(holder, Relaxed));
    for holder in [holder, PROCESS] {
        count_in(holder);
        if let Some(latest) = LATEST.get(usize::from(holder)) {
            latest.store(fd, Relaxed);
        }
        shares::note_taken(holder);
    }
}

/// One connection less for this holder, if it is one.
fn forget(holder: u8) {
    if holder != 0 {
        lower(holder);
        lower(PROCESS);
    }
}

/// A number is about to be closed, or to become another file's.
#[inline]
pub fn note_close(fd: c_int) {
    if let Some(note) = NOTES.get(fd as u32 as usize)
        && note.load(Relaxed) != 0
        // What a vfork(2) child closes, its parent keeps.
        && !is_foreign()
    {
        forget(note.swap(0, Relaxed));
    }
}

/// [`note_close`] for all numbers from `first` to `last`.
pub fn note_close_range(first: u32, last: u32) {
    for fd in first..last.saturating_add(1).min(END.load(Relaxed)) {
        note_close(fd as c_int);
    }
}

fn is_closed(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0) == Err(Errno::EBADF)
}

/// Returns whether a holder still has more than a few of the connections that it has accepted.
pub(super) fn holds_many(holder: u8) -> bool {
    // The first look costs nothing.
    !shares::is_few(count_of(holder)) && !shares::is_few(number_held(holder))
}

/// [`count_of`], after a look at what may have been closed unseen.
pub(super) fn number_held(holder: u8) -> u32 {
    if count_of(holder) == 0 {
        return 0;
    }
    let latest = LATEST.get(usize::from(holder)).map_or(-1, |latest| latest.swap(-1, Relaxed));
    if latest >= 0 && is_closed(latest) {
        note_close(latest);
    }
    if COUNTED.until_next().is_zero() {
        COUNTED.note();
        count_again();
    }
    count_of(holder)
}

/// For tests that hold connections which have no number: the next count is a second away.
#[cfg(test)]
pub(super) fn put_off_count() {
    COUNTED.note();
}

/// Corrects the counters. One that another thread changes meanwhile stays for the next time.
#[cold]
fn count_again() {
    let before: [u32; HOLDERS] = core::array::from_fn(|i| count_of(i as u8));
    let mut found = [0_u32; HOLDERS];
    let mut checks = 0;
    for fd in 0..END.load(Relaxed) {
        let Some(note) = NOTES.get(fd as usize) else { continue };
        let holder = note.load(Relaxed);
        if holder == 0 {
            continue;
        }
        checks += 1;
        if checks <= MOST_CHECKS && is_closed(fd as c_int) {
            let _ = note.compare_exchange(holder, 0, Relaxed, Relaxed);
            continue;
        }
        for holder in [holder, PROCESS] {
            if let Some(found) = found.get_mut(usize::from(holder)) {
                *found += 1;
            }
        }
    }
    for ((held, before), found) in HELD.iter().zip(before).zip(found) {
        let _ = held.compare_exchange(before, found, Relaxed, Relaxed);
    }
    (0..=u8::MAX).for_each(|holder| shares::publish(holder, count_of(holder)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;

    fn holds(holder: u8) -> bool {
        number_held(holder) > 0
    }

    fn open() -> c_int {
        sys::eventfd(0, libc::EFD_CLOEXEC).expect("a number")
    }

    /// The holder whose connections were closed by another thread held them for ever.
    #[test]
    fn a_close_counts_for_who_has_accepted() {
        let _alone = alone();
        let (one, other, fd) = (new_holder(), new_holder(), open());
        assert!(!holds(one) && !holds(NOBODY));
        note_accepted(fd, one);
        assert!(holds(one) && holds(PROCESS) && !holds(other) && !holds(NOBODY));
        note_close(fd);
        note_close(fd);
        assert!(!holds(one) && !holds(PROCESS));
        let _ = sys::close(fd);
    }

    /// libc closes some numbers unseen: the latest is checked before a decision.
    #[test]
    fn an_unseen_close_is_found_at_once() {
        let _alone = alone();
        let (holder, fd) = (new_holder(), open());
        note_accepted(fd, holder);
        let _ = sys::close(fd);
        assert!(!holds(holder) && !holds(PROCESS));
    }

    /// Others are found when the number is given out again, or by the count.
    #[test]
    fn unseen_closes_do_not_stay() {
        let _alone = alone();
        let (holder, fds) = (new_holder(), [open(), open(), open()]);
        COUNTED.note();
        fds.iter().for_each(|fd| note_accepted(*fd, holder));
        note_accepted(fds[0], holder);
        assert_eq!(count_of(holder), 3, "one number is one connection");
        for fd in &fds[..2] {
            let _ = sys::close(*fd);
        }
        assert!(holds(holder));
        note_close_range(fds[2] as u32, fds[2] as u32);
        let _ = sys::close(fds[2]);
        COUNTED.forget();
        assert!(!holds(holder) && !holds(PROCESS));
    }

    /// A fork between the note and the count leaves a counter that no close lowers.
    #[test]
    fn a_counter_without_a_note_is_corrected() {
        let _alone = alone();
        let holder = new_holder();
        raise(holder);
        raise(PROCESS);
        COUNTED.forget();
        assert!(!holds(holder) && !holds(PROCESS));
        lower(holder);
        assert_eq!(count_of(holder), 0, "and it does not go below zero");
    }

    /// A holder is neither the process nor nobody, however many threads there were.
    #[test]
    fn holders_are_threads() {
        assert!((0..1000).all(|_| (1..NOBODY).contains(&new_holder())));
    }
}
