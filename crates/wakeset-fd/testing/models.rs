//! Models of a set with polls, its thread and other threads; those of a set with both halves are in
//! `mixed`, those of its quiet waits in `quiet` and `calm`, those of what it leaves when its
//! listener goes in `leftover`, those of threads that slept before its first listener in `alarm`,
//! those of what is taken for a listener in `same_data`, those of a thread in poll(2) in `poller`,
//! those of what a vfork(2) child asks for in `vforked`, those of an object that comes home in
//! `away`, and those of a hidden number in `hidden`. A wait without a limit that nothing ends is
//! what loom calls a deadlock.

mod alarm;
mod away;
mod calm;
mod hidden;
mod leftover;
mod mixed;
mod poller;
mod quiet;
mod same_data;
mod vforked;

use super::kernel::{KERNEL, KERNEL_FILE};
use super::set::{FdSet, close};
use crate::set::polls::{ask_for, give_up};
use crate::table::gate::hold_migrations;
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use std::vec::Vec;
use wakeset::{Timeout, explore};

const IN: u32 = libc::EPOLLIN as u32;
const EDGE: u32 = IN | libc::EPOLLET as u32;
/// A number that is watched by the io_uring, and its data.
const SOCKET: c_int = 5;
const OF_SOCKET: u64 = 50;

/// A set that has asked for polls for this thread.
fn set() -> Arc<FdSet> {
    set_with(false)
}

fn set_with(hints: bool) -> Arc<FdSet> {
    let set = Arc::new(FdSet::new());
    ask_for(&set, 64, hints);
    set
}

/// A set that watches a new socket; the socket's file is returned as well.
fn watching(events: u32) -> (Arc<FdSet>, usize) {
    let set = set();
    let file = KERNEL.open(SOCKET);
    set.ctl(EPOLL_CTL_ADD, SOCKET, events, OF_SOCKET).unwrap();
    assert!(set.polls.are_active());
    (set, file)
}

/// A set whose kernel epoll, too, has something to watch, which never becomes ready.
fn watching_both(events: u32) -> (Arc<FdSet>, usize) {
    let (set, file) = watching(events);
    KERNEL.open(KERNEL_FILE);
    set.ctl(EPOLL_CTL_ADD, KERNEL_FILE, IN, 20).unwrap();
    (set, file)
}

fn run<T: 'static>(set: &Arc<FdSet>, body: impl FnOnce(&FdSet) -> T + 'static) -> JoinHandle<T> {
    let set = Arc::clone(set);
    spawn(move || body(&set))
}

fn fill(file: usize) -> JoinHandle<()> {
    spawn(move || KERNEL.fill(file))
}

impl FdSet {
    fn now(&self) -> Vec<u64> {
        self.wait(3, Timeout::Now)
    }

    fn sleep(&self) -> Vec<u64> {
        self.wait(3, Timeout::Never)
    }
}

/// Catches an io_uring that does not ring the doorbell.
#[test]
fn a_sleeper_hears_of_a_file() {
    explore(3, || {
        let (set, file) = watching(EDGE);
        let filler = fill(file);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
    });
}

/// The first wait may take the doorbell's event out of the kernel epoll when it has checked the
/// io_uring already. A wait that sleeps must have checked the io_uring since then.
#[test]
fn who_sleeps_has_looked_since_the_bell_was_taken() {
    explore(3, || {
        let (set, file) = watching_both(EDGE);
        let filler = fill(file);
        // Each of the two goes first once.
        if set.now().is_empty() && set.now().is_empty() {
            assert_eq!(set.sleep(), [OF_SOCKET]);
        }
        filler.join().unwrap();
    });
}

/// Catches an addition that relies on a wake-up which has already been, although the file is ready.
#[test]
fn an_add_sees_what_is_ready_or_hears_of_it() {
    explore(3, || {
        let set = set();
        let file = KERNEL.open(SOCKET);
        let filler = fill(file);
        set.ctl(EPOLL_CTL_ADD, SOCKET, EDGE, OF_SOCKET).unwrap();
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
    });
}

