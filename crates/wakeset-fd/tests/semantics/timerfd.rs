//! Timers: timerfd_create(2) with its reads, alone and in sets.
//!
//! What a timer answers depends on the moment. So each answer is held against the two moments around the call: it has to be what is
//! right at some moment between them. A number of expirations or the time that is left is exact to the nanosecond in this way.

use crate::backend::{Errno, Kernel, RingedWith, Wakeset, check, number};
use crate::objects::{Counter, ET, EXCLUSIVE, Fd, IN, LONG, ONESHOT, OUT, Set, pipe};
use crate::task::Task;
use crate::{objects, signals};
use libc::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EBADF, EFAULT, EINTR, EINVAL, TFD_NONBLOCK,
    TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET, c_int, itimerspec, timespec,
};
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

/// What `f` gives, and the moments before and after.
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

    /// What it was set to: (value, interval).
    fn try_set(&self, flags: c_int, value: Duration, interval: Duration) -> Result<(Duration, Duration), Errno> {
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

    /// A read when something is there. The kernel's interrupt may be late.
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

/// Expirations of a timer set to `first` and `interval` until `now`.
fn expirations(first: Duration, interval: Duration, now: Duration) -> u64 {
    match now.checked_sub(first) {
        None => 0,
        Some(_) if interval == NONE => 1,
        Some(late) => (late.as_nanos() / interval.as_nanos()) as u64 + 1,
    }
}

fn a_timer_begins_disarmed<B: Backend>() {
    let timer = Timer::<B>::new();
    assert_eq!(timer.get(), (NONE, NONE));
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

fn a_timer_once_expires_once<B: Backend>() {
    let timer = Timer::<B>::new();
    let begun = now();
    timer.set(3 * MS, NONE);
    assert_eq!(timer.read(), 1);
    assert!(now() - begun >= 3 * MS, "early");
    assert_eq!(timer.get(), (NONE, NONE));
    sleep(5 * MS);
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

fn a_timer_counts_what_was_not_read<B: Backend>() {
    let timer = Timer::<B>::new();
    let (mut first, interval) = (now() + MS, Duration::from_micros(700));
    timer.set_at(first, interval);
    for pause in [9 * MS, NONE, 5 * MS] {
        sleep(pause);
        let (before, count, after) = around(|| timer.read());
        let (least, most) = (expirations(first, interval, before).max(1), expirations(first, interval, after));
        assert!((least..=most).contains(&count), "{count} is not in {least}..={most}");
        first += interval * count as u32;
    }
}

fn what_is_left_is_exact<B: Backend>() {
    let timer = Timer::<B>::new();
    let at = now() + HOUR;
    timer.set_at(at, 7 * MS);
    let (before, (left, interval), after) = around(|| timer.get());
    assert!(at - after <= left && left <= at - before, "{left:?}");
    assert_eq!(interval, 7 * MS);
    let (before, (), set) = around(|| timer.set(HOUR, NONE));
    let (asked, (left, interval), after) = around(|| timer.get());
    assert!(left + (asked - set) <= HOUR && left + (after - before) >= HOUR, "{left:?}");
    assert_eq!(interval, NONE);
}

fn setting_it_says_what_was_left<B: Backend>() {
    let timer = Timer::<B>::new();
    let at = now() + HOUR;
    assert_eq!(timer.try_set(TFD_TIMER_ABSTIME, at, 3 * MS), Ok((NONE, NONE)));
    let (before, old, after) = around(|| timer.try_set(0, 2 * HOUR, NONE).unwrap());
    assert!(at - after <= old.0 && old.0 <= at - before && old.1 == 3 * MS, "{old:?}");
    // Of an interval that has begun, what is left of it.
    let (first, interval) = (now(), 50 * MS);
    timer.set_at(first, interval);
    timer.read();
    timer.set_at(first, interval);
    sleep(2 * MS);
    let (before, old, after) = around(|| timer.try_set(0, NONE, NONE).unwrap());
    let next = |now: Duration| first + interval * expirations(first, interval, now) as u32;
    assert!(next(before) - after.min(next(before)) <= old.0 && old.0 <= interval, "{old:?}");
    assert_eq!(old.1, interval);
    // Once, expired and not read: nothing.
    timer.set_at(MS, NONE);
    sleep(MS);
    assert_eq!(timer.try_set(0, NONE, NONE), Ok((NONE, NONE)));
}

fn setting_it_drops_what_was_not_read<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set_at(MS, MS);
    sleep(MS);
    timer.set(HOUR, NONE);
    assert_eq!(timer.try_read(), Err(EAGAIN));
    timer.set_at(MS, NONE);
    sleep(MS);
    timer.set(NONE, NONE);
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

fn a_point_in_time_that_has_passed_expires_at_once<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set_at(Duration::from_nanos(1), NONE);
    assert_eq!(timer.read(), 1);
    let interval = Duration::from_secs(1);
    let first = Duration::from_nanos(1);
    timer.set_at(first, interval);
    let (before, count, after) = around(|| timer.read());
    assert!((expirations(first, interval, before)..=expirations(first, interval, after)).contains(&count));
}

fn no_value_disarms_it_and_keeps_the_interval<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set(MS, NONE);
    timer.set(NONE, 5 * MS);
    assert_eq!(timer.get(), (NONE, 5 * MS));
    sleep(8 * MS);
    assert_eq!(timer.try_read(), Err(EAGAIN));
    timer.set_at(NONE, 6 * MS);
    assert_eq!(timer.get(), (NONE, 6 * MS));
}

fn the_longest_times_are_taken<B: Backend>() {
    let timer = Timer::<B>::new();
    let longest = Duration::from_nanos(i64::MAX as u64);
    for (flags, value) in [(0, i64::MAX as u64), (TFD_TIMER_ABSTIME, i64::MAX as u64), (0, 9_223_372_036)] {
        let value = Duration::new(value, 999_999_999);
        let (before, set, after) = around(|| timer.try_set(flags, value, value));
        set.unwrap();
        let (_, (left, interval), later) = around(|| timer.get());
        assert_eq!(interval, longest);
        assert!(left <= longest - before && left + later >= longest, "{left:?} of {longest:?} at {after:?}");
    }
    let years = Duration::from_secs(200 * 365 * 24 * 3600);
    timer.set(years, years);
    let (left, interval) = timer.get();
    assert!(left <= years && left > years - HOUR && interval == years);
}

fn all_clocks_there_are<B: Backend>() {
    for clock_id in [CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME] {
        let timer = Timer::<B>::with(clock_id, TFD_NONBLOCK);
        timer.set(2 * MS, NONE);
        assert_eq!(timer.read(), 1);
        timer.set(MS, MS);
        assert!(timer.read() >= 1);
        let at = clock(clock_id) + HOUR;
        timer.set_at(at, MS);
        let (left, interval) = timer.get();
        assert!(left <= HOUR && left > HOUR - Duration::from_secs(100) && interval == MS, "{left:?}");
    }
}

fn a_point_in_real_time<B: Backend>() {
    let timer = Timer::<B>::with(CLOCK_REALTIME, TFD_NONBLOCK);
    timer.set(HOUR, NONE);
    let at = clock(CLOCK_REALTIME) + 3 * MS;
    let (old, _) = timer.try_set(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, at, NONE).unwrap();
    assert!(old <= HOUR && old > HOUR - Duration::from_secs(100));
    assert_eq!(timer.read(), 1);
    assert!(clock(CLOCK_REALTIME) >= at);
    // On other clocks, and without a point in time, the flag means nothing.
    let timer = Timer::<B>::new();
    timer.try_set(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, MS, NONE).unwrap();
    assert_eq!(timer.read(), 1);
    timer.try_set(TFD_TIMER_CANCEL_ON_SET, MS, NONE).unwrap();
    assert_eq!(timer.read(), 1);
}

fn unknown_arguments_are_refused<B: Backend>() {
    for clock in [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_TAI, -1, 99] {
        assert_eq!(B::timerfd_create(clock, 0), Err(EINVAL));
    }
    assert_eq!(B::timerfd_create(CLOCK_MONOTONIC, 1), Err(EINVAL));
    let timer = Timer::<B>::new();
    timer.set(HOUR, 3 * MS);
    assert_eq!(timer.try_set(4, MS, NONE), Err(EINVAL));
    assert_eq!(timer.try_set(-1, MS, NONE), Err(EINVAL));
    let (good, mut old) = (time(MS), spec(NONE, NONE));
    for wrong in [(0, -1), (0, 1_000_000_000), (-1, 0), (i64::MIN, 0)] {
        let wrong = timespec { tv_sec: wrong.0, tv_nsec: wrong.1 };
        for new in
            [itimerspec { it_value: wrong, it_interval: good }, itimerspec { it_value: good, it_interval: wrong }]
        {
            // SAFETY: valid places.
            let set = unsafe { B::timerfd_settime(timer.fd(), 0, &raw const new, &raw mut old) };
            assert_eq!(set, Err(EINVAL));
        }
    }
    assert!(timer.get().0 > MS, "as it was");
}

fn wrong_descriptors_are_refused<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let set = Set::<B>::new();
    let (reader, _writer) = pipe::<B>();
    let new = spec(MS, NONE);
    let mut old = spec(NONE, NONE);
    let mut calls = |fd: RawFd| {
        // SAFETY: valid places.
        unsafe {
            [
                B::timerfd_settime(fd, 0, &raw const new, &raw mut old),
                B::timerfd_gettime(fd, &raw mut old),
                B::timerfd_gettime(fd, ptr::null_mut()),
            ]
        }
    };
    for fd in [counter.as_raw_fd(), set.as_raw_fd(), reader.as_raw_fd()] {
        assert_eq!(calls(fd), [Err(EINVAL); 3]);
    }
    for fd in [-1, 1 << 30] {
        assert_eq!(calls(fd), [Err(EBADF); 3]);
    }
    let timer = Timer::<B>::new();
    // SAFETY: no event is needed to be refused; the set is no set.
    let add = unsafe {
        B::epoll_ctl(
            timer.fd(),
            libc::EPOLL_CTL_ADD,
            counter.as_raw_fd(),
            &mut libc::epoll_event { events: IN, u64: 0 },
        )
    };
    assert_eq!(add, Err(EINVAL));
}

