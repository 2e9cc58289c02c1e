//! Timers that go away and come home, for children that are not there.

use super::{left_after_read, slot};
use crate::objects::timer::FdTimer;
use crate::objects::timer::home::known;
use crate::objects::timer::setting::time_of;
use crate::sys::{self, Errno};
use crate::table::alone::alone;
use crate::table::away::tests::{give_back, lend};
use crate::table::{self, Using, away};
use core::ffi::c_int;
use core::ptr;
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EPOLL_CTL_ADD, EPOLLET, EPOLLIN, TFD_CLOEXEC, TFD_NONBLOCK,
    TFD_TIMER_ABSTIME, epoll_event, itimerspec,
};
extern crate std;
use core::time::Duration;
use wakeset::{Deadline, Expiry};

/// What no child has here, because no test makes so many.
const CHILD: u32 = 1 << 29;

const MILLISECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MILLISECOND;

fn timer() -> c_int {
    let fd = crate::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK).unwrap();
    assert!(is_here(fd));
    fd
}

fn is_here(fd: c_int) -> bool {
    table::peek(fd).is_object()
}

fn is_away(fd: c_int) -> bool {
    !is_here(fd) && away::is(fd)
}

fn spec(value: u64, interval: u64) -> itimerspec {
    itimerspec { it_value: time_of(value), it_interval: time_of(interval) }
}