/// Reads what two writes have written, and sleeps whenever it has read all there is.
fn read_two_writes(hints: bool) {
    let set = set_with(hints);
    let file = KERNEL.open(SOCKET);
    set.ctl(EPOLL_CTL_ADD, SOCKET, EDGE, OF_SOCKET).unwrap();
    let filler = spawn(move || {
        KERNEL.fill(file);
        KERNEL.fill(file);
    });
    let mut read = 0;
    while read < 2 {
        assert_eq!(set.sleep(), [OF_SOCKET]);
        read += KERNEL.drain(file);
    }
    filler.join().unwrap();
}

/// Catches an edge that is lost between a loop's last read and its wait.
#[test]
fn an_edge_is_not_lost_to_a_loop_that_drains() {
    explore(3, || read_two_writes(false));
}

/// The same where completions are believed.
#[test]
fn a_hint_is_not_lost_to_a_loop_that_drains() {
    explore(3, || read_two_writes(true));
}

/// Catches a level that is reported only once, or still when it is gone, and a poll that reports
/// nothing a second time.
#[test]
fn a_level_is_reported_as_long_as_it_holds() {
    explore(3, || {
        let (set, file) = watching(IN);
        let filler = fill(file);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        assert_eq!(set.now(), [OF_SOCKET]);
        filler.join().unwrap();
        KERNEL.drain(file);
        assert_eq!(set.now(), []);
        let filler = fill(file);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
    });
}

/// Catches a poll that has ended and is not armed again.
#[test]
fn a_poll_that_ends_is_armed_again() {
    explore(3, || {
        KERNEL.end_polls_by_itself();
        let (set, file) = watching(EDGE);
        let filler = fill(file);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
        KERNEL.drain(file);
        let filler = fill(file);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
    });
}

/// Catches a change of interest that hides what is ready.
#[test]
fn a_change_of_interest_reports_what_is_there() {
    explore(3, || {
        let (set, file) = watching(EDGE);
        let filler = fill(file);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
        // Armed anew, for more.
        set.ctl(EPOLL_CTL_MOD, SOCKET, EDGE | libc::EPOLLOUT as u32, OF_SOCKET + 1).unwrap();
        assert_eq!(set.now(), [OF_SOCKET + 1]);
        // The same poll.
        set.ctl(EPOLL_CTL_MOD, SOCKET, EDGE | libc::EPOLLOUT as u32, OF_SOCKET + 2).unwrap();
        assert_eq!(set.now(), [OF_SOCKET + 2]);
        assert_eq!(set.now(), []);
    });
}

/// Catches an edge that comes in neither the io_uring nor the kernel epoll while another thread
/// gives the polls up.
#[test]
fn an_edge_is_not_lost_to_who_gives_up() {
    explore(2, || {
        let (set, file) = watching(EDGE);
        let filler = fill(file);
        let other = run(&set, give_up);
        assert_eq!(set.sleep(), [OF_SOCKET]);
        filler.join().unwrap();
        other.join().unwrap();
        assert!(!set.polls.are_active());
    });
}

/// What a migration of another source does with the report of an edge that it has put into the
/// kernel epoll (`set::handover`).
fn take_reported_edge(set: &FdSet) {
    let _migrating = hold_migrations();
    if !set.state.has_kernel_edges() {
        KERNEL.wait(3, false);
    }
}

/// Catches a change that sends an edge to the kernel epoll while a migration takes reports out of
/// it.
#[test]
fn an_edge_that_leaves_the_io_uring_is_not_taken_out() {
    explore(3, || {
        let (set, file) = watching(IN);
        KERNEL.fill(file);
        let other = run(&set, take_reported_edge);
        let edge = EDGE | libc::EPOLLWAKEUP as u32;
        set.ctl(EPOLL_CTL_MOD, SOCKET, edge, OF_SOCKET + 1).unwrap();
        other.join().unwrap();
        assert_eq!(set.now(), [OF_SOCKET + 1]);
    });
}