fn bad_addresses_are_efault<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set(HOUR, NONE);
    let fd = timer.fd();
    for bad in [0, 8, 1 << 46, usize::MAX - 7, 1 << 63] {
        let bad = ptr::without_provenance_mut(bad);
        // SAFETY: bad addresses are what is asked about.
        unsafe {
            assert_eq!(B::timerfd_settime(fd, 0, bad, ptr::null_mut()), Err(EFAULT));
            assert_eq!(B::timerfd_settime(fd, 99, bad, ptr::null_mut()), Err(EFAULT), "before the flags");
            assert_eq!(B::timerfd_gettime(fd, bad), Err(EFAULT));
            assert_eq!(B::timerfd_settime(-1, 0, bad, ptr::null_mut()), Err(EFAULT), "before the number");
        }
    }
    assert!(timer.get().0 > MS, "as it was");
    timer.set_at(MS, NONE);
    sleep(MS);
    // SAFETY: as above.
    let read = unsafe { B::read(fd, ptr::without_provenance_mut(1 << 46), 8) };
    assert_eq!(read, Err(EFAULT));
    assert_eq!(timer.try_read(), Err(EAGAIN), "read all the same");
}

/// Half a number, where the rest of the buffer is not there: not so with an eventfd, and not before Linux 6.10.
fn a_read_gives_what_there_is_room_for<B: Backend>() {
    let timer = Timer::<B>::new();
    let len = 8192;
    // SAFETY: fresh memory, of which the second page is taken away.
    let pages = unsafe {
        let none = ptr::null_mut();
        let pages =
            libc::mmap(none, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE), 0);
        pages.cast::<u8>()
    };
    timer.set_at(MS, NONE);
    sleep(5 * MS);
    // SAFETY: two bytes are there, and the rest is what is asked about.
    let read = unsafe { B::read(timer.fd(), pages.add(4094), 8) };
    assert!(matches!(read, Ok(2) | Err(EFAULT)), "{read:?}");
    assert_eq!(timer.try_read(), Err(EAGAIN));
    // SAFETY: mapped above.
    unsafe { libc::munmap(pages.cast(), len) };
}