fn nanos(spec: &itimerspec) -> [u64; 2] {
    [spec.it_value, spec.it_interval].map(|t| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// What it was set to: the time left, and the interval.
fn set(fd: c_int, flags: c_int, value: u64, interval: u64) -> [u64; 2] {
    let (new, mut old) = (spec(value, interval), spec(0, 0));
    // SAFETY: both are there.
    unsafe { crate::timerfd_settime(fd, flags, &raw const new, &raw mut old) }.unwrap();
    nanos(&old)
}

fn get(fd: c_int) -> [u64; 2] {
    let mut found = spec(0, 0);
    // SAFETY: it is there.
    unsafe { crate::timerfd_gettime(fd, &raw mut found) }.unwrap();
    nanos(&found)
}

fn read(fd: c_int) -> Result<u64, Errno> {
    let mut value = 0_u64;
    // SAFETY: eight bytes.
    unsafe { crate::read(fd, (&raw mut value).cast(), 8) }.map(|_| value)
}

/// As a child reads.
fn read_in_kernel(fd: c_int) -> Result<usize, Errno> {
    sys::read(fd, [0_u8; 8].as_mut_ptr(), 8)
}

fn now() -> u64 {
    Deadline::now().since_boot().as_nanos() as u64
}

fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

fn go_and_be_free(fd: c_int) {
    lend(fd, CHILD);
    give_back(CHILD);
}

fn watched(fd: c_int, events: c_int) -> c_int {
    let set = crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
    let event = epoll_event { events: events as u32, u64: 7 };
    // SAFETY: a valid event.
    unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }.unwrap();
    set
}

fn wait(set: c_int, milliseconds: c_int) -> c_int {
    let mut found = epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one.
    unsafe { crate::epoll_wait(set, &raw mut found, 1, milliseconds) }.unwrap()
}

fn close(fds: &[c_int]) {
    fds.iter().for_each(|fd| crate::close(*fd).unwrap());
}

/// Looks at a timer that has left soon after a return until it has come home.
fn come_by_looks(fd: c_int, found: [u64; 2]) {
    while !is_here(fd) {
        assert!(away::is(fd));
        assert_eq!(get(fd), found);
    }
}

fn is_about(left: u64, whole: u64) -> bool {
    left <= whole && left + HOUR / 100 > whole
}

/// It was taken for one that had been set, of which a look does not tell.
#[test]
fn a_setting_that_is_refused_leaves_no_trace() {
    let _alone = alone();
    let fd = timer();
    set(fd, 0, HOUR, 0);
    go_and_be_free(fd);
    let mut odd = spec(1, 0);
    odd.it_value.tv_nsec = -1;
    for (flags, new) in [(0, odd), (1 << 20, spec(1, 0))] {
        // SAFETY: it is there.
        let refused = unsafe { crate::timerfd_settime(fd, flags, &raw const new, ptr::null_mut()) };
        assert_eq!(refused, Err(Errno::EINVAL));
    }
    assert!(is_away(fd) && is_about(get(fd)[0], HOUR) && is_here(fd));
    close(&[fd]);
}

#[test]
fn a_timer_comes_home_when_it_is_set() {
    let _alone = alone();
    for events in [0, EPOLLIN, EPOLLIN | EPOLLET] {
        let fd = timer();
        let watcher = (events != 0).then(|| watched(fd, events));
        set(fd, 0, HOUR, 0);
        lend(fd, CHILD);
        let before = set(fd, 0, 2 * HOUR, 3 * HOUR);
        assert!(is_about(before[0], HOUR) && before[1] == 0, "{before:?}");
        assert!(is_away(fd), "a child has it");
        give_back(CHILD);
        // What it is set to at home has expired, and is reported once.
        let before = set(fd, TFD_TIMER_ABSTIME, 1, 0);
        assert!(is_here(fd) && is_about(before[0], 2 * HOUR) && before[1] == 3 * HOUR);
        if let Some(set) = watcher {
            assert_eq!([wait(set, 0), wait(set, 0)], [1, i32::from(events & EPOLLET == 0)]);
        }
        assert_eq!((read(fd), read(fd)), (Ok(1), Err(Errno::EAGAIN)));
        assert_eq!(get(fd), [0, 0]);
        close(&[fd]);
        watcher.inspect(|set| close(&[*set]));
    }
}

/// An expiration that was not read is gone, as always when a timer is set.
#[test]
fn what_has_expired_does_not_come_home_with_a_new_time() {
    let _alone = alone();
    for events in [EPOLLIN, EPOLLIN | EPOLLET] {
        let fd = timer();
        let watcher = watched(fd, events);
        set(fd, TFD_TIMER_ABSTIME, 1, 0);
        go_and_be_free(fd);
        assert_eq!(set(fd, 0, HOUR, 0), [0, 0]);
        assert!(is_here(fd));
        assert_eq!((wait(watcher, 0), read(fd)), (0, Err(Errno::EAGAIN)));
        assert_eq!(set(fd, 0, 0, 0)[1], 0);
        close(&[fd, watcher]);
    }
}

/// Each expiration is read once, and their times stay what they were.
#[test]
fn a_periodic_timer_comes_home_when_it_is_read() {
    const INTERVAL: u64 = 2 * MILLISECOND;
    let _alone = alone();
    for events in [0, EPOLLIN, EPOLLIN | EPOLLET] {
        let fd = timer();
        let watcher = (events != 0).then(|| watched(fd, events));
        let first = now() + INTERVAL;
        set(fd, TFD_TIMER_ABSTIME, first, INTERVAL);
        let (mut sum, mut returns) = (0, 0);
        while returns < 5 {
            lend(fd, CHILD);
            sleep(5);
            sum += read(fd).unwrap_or(0);
            assert!(is_away(fd), "a child has it");
            give_back(CHILD);
            for _ in 0..50_000 {
                if watcher.is_some_and(|set| wait(set, 1) == 0) {
                    continue;
                }
                sum += read(fd).unwrap_or(0);
                if is_here(fd) {
                    break;
                }
            }
            assert!(is_here(fd), "it comes home each time");
            returns += 1;
            let (begun, [left, interval], ended) = (now(), get(fd), now());
            if is_here(fd) {
                assert_eq!(interval, INTERVAL);
                let next = first + (begun + left - first).next_multiple_of(INTERVAL);
                assert!(next <= ended + left, "another time: {begun} {left} {ended}, {first}");
            } else {
                // It has expired since, and gettime(2) of such a timer is the kernel's for good.
                break;
            }
        }
        let (begun, last, ended) = (now(), read(fd).unwrap_or(0), now());
        sum += last;
        let expired = [begun, ended].map(|now| (now - first) / INTERVAL + 1);
        assert!(
            (expired[0]..=expired[1]).contains(&sum),
            "{sum} of {expired:?}, {returns} returns"
        );
        close(&[fd]);
        watcher.inspect(|set| close(&[*set]));
    }
}

#[test]
fn a_timer_that_has_not_expired_comes_home_when_it_is_looked_at() {
    let _alone = alone();
    for [value, interval] in [[0, 0], [0, HOUR], [HOUR, 0], [HOUR, 2 * HOUR]] {
        let fd = timer();
        let watcher = watched(fd, EPOLLIN);
        set(fd, 0, value, interval);
        go_and_be_free(fd);
        let found = get(fd);
        assert!(is_here(fd));
        assert!(is_about(found[0], value) && found[1] == interval, "{found:?}");
        assert_eq!((wait(watcher, 0), read(fd)), (0, Err(Errno::EAGAIN)));
        close(&[fd, watcher]);
    }
}

/// A child may have read what has expired.
/// The kernel's next read leaves out what comes due between the two calls and is not counted yet.
#[test]
fn a_periodic_timer_that_was_looked_at_is_not_read_home() {
    let _alone = alone();
    let fd = timer();
    set(fd, 0, MILLISECOND, HOUR);
    go_and_be_free(fd);
    sleep(5);
    assert_eq!(get(fd)[1], HOUR);
    assert_eq!(read(fd), Ok(1));
    assert!(is_away(fd));
    set(fd, 0, HOUR, 0);
    assert!(is_here(fd));
    close(&[fd]);
}

#[test]
fn a_timer_that_has_expired_is_not_looked_home() {
    let _alone = alone();
    let fd = timer();
    set(fd, TFD_TIMER_ABSTIME, 1, 0);
    lend(fd, CHILD);
    assert_eq!(read_in_kernel(fd), Ok(8));
    give_back(CHILD);
    for _ in 0..100 {
        assert_eq!(get(fd), [0, 0]);
        assert_eq!(read(fd), Err(Errno::EAGAIN));
    }
    assert!(is_away(fd), "no try was in vain");
    assert_eq!(set(fd, 0, HOUR, 0), [0, 0]);
    assert!(is_here(fd));
    close(&[fd]);
}

/// What it carried when it left is not what it is set to.
#[test]
fn a_timer_that_was_set_away_comes_home_when_it_is_set_again() {
    let _alone = alone();
    let fd = timer();
    set(fd, 0, HOUR, HOUR);
    // The object ends after the call.
    let late = Using::begin(fd, table::find::<FdTimer>(fd).unwrap());
    lend(fd, CHILD);
    assert!(known(fd).is_some());
    set(fd, TFD_TIMER_ABSTIME, 1, 0);
    drop(late);
    assert!(known(fd).is_none());
    give_back(CHILD);
    assert_eq!(get(fd), [0, 0]);
    assert_eq!((read(fd), read(fd)), (Ok(1), Err(Errno::EAGAIN)));
    assert!(is_away(fd));
    assert_eq!(set(fd, 0, 0, HOUR), [0, 0]);
    assert!(is_here(fd));
    // Next time it is known again.
    go_and_be_free(fd);
    come_by_looks(fd, [0, HOUR]);
    close(&[fd]);
}

/// The kernel's timer is not set while the timer lives here.
#[test]
fn a_timer_at_home_does_not_expire_in_the_kernel() {
    let _alone = alone();
    let fd = timer();
    let begun = now();
    set(fd, TFD_TIMER_ABSTIME, begun + 20 * MILLISECOND, 0);
    go_and_be_free(fd);
    get(fd);
    // On a machine that stood still it was too late.
    assert!(is_here(fd) || now() > begun + 20 * MILLISECOND);
    sleep(30);
    assert!(!is_here(fd) || sys::poll_now(fd, libc::POLLIN) == 0);
    assert_eq!(read(fd), Ok(1));
    close(&[fd]);
}

/// A thread that sleeps in the set since before the return is told of what comes after it.
#[test]
fn a_waiter_is_told_of_a_timer_that_has_come_home() {
    let _alone = alone();
    let set_by_look = |fd| _ = get(fd);
    let set_anew = |fd| _ = set(fd, 0, 20 * MILLISECOND, 0);
    for call in [set_by_look as fn(c_int), set_anew] {
        let fd = timer();
        let watcher = watched(fd, EPOLLIN);
        // So that the set stays one with two halves.
        let other = sys::eventfd(0, libc::EFD_CLOEXEC).unwrap();
        let event = epoll_event { events: EPOLLIN as u32, u64: 8 };
        // SAFETY: a valid event.
        unsafe { crate::epoll_ctl(watcher, EPOLL_CTL_ADD, other, &raw const event) }.unwrap();
        set(fd, 0, 60 * MILLISECOND, 0);
        lend(fd, CHILD);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(watcher, 20_000));
            sleep(10);
            give_back(CHILD);
            call(fd);
            assert_eq!(waiting.join().unwrap(), 1);
        });
        assert_eq!(read(fd), Ok(1));
        close(&[fd, other, watcher]);
    }
}

