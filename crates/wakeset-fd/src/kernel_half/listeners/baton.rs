//! The baton: how a worker that was woken for a connection, and does not accept it, wakes the next.
//!
//! The kernel wakes one waiter for a connection, and a waiter that declines has used the wake up.
//! So a process that binds a stream socket, listens, waits for a listener, or forks with one that
//! it began with, makes a pipe, which the processes that it forks keep and those that it executes
//! find (`family`). Every set that watches a listener watches the pipe as well,
//! exclusively and by edges. A write wakes the first of its queue that sleeps, as a connection
//! does: that waiter checks its listeners. What is in the pipe means nothing. It is read only where
//! it is full, and never all of it: a waiter that was woken and finds an empty pipe would sleep on.
//! Where a process cannot make such a pipe, or a second write wakes nobody (Linux 5.5 to 5.13), the
//! baton is an eventfd, which forked processes alone share.
//!
//! | who | does |
//! |---|---|
//! | a worker that declines | notes the listener, begins a round, and passes: writes |
//! | a waiter to which the baton comes, the first time in a round | checks those of its listeners of which something was declined, and notes which it has found empty |
//! | it finds a connection | tells its program, and passes nevertheless: the note may stand for several, and its thread may be busy with one of them, or with something else, for long |
//! | something was declined, since it was last asked, on listeners that it cannot tell of | passes |
//! | otherwise | is the last: what was declined is gone |
//!
//! **Nothing is lost.** While a declined connection is there, the baton is on its way to a waiter
//! that has not been asked since, or each that sleeps for the listener has been. A waiter that was
//! asked with the connection there knows of it: by level its set goes on finding it until it is
//! gone, so it does not sleep before that. A write comes to the first of the queue that sleeps, and
//! to all before it, which are awake, and find it when they look again. A waiter goes to the end of
//! the queue before it passes, so those that have not been asked come first, and one that is asked
//! a second time is alone with others that have been. A set, in which other threads may sleep, goes
//! there under the lock of its members. `model` tries it.
//!
//! **Bounded.** A waiter that sleeps has seen its listeners empty, or, by edges, has not been told
//! of what is there; it cannot decline a second time before that is true again, so a connection is
//! declined once by each. In a round each waiter passes once.
//!
//! **Shared** with other processes are the pipe, the notes and the number of the round, which
//! any of them may write at any time: the worst that comes of it are checks too many, or a
//! connection that waits for the rescue. A process that is killed leaves nothing half done: between
//! a wake and the pass that follows it, the pass is lost, and the rescue finds the connection.

mod accepted;
mod names;
mod rounds;

use super::family::{self, Found, INHERITED};
use super::{shared_hint, shares};
use crate::sys::births::Birth;
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno};
use crate::table::gate;
use crate::table::hidden::{self, Kept};
use crate::table::process::may_be_ours;
pub(super) use accepted::accepted;
pub use accepted::note_accepted;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};
pub(super) use names::Names;
pub use names::{Notes, note_of};
#[cfg(test)]
pub(super) use rounds::forget_declined;
pub use rounds::{Look, Rounds, Visit, has_notes};
pub(super) use rounds::{NOTES, begin_round, is_urgent, may_have_notes, of_one};
use wakeset::mutated;
use wakeset_group::listener::{BATON_EVENTS, inode};

/// The baton's inode, which a file of the program's under the same number does not have.
static INODE: AtomicU64 = AtomicU64::new(0);

/// Finds the baton and the hints of those that share this listener, or makes them, unless that is
/// done or listeners are left to the kernel. A process does so that binds a stream socket, listens,
/// waits on a listener, or forks with one that it began with.
#[inline]
pub fn make(listener: c_int) {
    if number() < 0 {
        make_first(listener);
    }
}

#[cold]
fn make_first(listener: c_int) {
    if super::order().is_none() || !may_be_ours() {
        return;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    if number() < 0 {
        find_or_make(listener);
    }
}

/// [`make`] for a listener that others may be passed: they find what this process has by it.
pub fn share(listener: c_int) {
    make(listener);
    shared_hint::note_listener(listener);
}

/// The caller holds the migrations lock.
#[cold]
fn find_or_make(listener: c_int) {
    shares::count_processors();
    let may_find = !shared_hint::is_shared() && !family::is_apart() && !mutated!("executed_alone");
    let (hints, baton, _birth) = match may_find.then(|| family::find(listener)).flatten() {
        Some(Found { hints, baton, birth }) => (Some(hints), Some(baton), birth),
        None => {
            let birth = Birth::begin();
            (shared_hint::share_hint(!family::is_apart()), make_own(), birth)
        }
    };
    if let Some(baton) = baton {
        INODE.store(inode(baton).unwrap_or(0), Ordering::SeqCst);
        hidden::hide_inherited(Kept::Baton, baton);
    }
    if let Some(hints) = hints {
        hidden::hide_inherited(Kept::Hints, hints);
    }
    shared_hint::note_listener(listener);
}

fn make_own() -> Option<c_int> {
    let pipe = if family::is_apart() { None } else { family::make_baton() };
    let pipe = pipe.filter(|pipe| {
        let wakes = wakes_each_time(*pipe);
        if !wakes {
            let _ = sys::close(*pipe);
        }
        wakes
    });
    pipe.or_else(|| sys::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).ok())
}