fn what_was_set_is_set_though_the_old_value_has_no_place<B: Backend>() {
    let timer = Timer::<B>::new();
    let new = spec(HOUR, MS);
    // SAFETY: a bad address is what is asked about.
    let set = unsafe { B::timerfd_settime(timer.fd(), 0, &raw const new, ptr::without_provenance_mut(8)) };
    assert_eq!(set, Err(EFAULT));
    let (left, interval) = timer.get();
    assert!(left > HOUR / 2 && interval == MS);
}

fn short_buffers_are_refused<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set_at(MS, NONE);
    sleep(MS);
    for len in [0, 1, 7] {
        assert_eq!(timer.0.read(&mut vec![0; len]), Err(EINVAL));
    }
    let mut long = [0xff; 16];
    assert_eq!(timer.0.read(&mut long), Ok(8));
    assert_eq!((long[0], long[8]), (1, 0xff));
}

fn a_write_is_refused<B: Backend>() {
    let timer = Timer::<B>::new();
    assert_eq!(timer.0.write(&[1; 8]), Err(EINVAL));
}

fn a_blocking_read_waits_for_expiry<B: Backend>() {
    let timer = Timer::<B>::blocking();
    let (first, interval) = (now() + 3 * MS, 2 * MS);
    timer.set_at(first, interval);
    assert!(timer.try_read().unwrap() >= 1);
    assert!(now() >= first);
    assert!(timer.try_read().unwrap() >= 1);
    assert!(now() >= first + interval);
}