/// Its expiration may have been reported in the moment before.
#[test]
fn an_edge_of_a_timer_that_is_set_is_not_looked_home() {
    let _alone = alone();
    let fd = timer();
    let watcher = watched(fd, EPOLLIN | EPOLLET);
    set(fd, 0, HOUR, 0);
    go_and_be_free(fd);
    get(fd);
    assert!(is_away(fd));
    set(fd, 0, 0, 0);
    assert!(is_here(fd));
    go_and_be_free(fd);
    come_by_looks(fd, [0, 0]);
    close(&[fd, watcher]);
}

#[test]
fn flags_and_clock_are_as_they_were() {
    let _alone = alone();
    let fd = crate::timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK).unwrap();
    set(fd, 0, HOUR, 0);
    lend(fd, CHILD);
    crate::set_nonblocking(fd, false).unwrap();
    give_back(CHILD);
    assert!(is_about(get(fd)[0], HOUR) && is_here(fd));
    let timer = table::find::<FdTimer>(fd).unwrap();
    assert!(timer.timer.flags().is_empty());
    // What depends on a clock that can be set is the kernel's, for good.
    go_and_be_free(fd);
    set(fd, TFD_TIMER_ABSTIME, HOUR, 0);
    set(fd, 0, HOUR, 0);
    assert!(!is_here(fd) && !away::is(fd));
    close(&[fd]);
}