/// Catches a level that is in neither of the two for a moment.
#[test]
fn a_level_shows_while_it_is_given_up() {
    explore(3, || {
        let (set, file) = watching_both(IN);
        KERNEL.fill(file);
        let other = run(&set, give_up);
        assert_eq!(set.now(), [OF_SOCKET]);
        assert_eq!(set.now(), [OF_SOCKET]);
        other.join().unwrap();
        assert_eq!(set.now(), [OF_SOCKET]);
    });
}

/// Catches two threads that give the polls up at once, and an io_uring that another thread enters.
#[test]
fn an_edge_is_not_lost_between_two_waiters() {
    explore(2, || {
        let (set, file) = watching(EDGE);
        let filler = fill(file);
        let other = run(&set, FdSet::now);
        let mine = set.now();
        let others = other.join().unwrap();
        filler.join().unwrap();
        if mine.is_empty() && others.is_empty() {
            assert_eq!(set.sleep(), [OF_SOCKET]);
        }
    });
}

/// Catches a thread that was in the set before the polls were, and is not woken for them.
#[test]
fn who_slept_before_gets_what_is_watched() {
    explore(2, || {
        let set = set();
        let other = run(&set, FdSet::sleep);
        let file = KERNEL.open(SOCKET);
        set.ctl(EPOLL_CTL_ADD, SOCKET, IN, OF_SOCKET).unwrap();
        KERNEL.fill(file);
        assert_eq!(other.join().unwrap(), [OF_SOCKET]);
    });
}

/// Catches a poll that holds a closed file, and one whose last completion is taken for that of the
/// number's next file.
#[test]
fn a_number_that_is_closed_and_used_again_begins_anew() {
    explore(3, || {
        let (set, file) = watching(IN);
        let filler = fill(file);
        close(SOCKET);
        let next = KERNEL.open(SOCKET);
        set.ctl(EPOLL_CTL_ADD, SOCKET, EDGE, OF_SOCKET + 1).unwrap();
        assert_eq!(set.now(), []);
        filler.join().unwrap();
        assert_eq!(set.now(), []);
        let filler = fill(next);
        assert_eq!(set.sleep(), [OF_SOCKET + 1]);
        filler.join().unwrap();
        assert_eq!(set.now(), []);
    });
}

/// Catches a watch that is removed and stays in the queue.
#[test]
fn what_is_removed_leaves_the_line() {
    explore(3, || {
        let (set, file) = watching(IN);
        let after = SOCKET + 1;
        let next = KERNEL.open(after);
        set.ctl(EPOLL_CTL_ADD, after, IN, OF_SOCKET + 1).unwrap();
        let filler = fill(file);
        KERNEL.fill(next);
        set.now();
        set.ctl(EPOLL_CTL_DEL, SOCKET, 0, 0).unwrap();
        assert_eq!(set.now(), [OF_SOCKET + 1]);
        filler.join().unwrap();
        set.ctl(EPOLL_CTL_ADD, SOCKET, IN, OF_SOCKET + 2).unwrap();
        let mut found = set.now();
        found.sort_unstable();
        assert_eq!(found, [OF_SOCKET + 1, OF_SOCKET + 2]);
    });
}

/// Catches a poll that holds the file when another thread's close of its number returns, and what
/// is reported after that.
#[test]
fn another_thread_closes_a_number() {
    explore(3, || {
        let (set, file) = watching(IN);
        KERNEL.fill(file);
        let other = spawn(|| close(SOCKET));
        assert!(matches!(set.now()[..], [] | [OF_SOCKET]));
        other.join().unwrap();
        assert_eq!(set.now(), []);
    });
}
