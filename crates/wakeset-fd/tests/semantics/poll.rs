//! poll(2), ppoll(2), select(2) and pselect(2), on objects of every kind, alone and together with
//! descriptors of the kernel.

mod closing;
mod ends;
mod reports;
mod select;
mod threads;

use crate::backend::{Errno, Kernel, KernelSigset, RingedWith, Streams, Wakeset, check};
use crate::objects::{Counter, IN, Pipe, Set, own_pair, pipe};
use crate::signals;
use crate::task::Task;
use closing::*;
use ends::*;
use libc::{
    EBADF, EFAULT, EINTR, EINVAL, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDNORM,
    POLLWRNORM, c_int, fd_set, itimerspec, nfds_t, pollfd, sigset_t, timespec,
};
use reports::*;
use select::*;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use threads::*;

on_both!(
    says_what_holds_and_was_asked_for,
    passes_over_negative_numbers,
    takes_a_number_twice,
    says_that_a_number_is_closed,
    says_that_an_end_is_hung_up,
    says_that_a_timer_has_expired,
    says_that_a_set_is_ready,
    looks_at_both_halves_of_a_set,
    tells_of_objects_and_the_kernels_in_one_call,
    takes_long_arrays,
    tells_of_an_object_among_many_of_the_kernels,
    refuses_more_than_there_may_be,
    takes_as_many_as_there_may_be,
    needs_its_memory,
    tells_what_it_has_memory_for,
    a_write_ends_it,
    a_write_to_a_pipe_ends_it,
    the_kernels_end_it_too,
    what_is_ready_is_told_after_calls_that_slept,
    an_expiry_ends_it,
    a_timer_set_meanwhile_ends_it,
    a_set_ends_it,
    a_set_that_gets_the_kernels_ends_it,
    the_time_ends_it_and_not_too_early,
    a_signal_ends_it,
    what_came_before_a_signal_goes_first,
    a_mask_lets_a_signal_in,
    a_mask_lets_a_signal_in_at_any_time,
    a_mask_keeps_a_signal_out,
    every_poller_is_told,
    nobody_is_told_of_what_was_not_asked_for,
    goes_on_when_the_object_moves,
    goes_on_when_another_object_moves,
    finds_at_the_end_that_a_number_was_closed,
    finds_at_the_end_what_the_number_is_now,
    a_select_leaves_what_is_ready,
    a_select_counts_bits,
    a_select_passes_over_what_is_beyond,
    a_select_leaves_what_is_beyond_to_the_kernel,
    a_select_refuses_closed_numbers,
    a_select_asks_the_kernel_of_the_rest,
    a_select_ends_with_a_write,
    a_select_ends_with_the_kernels,
    a_select_that_a_signal_ends_leaves_the_sets,
    a_select_that_ends_by_time_empties_the_sets,
    nothing_is_lost_between_pollers,
    nothing_is_lost_while_objects_move,
);

const MS: Duration = Duration::from_millis(1);
/// So long that reaching it means that the test has failed.
const LONG: Option<Duration> = Some(Duration::from_secs(30));
const NOW: Option<Duration> = Some(Duration::ZERO);