/// A number that was closed, and given another timer, by calls that are not seen.
#[test]
fn the_next_timer_of_a_number_does_not_come_home() {
    let _alone = alone();
    for is_watched in [false, true] {
        let fd = timer();
        let watcher = is_watched.then(|| watched(fd, EPOLLIN));
        set(fd, 0, HOUR, 0);
        lend(fd, CHILD);
        let other = sys::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK).unwrap();
        let new = spec(2 * HOUR, 0);
        sys::timerfd_settime(other, 0, &raw const new, ptr::null_mut()).unwrap();
        // SAFETY: no memory is concerned.
        assert_eq!(unsafe { libc::dup2(other, fd) }, fd);
        give_back(CHILD);
        for _ in 0..100 {
            assert!(is_about(get(fd)[0], 2 * HOUR));
        }
        assert!(is_about(set(fd, TFD_TIMER_ABSTIME, 1, 0)[0], 2 * HOUR));
        assert!(!is_here(fd));
        assert_eq!(read_in_kernel(other), Ok(8));
        sys::close(other).unwrap();
        close(&[fd]);
        watcher.inspect(|set| close(&[*set]));
    }
}

/// A call that has found the timer here, and comes to it when that has left, is told to look again.
#[test]
fn a_late_call_on_a_timer_looks_its_number_up_again() {
    let _alone = alone();
    let fd = timer();
    let found = table::find::<FdTimer>(fd).unwrap();
    lend(fd, CHILD);
    let mut expirations = 0_u64;
    // SAFETY: eight bytes.
    let read = unsafe { super::super::read(fd, found, (&raw mut expirations).cast()) };
    let set = super::super::answer(fd, found, || found.timer.get(), |_| true);
    assert!(read.is_none() && set.is_none());
    assert!(slot(fd).is_some_and(|slot| ptr::eq(slot, found)));
    close(&[fd]);
}

/// Where an expiration comes in the middle of the read, it may have been read or not.
#[test]
fn what_is_left_after_a_read_is_clear_or_not_told() {
    let carried = Expiry { next: 100, interval: 10 };
    let left = |begun, ended| left_after_read(carried, begun, ended).map(|left| left.next);
    assert_eq!([left(100, 109), left(100, 110), left(99, 100)], [Some(110), None, None]);
    assert_eq!([left(95, 99), left(129, 130), left(130, 139)], [Some(100), None, Some(140)]);
    let once = Expiry { next: 100, interval: 0 };
    assert_eq!(left_after_read(once, 99, 100), Some(Expiry::DISARMED));
}
