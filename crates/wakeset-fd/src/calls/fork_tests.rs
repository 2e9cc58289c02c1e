//! A fork beside a thread that holds the lock of the kept io_urings of either kind.

use super::fork;
use crate::kernel_half::uring::command_uring;
use crate::kernel_half::uring::thread_rings::{ThreadRing, ThreadRings};
use crate::set::polls;
use crate::table::alone::alone;
use crate::table::lifecycle::{self, Participant};
use core::ffi::c_int;
use std::sync::Barrier;
extern crate std;

/// Forks while another thread holds the lock of `rings`, and fails if the child finds it taken.
fn fork_beside_a_holder<R: ThreadRing, const N: usize>(
    participant: &'static Participant,
    rings: &'static ThreadRings<R, N>,
) {
    // As a thread that has an io_uring to keep.
    lifecycle::sign_up(participant);
    let _alone = alone();
    let (held, forked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rings.with(|_| {
                held.wait();
                forked.wait();
            });
        });
        held.wait();
        let forking = fork::prepare();
        // SAFETY: the child makes system calls, and tries a lock.
        let child = unsafe { libc::fork() };
        if child == 0 {
            forking.in_child();
            let free = rings.lock.try_lock();
            // SAFETY: ends this process.
            unsafe { libc::_exit(c_int::from(!free)) };
        }
        forking.in_parent();
        forked.wait();
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: memory for the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the lock is taken");
    });
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