/// Whether each write to a pipe wakes those that watch it by edges, and not only one to an empty
/// pipe. It is empty before and afterwards.
fn wakes_each_time(pipe: c_int) -> bool {
    let Ok(epoll) = sys::epoll_create1(libc::EPOLL_CLOEXEC) else { return false };
    let mut event = epoll_event { events: 0, u64: 0 };
    let mut wakes = || {
        write_to(pipe);
        sys::epoll_pwait(epoll, &raw mut event, 1, 0, ptr::null(), 0) == Ok(1)
    };
    let wakes = watch_in(epoll, 0, pipe) && wakes() && wakes();
    let _ = sys::close(epoll);
    read_some(pipe);
    wakes
}

/// Whether the process has looked for listeners that it began with.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static HAS_LOOKED: AtomicBool = AtomicBool::new(false);

/// Before a fork: makes the baton if the program began with a listener, which its children share.
/// A master may give it to them without a call that would show that it is one.
#[inline]
pub fn before_fork() {
    if !HAS_LOOKED.load(Ordering::Relaxed) {
        look_for_inherited();
    }
}

#[cold]
fn look_for_inherited() {
    HAS_LOOKED.store(true, Ordering::Relaxed);
    let listens =
        |fd: &c_int| sys::socket_option(*fd, libc::SO_ACCEPTCONN).is_ok_and(|says| says != 0);
    // Also one that has a baton: what it executes finds the family by these listeners.
    if super::order().is_some() && !mutated!("inherited_without_baton") {
        // Under these numbers a program is given a listener: by systemd(1) from 3 on, by inetd(8)
        // under 0. One that executes its own new version keeps the number, which is low because it
        // came early.
        (0..INHERITED).filter(listens).for_each(share);
    }
}

/// The baton, -1 for none.
#[inline]
pub fn number() -> c_int {
    hidden::inherited(Kept::Baton)
}

/// Wakes one of the waiters that sleep, if any does, for a connection that was declined, of the
/// listener with this [note](note_of).
pub fn decline(note: Notes) {
    if number() >= 0 && !mutated!("declined_in_silence") {
        begin_round(note);
        pass();
    }
}

/// Wakes the next waiter in a round.
pub fn pass() {
    if number() < 0 || is_foreign() {
        return;
    }
    let _guard = SignalGuard::enter();
    // The number stays what it is meanwhile.
    let _migrating = gate::hold_migrations();
    signal(number());
}

/// [`pass`] of a caller that holds the migrations lock.
pub(super) fn pass_locked() {
    if !is_foreign() {
        signal(number());
    }
}

/// [`pass`] that waits for no lock, for a process that is about to end, or a caller that may not.
pub(super) fn pass_unlocked() {
    let _guard = SignalGuard::enter();
    if let Some(_migrating) = gate::try_hold_migrations() {
        signal(number());
    } else {
        // The number may become another file's, and the copy's does not.
        let _ = hidden::with_duplicate(number(), signal);
    }
}

/// Writes, if this number is the baton.
fn signal(baton: c_int) {
    if baton >= 0 && inode(baton) == Some(INODE.load(Ordering::SeqCst)) {
        write_to(baton);
    }
}

fn write_to(baton: c_int) {
    let one = 1_u64;
    let write = || sys::write(baton, (&raw const one).cast(), 8);
    if write() == Err(Errno::EAGAIN) {
        // It is full. A part is read, so that what a waiter looks for is not gone.
        read_some(baton);
        let _ = write();
    }
}

/// Reads as much as makes room in a full pipe: a page of 16.
fn read_some(baton: c_int) {
    let mut bytes = [0_u8; 512];
    for _ in 0..8 {
        let _ = sys::read(baton, bytes.as_mut_ptr(), bytes.len());
    }
}

/// Watches the baton in a kernel epoll.
pub(crate) fn watch_in(epoll: c_int, data: u64, baton: c_int) -> bool {
    let event = epoll_event { events: BATON_EVENTS, u64: data };
    baton >= 0 && sys::epoll_ctl(epoll, EPOLL_CTL_ADD, baton, &raw const event).is_ok()
}

/// Watches it no longer.
pub(crate) fn leave(epoll: c_int, baton: c_int) {
    let _ = sys::epoll_ctl(epoll, EPOLL_CTL_DEL, baton, ptr::null());
}

