//! What a look finds under a number that stands for another object, or for none, before the object
//! is asked what holds.

use super::*;
use crate::calls::{close, dup, duplicate, epoll_create1, timerfd_settime};
use crate::sys::verdict::Verdict::Done;
use crate::table::alone::alone;
use crate::table::away::tests::eventfd;
use libc::{EPOLL_CTL_ADD, EPOLLIN, POLLIN, epoll_event, itimerspec, timespec};
extern crate std;

fn asking(fd: c_int) -> pollfd {
    pollfd { fd, events: POLLIN, revents: 0 }
}

/// What an entry is told of an object for which its number stood before `meanwhile`.
fn told_after(fd: c_int, meanwhile: impl FnOnce()) -> Option<i16> {
    let (Found::Object(head), _held) = find(fd) else { panic!("{fd} is no object") };
    meanwhile();
    events_of(head, asking(fd))
}

fn replace(number: c_int, other: c_int) {
    assert_eq!(duplicate::dup2(other, number), Done(Ok(number)));
    assert!(table::peek(number).is_object(), "it went to the kernel");
}

fn full_eventfd() -> c_int {
    eventfd(1, 0)
}

fn expired_timer() -> c_int {
    let fd = crate::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK).unwrap();
    let time = |tv_nsec| timespec { tv_sec: 0, tv_nsec };
    let long_ago = itimerspec { it_interval: time(0), it_value: time(1) };
    let flags = libc::TFD_TIMER_ABSTIME;
    // SAFETY: a valid time; the old one is not asked for.
    unsafe { timerfd_settime(fd, flags, &raw const long_ago, core::ptr::null_mut()) }.unwrap();
    fd
}

/// A set with an event. What it watches stays open.
fn ready_set() -> c_int {
    let set = epoll_create1(0).unwrap();
    let event = epoll_event { events: EPOLLIN as u32, u64: 0 };
    // SAFETY: a valid event.
    unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, full_eventfd(), &raw const event) }.unwrap();
    set
}

/// It was told as not ready, though the number had stood for nothing but what was.
#[test]
fn an_object_that_ends_when_it_has_been_found_is_looked_for_again() {
    let _alone = alone();
    let kinds: [(fn() -> c_int, bool); 3] =
        [(full_eventfd, false), (expired_timer, false), (ready_set, true)];
    for (make, is_set) in kinds {
        for at_home in [false, true] {
            let (one, other) = (make(), make());
            let copy = dup(one).unwrap();
            let (number, last) = if at_home { (one, copy) } else { (copy, one) };
            assert_eq!(told_after(number, || {}), Some(POLLIN));
            let told = told_after(number, || {
                replace(number, other);
                close(last).unwrap();
            });
            // A set that the call holds still has to tell what it had.
            assert_eq!(told, (is_set && !at_home).then_some(POLLIN));
            assert_eq!(told_after(number, || {}), Some(POLLIN));
            [number, other].into_iter().for_each(|fd| close(fd).unwrap());
        }
    }
}

#[test]
fn an_object_that_goes_on_is_told_of() {
    let _alone = alone();
    let (one, other) = (full_eventfd(), full_eventfd());
    let copy = dup(one).unwrap();
    assert_eq!(told_after(copy, || replace(copy, other)), Some(POLLIN));
    [one, copy, other].into_iter().for_each(|fd| close(fd).unwrap());
}

#[test]
fn the_next_object_of_a_number_is_told_of() {
    let _alone = alone();
    let number = full_eventfd();
    let told = told_after(number, || {
        close(number).unwrap();
        assert_eq!(full_eventfd(), number, "the lowest");
    });
    assert_eq!(told, Some(POLLIN));
    close(number).unwrap();
}

#[test]
fn an_end_of_a_pipe_that_is_no_more_is_looked_for_again() {
    let _alone = alone();
    let mut ends = [0; 2];
    // SAFETY: room for two.
    unsafe { crate::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) }.unwrap();
    let [reader, writer] = ends;
    // SAFETY: one byte.
    assert_eq!(unsafe { crate::write(writer, [1].as_ptr(), 1) }, Ok(1));
    let told = told_after(reader, || ends.into_iter().for_each(|fd| close(fd).unwrap()));
    assert_eq!(told, None);
}