fn a_blocking_read_hears_of_a_new_time<B: Backend>() {
    let timer = Timer::<B>::blocking();
    let reader = Task::start({
        let timer = timer.clone();
        move || timer.try_read()
    });
    reader.until_asleep();
    timer.set(HOUR, NONE);
    timer.set(2 * MS, NONE);
    assert_eq!(reader.join(), Ok(1));
}

fn a_signal_interrupts_a_read<B: Backend>() {
    let timer = Timer::<B>::blocking();
    timer.set(HOUR, NONE);
    signals::install();
    let task = Task::start(move || timer.try_read());
    while !task.has_ended() {
        task.signal(signals::PLAIN);
        sleep(MS);
    }
    assert_eq!(task.join(), Err(EINTR));
}

fn a_restarting_signal_does_not<B: Backend>() {
    let timer = Timer::<B>::blocking();
    timer.set(HOUR, NONE);
    signals::install();
    let reading = timer.clone();
    let task = Task::asleep(move || (reading.try_read(), signals::handled()));
    for _ in 0..20 {
        task.signal(signals::RESTARTING);
        task.until_asleep();
    }
    timer.set(MS, NONE);
    let (read, handled) = task.join();
    assert_eq!(read, Ok(1));
    assert!(handled > 0);
}

fn nonblocking_can_be_turned_on_and_off<B: Backend>() {
    let timer = Timer::<B>::new();
    B::set_nonblocking(timer.fd(), false).unwrap();
    timer.set(2 * MS, NONE);
    assert_eq!(timer.try_read(), Ok(1));
    let timer = Timer::<B>::blocking();
    B::set_nonblocking(timer.fd(), true).unwrap();
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

fn a_duplicate_is_the_same_timer<B: Backend>() {
    let timer = Timer::<B>::new();
    let other = timer.dup();
    other.set(MS, NONE);
    assert_eq!(timer.read(), 1);
    assert_eq!(other.try_read(), Err(EAGAIN));
}

/// What a timer was set to, what has expired and what is left come to the duplicate to the nanosecond.
fn a_duplicate_goes_on_where_the_first_was<B: Backend>() {
    for (first, interval) in [(MS, 3 * MS), (now() + HOUR, 5 * MS), (now() + 2 * MS, MS / 3), (now() - 5 * MS, MS)] {
        let timer = Timer::<B>::new();
        timer.set_at(first, interval);
        let other = timer.dup();
        let left = |timer: &Timer<B>| {
            let (before, (left, every), after) = around(|| timer.get());
            assert_eq!(every, interval);
            let next = |now: Duration| first + interval * u32::try_from(expirations(first, interval, now)).unwrap();
            let (soonest, latest) = (next(before).saturating_sub(after), next(after) - before);
            assert!(soonest <= left && left <= latest, "{left:?} is not in {soonest:?}..={latest:?}");
        };
        left(&other);
        if first < now() + HOUR / 2 {
            sleep(4 * MS);
            let (before, count, after) = around(|| timer.read());
            let (least, most) = (expirations(first, interval, before), expirations(first, interval, after));
            assert!((least..=most).contains(&count), "{count} is not in {least}..={most}");
        }
        left(&timer);
    }
}

fn a_duplicate_once_expired_is_ready_at_once<B: Backend>() {
    for (set, clock) in [(true, CLOCK_MONOTONIC), (false, CLOCK_MONOTONIC), (false, CLOCK_REALTIME)] {
        for _ in 0..20 {
            let timer = Timer::<B>::with(clock, TFD_NONBLOCK);
            match set {
                true => timer.set_at(MS, NONE),
                false => timer.set(Duration::from_nanos(1), NONE),
            }
            sleep(MS);
            let other = timer.dup();
            assert_eq!(other.try_read(), Ok(1));
            assert_eq!(timer.try_read(), Err(EAGAIN));
            assert_eq!(timer.get(), (NONE, NONE));
        }
    }
}

fn poll_sees_it<B: Backend>() {
    let timer = Timer::<B>::new();
    // A duplicate, so that the number is the kernel's: poll(2) is the interposer's to hook.
    let timer = timer.dup();
    let poll = |limit| {
        let mut entry = libc::pollfd { fd: timer.fd(), events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: one entry.
        assert!(unsafe { libc::poll(&raw mut entry, 1, limit) } >= 0);
        entry.revents
    };
    assert_eq!(poll(0), 0);
    timer.set(MS, NONE);
    assert_eq!(poll(LONG), libc::POLLIN);
}

fn watched<B: Backend>(events: u32) -> (Set<B>, Timer<B>) {
    let (set, timer) = (Set::new(), Timer::new());
    set.add(&timer, events, 7);
    (set, timer)
}

fn a_set_reports_it_at_its_time<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    assert_eq!(set.ready(), []);
    let at = now() + 4 * MS;
    timer.set_at(at, NONE);
    assert_eq!(set.next(), (7, IN));
    assert!(now() >= at);
    // Set before it is watched.
    let other = Timer::<B>::new();
    other.set(2 * MS, NONE);
    timer.read();
    set.add(&other, IN, 8);
    assert_eq!(set.next(), (8, IN));
    let third = Timer::<B>::new();
    third.set_at(MS, NONE);
    sleep(MS);
    other.read();
    set.add(&third, IN, 9);
    assert_eq!(set.ready(), [(9, IN)]);
}

fn a_level_stays_until_it_is_read<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    timer.set(MS, HOUR);
    assert_eq!(set.next(), (7, IN));
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(timer.read(), 1);
    assert_eq!(set.ready(), []);
    timer.set(MS, MS);
    for _ in 0..5 {
        assert_eq!(set.next(), (7, IN));
        timer.read();
    }
    timer.set(NONE, NONE);
    assert_eq!(set.ready(), []);
}

