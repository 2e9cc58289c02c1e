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
//! | a waiter that is woken | takes the notes of its own listeners away, then checks them. If there are notes of others, it passes, once in each round |
//! | it finds a connection | reports it; if the program declines it as well, that is a round of its own |
//!
//! **Bounded.** A waiter that sleeps has seen its listeners empty, or, by edges, has not been told
//! of what is there; it cannot decline a second time before that is true again, so a connection is
//! declined once by each. Nor does a waiter pass a second time in a round on behalf of others: it
//! goes to the end of the queue before it passes the first time, so all others that sleep have been
//! asked. A set, in which other threads may sleep, goes there under the lock of its notes, before
//! the pass.
//!
//! **Shared** with other processes are the pipe, the notes and the number of the round, which
//! any of them may write at any time: the worst that comes of it are checks too many, or a
//! connection that waits for the rescue. A process that is killed leaves nothing half done: between
//! a wake and the pass that follows it, the pass is lost, and the rescue finds the connection.

use super::family::{self, INHERITED};
use super::{shared_hint, shares};
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno};
use crate::table::gate;
use crate::table::hidden::{self, Kept};
use crate::table::process::may_be_ours;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};
use wakeset::mutated;
use wakeset_group::listener::{BATON_EVENTS, inode};

/// The baton's inode, which a file of the program's under the same number does not have.
static INODE: AtomicU64 = AtomicU64::new(0);

/// Finds the baton and the hints of those that share this listener, or makes them, unless that is
/// done or listeners are left to the kernel. A process does so that binds a stream socket, listens,
/// waits on a listener, or forks with one that it began with.
pub fn make(listener: c_int) {
    if number() >= 0 || super::order().is_none() || !may_be_ours() {
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
    let (hints, baton) = match may_find.then(|| family::find(listener)).flatten() {
        Some(found) => (Some(found.hints), Some(found.baton)),
        None => (shared_hint::share_hint(!family::is_apart()), make_own()),
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

/// The note of a listener, by its inode. Two may have the same, so one may be taken for the other.
pub fn note_of(inode: Option<u64>) -> u64 {
    inode.map_or(0, |inode| 1 << (inode % 64))
}

/// Wakes one of the waiters that sleep, if any does, for a connection that was declined, of the
/// listener with this [note](note_of).
pub fn decline(note: u64) {
    if number() >= 0 && !mutated!("declined_in_silence") {
        begin_round(note);
        pass();
    }
}

/// Whether a connection on one of the listeners with these notes was declined, and is for whoever
/// is asked next: nobody else answers for it.
pub(super) fn is_urgent(notes: u64) -> bool {
    shared_hint::declined().urgent.load(Ordering::SeqCst) & notes != 0
}

/// This listener was found to be empty.
pub fn note_empty(fd: c_int) {
    let urgent = &shared_hint::declined().urgent;
    if urgent.load(Ordering::SeqCst) != 0 {
        urgent.fetch_and(!note_of(inode(fd)), Ordering::SeqCst);
    }
}

impl Rounds {
    /// For a waiter that steps back, answers for the connection, and sleeps on: it is not to be
    /// woken by this round's first pass. The caller passes next.
    pub fn begin(&self, note: u64) {
        let declined = shared_hint::declined();
        declined.listeners.fetch_or(note, Ordering::SeqCst);
        let before = declined.round.fetch_add(1, Ordering::SeqCst);
        self.visited.store(before.wrapping_add(1), Ordering::Relaxed);
    }
}

pub(super) fn begin_round(note: u64) {
    let declined = shared_hint::declined();
    if !mutated!("declined_to_any") {
        declined.urgent.fetch_or(note, Ordering::SeqCst);
    }
    declined.listeners.fetch_or(note, Ordering::SeqCst);
    declined.round.fetch_add(1, Ordering::SeqCst);
}

/// Whether something was declined whose waiters have not been asked yet. A waiter that ends passes
/// that on: it may have been woken for it.
pub fn has_notes() -> bool {
    shared_hint::declined().listeners.load(Ordering::SeqCst) != 0
        && !mutated!("baton_ends_with_its_waiter")
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
    } else if let Some(copy) = hidden::duplicate(number()) {
        // The number may become another file's, and the copy's does not.
        signal(copy);
        let _ = sys::close(copy);
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

/// What a waiter has done in the latest rounds.
#[derive(Debug)]
pub struct Rounds {
    /// The round in which it was last woken by the baton.
    visited: AtomicU32,
    /// The same, when its watch was last put at the end of the queue.
    placed: AtomicU32,
}

impl Rounds {
    /// None so far.
    pub const fn none() -> Self {
        Self { visited: AtomicU32::new(0), placed: AtomicU32::new(0) }
    }

    /// Notes that the baton has woken this waiter, which checks the listeners with these notes
    /// next. Returns whether it then passes it on: for others, and the first time in this round.
    pub fn visit(&self, own: u64) -> bool {
        let declined = shared_hint::declined();
        let others = declined.listeners.fetch_and(!own, Ordering::SeqCst) & !own;
        declined.urgent.fetch_and(!own, Ordering::SeqCst);
        let round = declined.round.load(Ordering::SeqCst);
        let first = self.visited.swap(round, Ordering::Relaxed) != round;
        if others == 0 || mutated!("baton_is_kept") {
            return false;
        }
        first || mutated!("baton_goes_round")
    }

    /// Whether the watch is to go to the end of the queue, before the next sleep.
    pub fn is_due(&self) -> bool {
        self.visited.load(Ordering::Relaxed) != self.placed.load(Ordering::Relaxed)
            && !mutated!("baton_stays_first")
    }

    /// Notes that it has gone there.
    pub fn note_placed(&self) {
        self.placed.store(self.visited.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;

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
        // Other tests leave notes.
        shared_hint::declined().listeners.store(0, Ordering::SeqCst);
        let (rounds, own, another) = (Rounds::none(), 1, 2);
        for _ in 0..3 {
            begin_round(another);
            assert!(rounds.visit(own));
            assert!(!rounds.visit(own), "it has come back");
            begin_round(own);
            assert!(!rounds.visit(own | another), "there is no other");
        }
    }

    /// A waiter that stayed first in the queue got each pass, and those after it none.
    #[test]
    fn a_waiter_goes_to_the_end_after_a_visit() {
        let _alone = alone();
        let rounds = Rounds::none();
        begin_round(0);
        rounds.visit(0);
        assert!(rounds.is_due());
        rounds.note_placed();
        assert!(!rounds.is_due());
        rounds.visit(0);
        assert!(!rounds.is_due(), "once in a round");
    }
}