/// The baton, which a kernel epoll may watch, has become another number, or -1. The kernel knows a
/// watch by number and description, so the new one comes before the old one goes.
pub(crate) fn renumber_in(epoll: c_int, data: u64, old: c_int, new: c_int) {
    watch_in(epoll, data, new);
    leave(epoll, old);
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;
    extern crate std;

    /// A pipe that was read until it was empty, and a full one, woke nobody.
    #[test]
    fn each_pass_wakes() {
        let _alone = alone();
        let pipe = make_own().expect("a number");
        let epoll = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        assert!(watch_in(epoll, 0, pipe));
        for _ in 0..10_000 {
            write_to(pipe);
            let mut event = epoll_event { events: 0, u64: 0 };
            assert_eq!(sys::epoll_pwait(epoll, &raw mut event, 1, 0, ptr::null(), 0), Ok(1));
            assert_ne!(sys::poll_now(pipe, libc::POLLIN) & libc::POLLIN, 0, "never empty");
        }
        let _ = sys::close(epoll);
        let _ = sys::close(pipe);
    }

    /// A waiter passed the baton to the next, and that one back to it.
    #[test]
    fn a_waiter_passes_once_in_a_round() {
        let _alone = alone();
        // Other tests decline.
        rounds::forget_declined();
        let (rounds, own, another) = (Rounds::none(), 1, 2);
        for _ in 0..3 {
            begin_round(another);
            assert!(rounds.visit().expect("a new round").is_for_others(own));
            assert!(rounds.visit().is_none(), "it has come back");
            begin_round(own);
            let visit = rounds.visit().expect("a new round");
            assert!(!visit.is_for_others(own), "it has passed the other on");
            assert!(visit.asks_more(own), "there may be more than one");
            visit.saw_none(own);
            assert!(!visit.asks_more(own) && visit.open(own) == 0);
        }
    }

    /// What was declined after a look went with what the look had not found.
    #[test]
    fn a_look_ends_what_was_declined_before() {
        let _alone = alone();
        rounds::forget_declined();
        begin_round(1);
        let visit = Rounds::none().visit().expect("a new round");
        begin_round(1);
        visit.saw_none(1);
        assert!(is_urgent(1) && has_notes() && visit.open(1) == 1);
        Rounds::none().visit().expect("a new round").saw_none(1);
        assert!(!is_urgent(1) && !has_notes());
    }

    /// What another process wrote there was the latest round for ever, and no decline was noted.
    #[test]
    fn rubbish_does_not_stay() {
        let _alone = alone();
        let declined = shared_hint::declined();
        for rubbish in [u64::MAX, 1 << 40, 0] {
            for round in [u64::MAX, 1 << 41, 3] {
                for words in [&declined.left, &declined.urgent, &declined.empty] {
                    words.iter().for_each(|word| word.store(rubbish, Ordering::SeqCst));
                }
                declined.round.store(round, Ordering::SeqCst);
                let rounds = Rounds::none();
                (0..2).for_each(|_| begin_round(2));
                let visit = rounds.visit().expect("a new round");
                assert!(visit.is_for_others(1) && visit.open(2) == 2 && is_urgent(2));
                declined.round.store(round.wrapping_sub(9), Ordering::SeqCst);
                (0..2).for_each(|_| begin_round(2));
                let visit = rounds.visit().expect("a new round");
                assert!(visit.is_for_others(1) && is_urgent(2));
                visit.saw_none(2);
                assert!(!is_urgent(2) && visit.open(2) == 0);
            }
        }
        declined.round.store(0, Ordering::SeqCst);
        rounds::forget_declined();
    }

    /// A waiter that stepped back took the rounds before its own for done.
    #[test]
    fn a_step_back_leaves_earlier_rounds_alone() {
        let _alone = alone();
        rounds::forget_declined();
        let rounds = Rounds::none();
        begin_round(2);
        rounds.begin(1);
        assert!(rounds.visit().is_some_and(|visit| visit.is_for_others(1)));
        rounds.begin(1);
        assert!(rounds.visit().is_none(), "its own");
    }

    /// A waiter that was asked between the two did not pass on what it could not have itself, and
    /// took it for done when it was asked again.
    #[test]
    fn a_waiter_that_knows_of_a_round_knows_what_it_is_for() {
        let _alone = alone();
        rounds::forget_declined();
        let (rounds, begun) = (Rounds::none(), AtomicU64::new(0));
        let (visited, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut missed = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while visited.load(Ordering::SeqCst) != u64::MAX {
                    let so_far = begun.load(Ordering::SeqCst);
                    if rounds.visit().is_some_and(|visit| visit.is_for_others(!1)) {
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                    visited.fetch_max(so_far, Ordering::SeqCst);
                }
            });
            for times in 1..=2_000 {
                begin_round(1);
                begin_round(2);
                begun.store(times, Ordering::SeqCst);
                while visited.load(Ordering::SeqCst) < times {
                    sys::sched_yield();
                }
                missed += u32::from(seen.swap(0, Ordering::SeqCst) == 0);
            }
            visited.store(u64::MAX, Ordering::SeqCst);
        });
        assert_eq!(missed, 0);
    }

    /// A waiter that stayed first in the queue got each pass, and those after it none.
    #[test]
    fn a_waiter_goes_to_the_end_after_a_pass() {
        let _alone = alone();
        let rounds = Rounds::none();
        assert!(!rounds.passes(false) && !rounds.is_due());
        assert!(rounds.passes(true) && rounds.is_due());
        rounds.note_placed();
        assert!(!rounds.is_due());
    }
}
