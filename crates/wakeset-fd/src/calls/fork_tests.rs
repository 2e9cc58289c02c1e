//! A fork beside a thread that holds a lock, of the kept io_urings of either kind or of an object;
//! and one within a call on an object that is away.

use super::fork;
use crate::kernel_half::uring::command_uring;
use crate::kernel_half::uring::thread_rings::{ThreadRing, ThreadRings};
use crate::poll;
use crate::set::{FdSet, polls};
use crate::sys;
use crate::table;
use crate::table::alone::alone;
use crate::table::away::{self, Begun};
use crate::table::lifecycle::{self, Participant};
use core::ffi::c_int;
use std::sync::Barrier;
extern crate std;

/// Forks while another thread is inside `hold`, which calls what it is given, and fails with `what`
/// unless `in_child` is true in the child.
fn fork_beside(
    hold: impl FnOnce(&dyn Fn()) + Send,
    in_child: impl FnOnce() -> bool,
    what: &'static str,
) {
    let (held, forked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            hold(&|| {
                held.wait();
                forked.wait();
            });
        });
        held.wait();
        let forking = fork::prepare();
        // SAFETY: the child makes system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            forking.in_child();
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(10) };
            let holds = in_child();
            // SAFETY: ends this process.
            unsafe { libc::_exit(c_int::from(!holds)) };
        }
        forking.in_parent();
        forked.wait();
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: memory for the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "{what}");
    });
}

/// In a process that was short of memory every forked child was killed by what it forgets first.
#[test]
fn a_child_forgets_only_what_is_noted() {
    let _alone = alone();
    let forget = || {
        poll::begin_anew_without_memory();
        away::tests::forget_what_is_not_noted();
        true
    };
    fork_beside(|wait| wait(), forget, "the child writes where it may only read");
}

fn fork_beside_a_holder<R: ThreadRing, const N: usize>(
    participant: &'static Participant,
    rings: &'static ThreadRings<R, N>,
) {
    // As a thread that has an io_uring to keep.
    lifecycle::sign_up(participant);
    let _alone = alone();
    fork_beside(
        |wait| rings.with(|_| wait()),
        || rings.lock.try_lock(),
        "the child finds the lock taken",
    );
}

/// A child in which the lock was still another thread's hung at its first set with polls.
#[test]
fn a_fork_while_another_thread_keeps_a_poll_uring_leaves_the_child_a_free_lock() {
    fork_beside_a_holder(&polls::POLLS, &polls::KEPT);
}

#[test]
fn a_fork_while_another_thread_keeps_a_command_uring_leaves_the_child_a_free_lock() {
    fork_beside_a_holder(&command_uring::COMMANDS, &command_uring::KEPT);
}

/// The table is forgotten late, but before the child makes an object: one in the memory of an
/// object of the parent's would meet the locks that the parent's threads held.
#[test]
fn a_child_makes_no_object_in_the_memory_of_its_parents() {
    let _alone = alone();
    let fd = crate::epoll_create1(0).unwrap();
    let Some(set) = table::find::<FdSet>(fd) else { panic!("{fd} is a kernel epoll") };
    crate::close(fd).unwrap();
    fork_beside(
        |wait| set.set.between_scans(wait),
        || {
            // The copy of what another test may have there by now; and what is free below it.
            let _ = sys::close(fd);
            while crate::epoll_create1(0) != Ok(fd) {}
            table::find::<FdSet>(fd).is_some_and(|own| !core::ptr::eq(own, set))
        },
        "the child hangs, or uses its parent's memory",
    );
}

/// A handler may fork within a call on an object that is away, and the child return from it. Then
/// its end took a call of the child's own off the count, or made a huge number of none.
#[test]
fn a_child_ends_no_call_that_its_parent_began() {
    let _alone = alone();
    let fd = away::tests::eventfd(0, 0);
    away::tests::lend(fd, 1);
    let before = away::forks();
    assert_eq!(away::begin_call(fd), Begun::Counted);
    fork_beside(
        |wait| wait(),
        || {
            crate::close(fd).unwrap();
            while away::tests::eventfd(0, 0) != fd {}
            away::end_call(fd, before);
            away::tests::lend(fd, 1);
            let own = away::forks();
            let is_counted = away::begin_call(fd) == Begun::Counted;
            away::end_call(fd, before);
            away::tests::give_back(1);
            away::tests::write(fd, 1);
            let stays = away::is(fd);
            away::end_call(fd, own);
            away::tests::write(fd, 1);
            is_counted && stays && table::peek(fd).is_object() && away::tests::read(fd) == Ok(2)
        },
        "a call of the parent's ends in the child",
    );
    away::end_call(fd, before);
    crate::close(fd).unwrap();
}
