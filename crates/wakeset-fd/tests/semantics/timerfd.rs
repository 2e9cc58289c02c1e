//! Timers: timerfd_create(2) with its reads, alone and in sets.
//!
//! What a call on a timer returns depends on the moment. So the tests take the time before and
//! after the call, and what it returns has to be right for some moment between the two. In this way
//! a number of expirations or the time that is left is checked to the nanosecond.

mod errors;
mod migration;
mod random_programs;
mod reading;
mod reports;
mod setting;
mod sleepers;

use crate::backend::{Errno, Kernel, RingedWith, Wakeset, check, number};
use crate::objects::{Counter, ET, EXCLUSIVE, Fd, IN, LONG, ONESHOT, OUT, RDNORM, Set, pipe};
use crate::task::Task;
use crate::{objects, signals};
use errors::*;
use libc::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EBADF, EFAULT, EINTR, EINVAL,
    TFD_NONBLOCK, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET, c_int, itimerspec, timespec,
};
use migration::*;
use random_programs::*;
use reading::*;
use reports::*;
use setting::*;
use sleepers::*;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::thread::sleep;
use std::time::Duration;

on_both!(
    a_timer_begins_disarmed,
    a_timer_once_expires_once,
    a_timer_counts_what_was_not_read,
    what_is_left_is_exact,
    setting_it_says_what_was_left,
    setting_it_drops_what_was_not_read,
    a_point_in_time_that_has_passed_expires_at_once,
    no_value_disarms_it_and_keeps_the_interval,
    the_longest_times_are_taken,
    all_clocks_there_are,
    a_point_in_real_time,
    unknown_arguments_are_refused,
    wrong_descriptors_are_refused,
    bad_addresses_are_efault,
    a_read_gives_what_there_is_room_for,
    what_was_set_is_set_though_the_old_value_has_no_place,
    short_buffers_are_refused,
    a_write_is_refused,
    a_blocking_read_waits_for_expiry,
    a_blocking_read_hears_of_a_new_time,
    a_signal_interrupts_a_read,
    a_restarting_signal_does_not,
    nonblocking_can_be_turned_on_and_off,
    a_duplicate_is_the_same_timer,
    a_duplicate_goes_on_where_the_first_was,
    a_duplicate_once_expired_is_ready_at_once,
    poll_sees_it,
    a_set_reports_it_at_its_time,
    a_level_stays_until_it_is_read,
    an_edge_for_each_expiry_after_a_read,
    looking_at_what_is_left_begins_the_next_edge,
    setting_it_anew_is_a_new_edge,
    oneshot_and_a_change_of_interest,
    exclusive_watches,
    nothing_but_in_is_ever_reported,
    a_sleeper_hears_of_a_time_set_later,
    a_sleeper_hears_of_an_earlier_time,
    a_sleeper_outlives_a_disarmed_timer,
    two_sleepers_take_one_expiry_each,
    a_sleeper_that_leaves_takes_no_deadline_with_it,
    a_timer_in_two_sets_is_reported_in_both,
    a_timer_in_a_set_in_a_set,
    a_timer_set_again_inside_is_one_edge_outside,
    a_timer_added_inside_is_no_edge_outside,
    a_timer_inside_is_in_and_not_rdnorm,
    a_listed_timer_set_later_is_heard_of_outside,
    many_sets_hear_of_it_in_order,
    a_timer_beside_a_pipe,
    a_timer_beside_a_counter_and_a_pipe_asleep,
    a_wait_is_over_in_time_beside_a_later_timer,
    a_closed_timer_is_forgotten,
    timers_that_move_while_somebody_sleeps,
    edges_that_move,
    random_programs_answer_as_the_clock_says,
);

const MS: Duration = Duration::from_millis(1);
const NONE: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);

/// The calls of timerfd_create(2).
///
/// # Safety of the unsafe ones
/// As for [`Backend`](crate::backend::Backend).
trait Backend: crate::backend::Backend {
    fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno>;
    unsafe fn timerfd_settime(
        fd: c_int,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> Result<(), Errno>;
    unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno>;
}

impl Backend for Kernel {
    fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::timerfd_create(clock, flags) })
    }

    unsafe fn timerfd_settime(
        fd: c_int,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        check(unsafe { libc::timerfd_settime(fd, flags, new, old) }).map(drop)
    }

    unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        check(unsafe { libc::timerfd_gettime(fd, current) }).map(drop)
    }
}