/// The calls of poll(2), select(2) and timerfd_create(2).
///
/// # Safety of the unsafe ones
/// As for [`Backend`](crate::backend::Backend).
trait Polls: Streams {
    unsafe fn ppoll(
        fds: *mut pollfd,
        n: nfds_t,
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno>;
    unsafe fn pselect(
        n: c_int,
        sets: [*mut fd_set; 3],
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno>;
    /// A timer that expires once, after so long.
    fn timer(after: Duration) -> RawFd;
    fn set_timer(timer: RawFd, after: Duration);
}

/// glibc's sigset_t begins with the kernel's, and is longer.
fn long_mask(mask: *const KernelSigset) -> Option<[u64; size_of::<sigset_t>() / 8]> {
    let mut long = [0; size_of::<sigset_t>() / 8];
    // SAFETY: null, or a mask.
    long[0] = *unsafe { mask.as_ref() }?;
    Some(long)
}

fn once(after: Duration) -> itimerspec {
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    let value =
        timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
    itimerspec { it_interval: none, it_value: value }
}

impl Polls for Kernel {
    unsafe fn ppoll(
        fds: *mut pollfd,
        n: nfds_t,
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        let mask = long_mask(mask);
        let mask = mask.as_ref().map_or(ptr::null(), |mask| mask.as_ptr().cast());
        // SAFETY: the caller's contract.
        check(unsafe { libc::ppoll(fds, n, limit, mask) })
    }

    unsafe fn pselect(
        n: c_int,
        [read, write, except]: [*mut fd_set; 3],
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        let mask = long_mask(mask);
        let mask = mask.as_ref().map_or(ptr::null(), |mask| mask.as_ptr().cast());
        // SAFETY: the caller's contract.
        check(unsafe { libc::pselect(n, read, write, except, limit, mask) })
    }

    fn timer(after: Duration) -> RawFd {
        // SAFETY: no pointer is passed.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK) };
        Self::set_timer(timer, after);
        timer
    }

    fn set_timer(timer: RawFd, after: Duration) {
        // SAFETY: a valid time.
        let set = unsafe { libc::timerfd_settime(timer, 0, &once(after), ptr::null_mut()) };
        assert_eq!(set, 0);
    }
}

impl Polls for Wakeset {
    unsafe fn ppoll(
        fds: *mut pollfd,
        n: nfds_t,
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        // SAFETY: the caller's contract.
        crate::backend::number(unsafe { wakeset_fd::ppoll(fds, n, limit, mask.cast()) })
    }

    unsafe fn pselect(
        n: c_int,
        sets: [*mut fd_set; 3],
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        // SAFETY: the caller's contract.
        crate::backend::number(unsafe { wakeset_fd::pselect(n, sets, limit, mask.cast()) })
    }

    fn timer(after: Duration) -> RawFd {
        let clock = libc::CLOCK_MONOTONIC;
        let timer = wakeset_fd::timerfd_create(clock, libc::TFD_NONBLOCK).unwrap();
        Self::set_timer(timer, after);
        timer
    }

    fn set_timer(timer: RawFd, after: Duration) {
        // SAFETY: a valid time.
        let set = unsafe { wakeset_fd::timerfd_settime(timer, 0, &once(after), ptr::null_mut()) };
        set.unwrap();
    }
}

impl<const FLAGS: c_int> Polls for RingedWith<FLAGS> {
    unsafe fn ppoll(
        fds: *mut pollfd,
        n: nfds_t,
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        // SAFETY: the caller's contract.
        unsafe { Wakeset::ppoll(fds, n, limit, mask) }
    }

    unsafe fn pselect(
        n: c_int,
        sets: [*mut fd_set; 3],
        limit: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        // SAFETY: the caller's contract.
        unsafe { Wakeset::pselect(n, sets, limit, mask) }
    }

    fn timer(after: Duration) -> RawFd {
        Wakeset::timer(after)
    }

    fn set_timer(timer: RawFd, after: Duration) {
        Wakeset::set_timer(timer, after);
    }
}

fn timespec_of(limit: Duration) -> timespec {
    timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) }
}

/// ppoll(2) of numbers with what is asked of each: how many are ready, or an errno, and what each
/// is told.
fn poll_masked<B: Polls>(
    asked: &[(RawFd, i16)],
    limit: Option<Duration>,
    mask: Option<u64>,
) -> (Result<c_int, Errno>, Vec<i16>) {
    let mut entries: Vec<_> =
        asked.iter().map(|&(fd, events)| pollfd { fd, events, revents: -1 }).collect();
    let limit = limit.map(timespec_of);
    let result = {
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mask = mask.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: so many entries, and a time and a mask or null.
        unsafe { B::ppoll(entries.as_mut_ptr(), entries.len() as nfds_t, limit, mask) }
    };
    (result, entries.iter().map(|entry| entry.revents).collect())
}

fn poll<B: Polls>(
    asked: &[(RawFd, i16)],
    limit: Option<Duration>,
) -> (Result<c_int, Errno>, Vec<i16>) {
    poll_masked::<B>(asked, limit, None)
}

/// What is told now.
#[track_caller]
fn now<B: Polls>(asked: &[(RawFd, i16)]) -> Vec<i16> {
    let (result, told) = poll::<B>(asked, NOW);
    let ready = told.iter().filter(|told| **told != 0).count();
    assert_eq!(result, Ok(ready as c_int));
    told
}

/// A poll on another thread, which sleeps.
fn polling<B: Polls>(
    asked: &[(RawFd, i16)],
    limit: Option<Duration>,
) -> Task<(Result<c_int, Errno>, Vec<i16>)> {
    let asked = asked.to_vec();
    Task::asleep(move || poll::<B>(&asked, limit))
}

/// A pipe of this side's.
fn own_pipe<B: Polls>() -> Pipe<B> {
    own_pair(B::pipe2(libc::O_CLOEXEC | libc::O_NONBLOCK))
}