fn an_edge_for_each_expiry_after_a_read<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(MS, MS);
    assert_eq!(set.next(), (7, IN));
    assert_eq!(set.wait(8, 5), Ok(vec![]), "no further edge while it is not read");
    for _ in 0..3 {
        timer.read();
        assert_eq!(set.next(), (7, IN));
    }
}

fn looking_at_what_is_left_begins_the_next_edge<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(MS, 3 * MS);
    assert_eq!(set.next(), (7, IN));
    assert_eq!(set.wait(8, 8), Ok(vec![]));
    timer.get();
    assert_eq!(set.next(), (7, IN));
    assert!(timer.read() >= 2);
}

fn setting_it_anew_is_a_new_edge<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    for _ in 0..3 {
        timer.set_at(MS, NONE);
        assert_eq!(set.next(), (7, IN));
        assert_eq!(set.ready(), []);
    }
    timer.read();
    timer.set(MS, NONE);
    sleep(3 * MS);
    timer.set(HOUR, NONE);
    assert_eq!(set.ready(), [], "it expired, and was set anew before anybody looked");
}

fn oneshot_and_a_change_of_interest<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ONESHOT);
    timer.set(MS, MS);
    assert_eq!(set.next(), (7, IN));
    timer.read();
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    set.modify(&timer, IN | ONESHOT, 8);
    assert_eq!(set.next(), (8, IN));
    set.modify(&timer, IN | ET, 9);
    assert_eq!(set.next(), (9, IN), "what holds is reported");
    set.modify(&timer, 0, 10);
    timer.read();
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    set.modify(&timer, IN, 11);
    assert_eq!(set.next(), (11, IN));
    set.remove(&timer);
    assert_eq!(set.wait(8, 5), Ok(vec![]));
}