impl Backend for Wakeset {
    fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
        crate::faults::recover();
        number(wakeset_fd::timerfd_create(clock, flags))
    }

    unsafe fn timerfd_settime(
        fd: c_int,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        number(unsafe { wakeset_fd::timerfd_settime(fd, flags, new, old) })
    }

    unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        number(unsafe { wakeset_fd::timerfd_gettime(fd, current) })
    }
}

impl<const FLAGS: libc::c_int> Backend for RingedWith<FLAGS> {
    fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
        <Wakeset as Backend>::timerfd_create(clock, flags)
    }

    unsafe fn timerfd_settime(
        fd: c_int,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { <Wakeset as Backend>::timerfd_settime(fd, flags, new, old) }
    }

    unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { <Wakeset as Backend>::timerfd_gettime(fd, current) }
    }
}

/// A timerfd.
struct Timer<B: Backend>(Fd<B>);

impl<B: Backend> Clone for Timer<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> objects::Descriptor<B> for Timer<B> {
    fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn time(time: Duration) -> timespec {
    timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

fn duration(time: timespec) -> Duration {
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn spec(value: Duration, interval: Duration) -> itimerspec {
    itimerspec { it_value: time(value), it_interval: time(interval) }
}

fn clock(clock: c_int) -> Duration {
    let mut now = time(NONE);
    // SAFETY: a valid place.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut now) }, 0);
    duration(now)
}

fn now() -> Duration {
    clock(CLOCK_MONOTONIC)
}

/// The result of `f`, between the moments before and after it.
fn around<T>(f: impl FnOnce() -> T) -> (Duration, T, Duration) {
    let before = now();
    let result = f();
    (before, result, now())
}

impl<B: Backend> Timer<B> {
    fn new() -> Self {
        Self::with(CLOCK_MONOTONIC, TFD_NONBLOCK)
    }

    fn blocking() -> Self {
        Self::with(CLOCK_MONOTONIC, 0)
    }

    fn with(clock: c_int, flags: c_int) -> Self {
        Self(Fd::own(B::timerfd_create(clock, flags | libc::TFD_CLOEXEC).unwrap()))
    }

    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn dup(&self) -> Self {
        Self(self.0.dup())
    }

    fn migrated_dup(&self) -> Self {
        Self(self.0.migrated_dup())
    }

    /// What it was set to: (value, interval).
    fn try_set(
        &self,
        flags: c_int,
        value: Duration,
        interval: Duration,
    ) -> Result<(Duration, Duration), Errno> {
        let (new, mut old) = (spec(value, interval), spec(NONE, NONE));
        // SAFETY: valid places.
        unsafe { B::timerfd_settime(self.fd(), flags, &raw const new, &raw mut old) }?;
        Ok((duration(old.it_value), duration(old.it_interval)))
    }

    #[track_caller]
    fn set(&self, value: Duration, interval: Duration) {
        self.try_set(0, value, interval).expect("timerfd_settime");
    }

    #[track_caller]
    fn set_at(&self, at: Duration, interval: Duration) {
        self.try_set(TFD_TIMER_ABSTIME, at, interval).expect("timerfd_settime");
    }

    fn try_get(&self) -> Result<(Duration, Duration), Errno> {
        let mut current = spec(NONE, NONE);
        // SAFETY: a valid place.
        unsafe { B::timerfd_gettime(self.fd(), &raw mut current) }?;
        Ok((duration(current.it_value), duration(current.it_interval)))
    }

    #[track_caller]
    fn get(&self) -> (Duration, Duration) {
        self.try_get().expect("timerfd_gettime")
    }

    fn try_read(&self) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        match self.0.read(&mut bytes)? {
            8 => Ok(u64::from_ne_bytes(bytes)),
            len => panic!("read {len} bytes"),
        }
    }

    /// A read that waits until there is something to read. The kernel's interrupt may be late.
    #[track_caller]
    fn read(&self) -> u64 {
        for _ in 0..LONG {
            match self.try_read() {
                Err(EAGAIN) => sleep(MS),
                done => return done.expect("read"),
            }
        }
        panic!("no expiration");
    }
}

/// How often a timer that was set to `first` and `interval` has expired by `now`.
fn expirations(first: Duration, interval: Duration, now: Duration) -> u64 {
    match now.checked_sub(first) {
        None => 0,
        Some(_) if interval == NONE => 1,
        Some(late) => (late.as_nanos() / interval.as_nanos()) as u64 + 1,
    }
}
