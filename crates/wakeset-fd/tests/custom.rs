//! Custom sources, by their descriptions, in sets that have numbers.
#![allow(missing_docs)]

use libc::{EPOLL_CLOEXEC, c_int};
use std::thread;
use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events};
use wakeset::{Timer, TimerFlags};
use wakeset_fd::{self as fd, Errno, custom};

const SEVEN: Event = Event::new(Events::IN, 7);

fn epoll() -> c_int {
    fd::epoll_create1(EPOLL_CLOEXEC).unwrap()
}

/// A counter without a number.
fn counter(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

/// What a wait of at most so many milliseconds reports.
fn waited(set: c_int, milliseconds: c_int) -> Vec<(u64, u32)> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four.
    let n = unsafe { fd::epoll_wait(set, events.as_mut_ptr(), 4, milliseconds) }.unwrap();
    events[..n as usize].iter().map(|event| (event.u64, event.events)).collect()
}

#[test]
fn is_watched_modified_and_removed() {
    let (set, counter) = (epoll(), counter(custom::engine().unwrap()));
    custom::add(set, &counter, SEVEN).unwrap();
    assert_eq!(custom::add(set, &counter, SEVEN), Err(Errno::EEXIST));
    assert_eq!(waited(set, 0), []);
    let writer = thread::spawn({
        let counter = counter.clone();
        move || counter.write(1).unwrap()
    });
    assert_eq!(waited(set, -1), [(7, libc::EPOLLIN as u32)]);
    writer.join().unwrap();
    custom::modify(set, &counter, Event::new(Events::OUT, 8)).unwrap();
    assert_eq!(waited(set, 0), [(8, libc::EPOLLOUT as u32)]);
    custom::remove(set, &counter).unwrap();
    assert_eq!(waited(set, 0), []);
    assert_eq!(custom::modify(set, &counter, SEVEN), Err(Errno::ENOENT));
    assert_eq!(custom::remove(set, &counter), Err(Errno::ENOENT));
    fd::close(set).unwrap();
}

#[test]
fn leaves_the_set_with_its_last_description() {
    let (set, counter) = (epoll(), counter(custom::engine().unwrap()));
    counter.write(1).unwrap();
    custom::add(set, &counter, SEVEN).unwrap();
    let clone = counter.clone();
    drop(counter);
    assert_eq!(waited(set, 0), [(7, libc::EPOLLIN as u32)]);
    drop(clone);
    assert_eq!(waited(set, 0), []);
    fd::close(set).unwrap();
}

#[test]
fn keeps_its_set_from_migrating() {
    let (set, counter) = (epoll(), counter(custom::engine().unwrap()));
    custom::add(set, &counter, SEVEN).unwrap();
    custom::remove(set, &counter).unwrap();
    assert_eq!(fd::dup(set), Err(Errno::EBUSY));
    fd::close(set).unwrap();
}

#[test]
fn of_another_engine_is_refused() {
    let (set, counter) = (epoll(), counter(&Engine::new()));
    counter.write(1).unwrap();
    assert_eq!(custom::add(set, &counter, SEVEN), Err(Errno::EBADF));
    assert_eq!(waited(set, 0), []);
    // The refused addition has not fixed the set either.
    fd::close(fd::dup(set).unwrap()).unwrap();
    fd::close(set).unwrap();
}

#[test]
fn needs_a_set() {
    let counter = counter(custom::engine().unwrap());
    let eventfd = fd::eventfd(0, 0).unwrap();
    assert_eq!(custom::add(eventfd, &counter, SEVEN), Err(Errno::EINVAL));
    assert_eq!(custom::add(-1, &counter, SEVEN), Err(Errno::EBADF));
    fd::close(eventfd).unwrap();
}

/// A loop that watches the number of a set sleeps without its deadlines, so a timer there would
/// never be heard of.
#[test]
fn an_exported_set_takes_no_timer_and_a_set_with_a_timer_is_not_exported() {
    let engine = custom::engine().unwrap();
    let timer = || Description::new(engine, Timer::new(TimerFlags::NONBLOCK));
    let inner = Description::new(engine, EventPoll::new(engine).unwrap());
    let refused = Err(Errno::EOPNOTSUPP);

    let exported = epoll();
    fd::set::export(exported).unwrap();
    assert_eq!(custom::add(exported, &timer(), SEVEN), refused);
    assert_eq!(custom::add(exported, &inner, SEVEN), refused);
    let counter = counter(engine);
    custom::add(exported, &counter, SEVEN).unwrap();
    counter.write(1).unwrap();
    assert_eq!(waited(exported, 0), [(7, libc::EPOLLIN as u32)]);

    let timed = epoll();
    custom::add(timed, &timer(), SEVEN).unwrap();
    assert_eq!(fd::set::export(timed), refused);
    let nests = epoll();
    custom::add(nests, &inner, SEVEN).unwrap();
    assert_eq!(fd::set::export(nests), refused);
    for set in [exported, timed, nests] {
        fd::close(set).unwrap();
    }
}