fn exclusive_watches<B: Backend>() {
    let sets = [Set::<B>::new(), Set::new()];
    let timer = Timer::<B>::new();
    timer.set(HOUR, NONE);
    for set in &sets {
        set.add(&timer, IN | ET | EXCLUSIVE, 7);
    }
    let waiters = sets.clone().map(|set| Task::start(move || set.wait(1, 300)));
    waiters.iter().for_each(Task::until_asleep);
    timer.set(MS, NONE);
    let got: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap().len()).collect();
    assert_eq!(got.iter().sum::<usize>(), 1, "{got:?}");
}

fn nothing_but_in_is_ever_reported<B: Backend>() {
    let (set, timer) = watched::<B>(OUT | objects::PRI | objects::RDNORM | objects::HUP);
    timer.set_at(MS, MS);
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    set.modify(&timer, !(ET | ONESHOT | EXCLUSIVE | objects::WAKEUP), 8);
    assert_eq!(set.next(), (8, IN));
}

fn a_sleeper_hears_of_a_time_set_later<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let waiter = Task::start(move || set.next());
    waiter.until_asleep();
    timer.set(2 * MS, NONE);
    assert_eq!(waiter.join(), (7, IN));
}

fn a_sleeper_hears_of_an_earlier_time<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let other = Timer::<B>::new();
    set.add(&other, IN, 8);
    timer.set(HOUR, NONE);
    other.set(2 * HOUR, NONE);
    let waiter = Task::start(move || set.next());
    waiter.until_asleep();
    other.set(2 * MS, NONE);
    assert_eq!(waiter.join(), (8, IN));
}

fn a_sleeper_outlives_a_disarmed_timer<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    timer.set(10 * MS, NONE);
    let waiter = Task::start(move || set.next());
    waiter.until_asleep();
    timer.set(NONE, NONE);
    sleep(15 * MS);
    let at = now() + MS;
    timer.set_at(at, NONE);
    assert_eq!(waiter.join(), (7, IN));
    assert!(now() >= at);
}

fn two_sleepers_take_one_expiry_each<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ONESHOT);
    let other = Timer::<B>::new();
    set.add(&other, IN | ONESHOT, 8);
    timer.set(15 * MS, NONE);
    let waiters = [0, 1].map(|_| {
        let set = set.clone();
        Task::start(move || set.next().0)
    });
    waiters.iter().for_each(Task::until_asleep);
    other.set(25 * MS, NONE);
    assert_eq!(waiters.map(Task::join).into_iter().sum::<u64>(), 7 + 8);
}

fn a_sleeper_that_leaves_takes_no_deadline_with_it<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    timer.set(30 * MS, NONE);
    let leaver = Task::start({
        let set = set.clone();
        move || set.wait(1, 10)
    });
    leaver.until_asleep();
    let stayer = Task::start(move || set.next());
    assert_eq!(leaver.join(), Ok(vec![]));
    assert_eq!(stayer.join(), (7, IN));
}

fn a_timer_in_two_sets_is_reported_in_both<B: Backend>() {
    for flags in [0, ET, ONESHOT] {
        let (set, timer) = watched::<B>(IN | flags);
        let other = Set::<B>::new();
        other.add(&timer, IN | flags, 8);
        timer.set(3 * MS, NONE);
        assert_eq!(other.ready(), []);
        let waiter = Task::start(move || set.next());
        assert_eq!(other.next(), (8, IN));
        assert_eq!(waiter.join(), (7, IN));
    }
}

fn a_timer_in_a_set_in_a_set<B: Backend>() {
    for flags in [0, ET] {
        let (inner, timer) = watched::<B>(IN);
        let (middle, outer) = (Set::<B>::new(), Set::<B>::new());
        middle.add(&inner, IN | flags, 1);
        outer.add(&middle, IN | flags, 2);
        timer.set(3 * MS, NONE);
        assert_eq!(outer.next(), (2, IN));
        assert_eq!(inner.ready(), [(7, IN)]);
        timer.read();
        assert_eq!(outer.ready(), []);
        let waiter = Task::start(move || outer.next());
        waiter.until_asleep();
        timer.set(2 * MS, NONE);
        assert_eq!(waiter.join(), (2, IN));
    }
}

fn a_timer_set_again_inside_is_one_edge_outside<B: Backend>() {
    let (inner, timer) = watched::<B>(IN);
    timer.set_at(MS, NONE);
    sleep(2 * MS);
    let outer = Set::<B>::new();
    outer.add(&inner, IN | ET, 1);
    timer.set_at(MS, NONE);
    sleep(5 * MS);
    assert_eq!(outer.next(), (1, IN));
    assert_eq!(outer.ready(), []);
}

/// Those set last are told first, as others are.
fn many_sets_hear_of_it_in_order<B: Backend>() {
    let set = Set::<B>::new();
    let timer = Timer::<B>::new();
    let inner: Vec<_> = (0..3)
        .map(|data| {
            let inner = Set::<B>::new();
            inner.add(&timer, IN, 9);
            set.add(&inner, IN, data);
            inner
        })
        .collect();
    set.add(&timer, IN, 3);
    timer.set_at(MS, NONE);
    sleep(5 * MS);
    assert_eq!(set.ready(), [(3, IN), (2, IN), (1, IN), (0, IN)]);
    drop(inner);
}

fn a_timer_beside_a_pipe<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let (reader, writer) = pipe::<B>();
    set.add(&reader, IN, 8);
    let at = now() + 3 * MS;
    timer.set_at(at, NONE);
    assert_eq!(set.next(), (7, IN));
    assert!(now() >= at);
    timer.read();
    timer.set(HOUR, NONE);
    writer.write(b"x").unwrap();
    assert_eq!(set.next(), (8, IN));
    timer.set_at(MS, NONE);
    sleep(MS);
    let mut both = set.ready();
    both.sort_unstable();
    assert_eq!(both, [(7, IN), (8, IN)]);
    let mut bytes = [0];
    reader.read(&mut bytes).unwrap();
    timer.read();
    // Longer than what the kernel may round up to.
    let at = now() + 60 * MS;
    timer.set_at(at, NONE);
    assert_eq!(set.wait_masked(None, None), Ok(vec![(7, IN)]));
    assert!(now() >= at);
}

fn a_timer_beside_a_counter_and_a_pipe_asleep<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let (reader, writer) = pipe::<B>();
    let counter = Counter::<B>::new(0);
    set.add(&reader, IN, 8);
    set.add(&counter, IN, 9);
    for round in 0..3 {
        let waiter = Task::start({
            let set = set.clone();
            move || set.next()
        });
        waiter.until_asleep();
        match round {
            0 => timer.set(2 * MS, NONE),
            1 => counter.write(1),
            _ => drop(writer.write(b"x").unwrap()),
        }
        assert_eq!(waiter.join(), ([7, 9, 8][round], IN));
        let _ = timer.try_read();
        let _ = counter.try_read();
    }
}

fn a_wait_is_over_in_time_beside_a_later_timer<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let (reader, _writer) = pipe::<B>();
    for mixed in [false, true] {
        if mixed {
            set.add(&reader, IN, 8);
        }
        timer.set(HOUR, NONE);
        let begun = now();
        assert_eq!(set.wait(1, 3), Ok(vec![]));
        assert!(now() - begun >= 3 * MS);
        // A timer that comes to nothing does not end the wait.
        timer.set(2 * MS, NONE);
        let waiter = Task::start({
            let set = set.clone();
            move || {
                let begun = now();
                (set.wait(1, 20), now() - begun)
            }
        });
        timer.set(HOUR, NONE);
        let (got, took) = waiter.join();
        assert!(got == Ok(vec![]) && took >= 20 * MS || got == Ok(vec![(7, IN)]), "{got:?} after {took:?}");
    }
}

fn a_closed_timer_is_forgotten<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    timer.set(MS, NONE);
    drop(timer);
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    // Under the same number, most likely.
    let timer = Timer::<B>::new();
    assert_eq!(timer.get(), (NONE, NONE));
    set.add(&timer, IN, 8);
    timer.set(MS, NONE);
    assert_eq!(set.next(), (8, IN));
}

fn timers_that_move_while_somebody_sleeps<B: Backend>() {
    for moved in 0..3 {
        let (set, timer) = watched::<B>(IN);
        let other = Timer::<B>::new();
        set.add(&other, IN, 8);
        timer.set(25 * MS, 30 * MS);
        other.set(HOUR, NONE);
        let waiter = Task::start({
            let set = set.clone();
            move || set.next()
        });
        waiter.until_asleep();
        let copies: Vec<_> = [timer.dup(), other.dup()].into_iter().take(moved).collect();
        assert_eq!(waiter.join(), (7, IN));
        assert_eq!(timer.read(), 1);
        other.set(2 * MS, NONE);
        assert_eq!(set.next(), (8, IN));
        drop(copies);
    }
}

/// An edge that is to come is not lost with the move; one that has been reported may come again.
fn edges_that_move<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(MS, NONE);
    sleep(3 * MS);
    let copy = timer.dup();
    assert_eq!(set.next(), (7, IN), "expired before it moved, and not reported");
    assert_eq!(copy.read(), 1);
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(4 * MS, 4 * MS);
    let copy = timer.dup();
    for _ in 0..3 {
        assert_eq!(set.next(), (7, IN));
        copy.read();
    }
}

/// Sets, reads, looks, duplicates and waits, in random order, against what the clock says.
fn random_programs_answer_as_the_clock_says<B: Backend>() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    for _ in 0..40 {
        let set = Set::<B>::new();
        let timer = Timer::<B>::new();
        set.add(&timer, IN, 7);
        let mut copies = Vec::new();
        // When it expires first, not counting what was read; NONE for never.
        let (mut first, mut interval) = (NONE, NONE);
        for _ in 0..25 {
            match next(7) {
                0 | 1 => {
                    let value = Duration::from_nanos(next(4_000_000));
                    let every = Duration::from_nanos([0, 1 + next(100), 1 + next(3_000_000)][next(3) as usize]);
                    let at = if next(5) == 0 { NONE } else { now() + value - Duration::from_nanos(next(3_000_000)) };
                    let (before, old, after) =
                        around(|| timer.try_set(TFD_TIMER_ABSTIME, at, every).expect("timerfd_settime"));
                    check_left(first, interval, before, old, after);
                    (first, interval) = (at, every);
                }
                2 => {
                    let (before, left, after) = around(|| timer.get());
                    check_left(first, interval, before, left, after);
                }
                3 | 4 => {
                    let (before, read, after) = around(|| timer.try_read());
                    let count = |now| if first == NONE { 0 } else { expirations(first, interval, now) };
                    match read {
                        Ok(read) => {
                            assert!((count(before).max(1)..=count(after)).contains(&read), "{read}");
                            first =
                                if interval == NONE { NONE } else { first + interval * u32::try_from(read).unwrap() };
                        }
                        // The kernel's interrupt may be late, but it comes.
                        Err(EAGAIN) if count(before) > 0 => assert_eq!(set.next(), (7, IN)),
                        Err(error) => assert_eq!(error, EAGAIN),
                    }
                }
                5 if copies.is_empty() && next(4) == 0 => copies.push(timer.dup()),
                5 => sleep(Duration::from_nanos(next(1_000_000))),
                _ => {
                    let (before, got, after) = around(|| set.wait(1, next(3) as c_int).expect("epoll_wait"));
                    let expired = |now| first != NONE && first <= now;
                    if !got.is_empty() {
                        assert!(expired(after), "early");
                    } else if expired(before) {
                        assert_eq!(set.next(), (7, IN));
                    }
                }
            }
        }
    }
}

#[track_caller]
fn check_left(first: Duration, interval: Duration, before: Duration, got: (Duration, Duration), after: Duration) {
    assert_eq!(got.1, interval);
    let left = |now: Duration| match (first, expirations(first, interval, now)) {
        (NONE, _) => NONE,
        (first, 0) => first - now,
        (_, _) if interval == NONE => NONE,
        (first, n) => {
            let next = first.as_nanos() + interval.as_nanos() * u128::from(n);
            Duration::from_nanos(u64::try_from(next).unwrap()) - now
        }
    };
    if expirations(first, interval, before) == expirations(first, interval, after) {
        assert!(
            left(after) <= got.0 && got.0 <= left(before),
            "{:?} is not in {:?}..={:?}",
            got.0,
            left(after),
            left(before)
        );
    } else {
        assert!(got.0 <= left(before).max(interval), "{:?}", got.0);
    }
}
