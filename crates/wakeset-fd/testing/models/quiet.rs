//! Models of quiet waits: their look comes after the count, as a general wait's does.

use super::mixed::{COUNTER, Mixed, OF_COUNTER, OF_FILE, expect_once, run};
use super::{EDGE, IN};
use crate::rooms::kernel::KERNEL;
use crate::rooms::set::FdSet;
use core::ffi::c_int;
use libc::EPOLL_CTL_ADD;
use loom::thread::spawn;
use std::sync::Arc;
use std::vec::Vec;
use wakeset::{Event, Events, explore};

/// The number of a listener, and its data.
const LISTENER: c_int = 3;
const OF_LISTENER: u64 = 30;
const EXCLUSIVE: u32 = IN | libc::EPOLLEXCLUSIVE as u32;

/// Catches a quiet wait that sleeps although the counter has been written, because it looked before
/// it was counted, or not at all.
#[test]
fn a_quiet_sleeper_hears_of_a_write() {
    explore(3, || {
        let mixed = Mixed::watching(IN);
        let writer = run(&mixed, |mixed| mixed.counter.write(1).unwrap());
        assert_eq!(mixed.set.wait_quietly(1).unwrap(), [OF_COUNTER]);
        writer.join().unwrap();
    });
}

/// Catches the same of a set that has its first source, and with it its doorbell, meanwhile.
#[test]
fn a_quiet_sleeper_hears_of_the_first_source() {
    explore(3, || {
        let mixed = Mixed::new();
        mixed.add_file(IN);
        mixed.counter.write(1).unwrap();
        let sleeper = run(&mixed, |mixed| mixed.set.wait_quietly(1));
        mixed.add_counter(IN);
        assert_eq!(sleeper.join().unwrap().unwrap(), [OF_COUNTER]);
    });
}

/// A set that gets its first listener beside a sleeper.
fn sleep_beside_a_new_listener(wait: fn(&FdSet, usize) -> Option<Vec<u64>>) {
    let mixed = Mixed::new();
    mixed.add_file(IN);
    KERNEL.open(LISTENER);
    let sleeper = run(&mixed, move |mixed| wait(&mixed.set, 1));
    mixed.set.ctl_of_listener(EPOLL_CTL_ADD, LISTENER, 0, OF_LISTENER);
    assert_eq!(sleeper.join().unwrap(), None, "its sleep has a limit");
}

/// Catches a quiet wait that sleeps without a limit though there is a listener to be looked at.
#[test]
fn a_quiet_sleeper_hears_of_the_first_listener() {
    explore(3, || sleep_beside_a_new_listener(FdSet::wait_quietly));
}

/// Catches the same of a general wait.
#[test]
fn a_sleeper_hears_of_the_first_listener() {
    explore(3, || sleep_beside_a_new_listener(FdSet::try_wait));
}

/// Catches a ring that is used up by a quiet wait which has no room for what it was rung for. Of
/// two edges each wait takes one.
#[test]
fn a_quiet_wait_passes_on_a_ring() {
    explore(2, || {
        let mixed = Mixed::watching(EDGE);
        let sleeper = run(&mixed, |mixed| mixed.set.wait_quietly(1));
        let writer = run(&mixed, |mixed| mixed.counter.write(1).unwrap());
        KERNEL.fill(mixed.file);
        let mut found = mixed.set.wait_quietly(1).unwrap();
        found.append(&mut sleeper.join().unwrap().unwrap());
        writer.join().unwrap();
        found.sort_unstable();
        assert_eq!(found, [OF_FILE, OF_COUNTER]);
    });
}

/// Catches an exclusive wake that is spent on a quiet wait which leaves with another event.
#[test]
fn what_is_left_to_a_quiet_wait_is_passed_on() {
    explore(2, || {
        let mixed = Mixed::watching_as(EXCLUSIVE, IN);
        let other = Arc::new(FdSet::of(&mixed.engine));
        let asked = Event::new(Events::from_bits_retain(EXCLUSIVE), OF_COUNTER);
        other.set.add(COUNTER, &mixed.counter, asked).unwrap();
        let quiet = run(&mixed, |mixed| mixed.set.wait_quietly(1).unwrap());
        let filler = run(&mixed, |mixed| KERNEL.fill(mixed.file));
        let waiter = {
            let other = Arc::clone(&other);
            spawn(move || other.try_wait(1))
        };
        mixed.counter.write(1).unwrap();
        if quiet.join().unwrap() == [OF_COUNTER] {
            mixed.counter.write(1).unwrap();
        }
        assert_eq!(waiter.join().unwrap().unwrap(), [OF_COUNTER]);
        filler.join().unwrap();
    });
}

/// Catches the same of a quiet wait that leaves with a connection.
#[test]
fn what_is_left_to_a_wait_for_a_connection_is_passed_on() {
    explore(2, || {
        let mixed = Mixed::watching_as(EXCLUSIVE, IN);
        let listener = KERNEL.open(LISTENER);
        mixed.set.ctl_of_listener(EPOLL_CTL_ADD, LISTENER, 0, OF_LISTENER);
        KERNEL.fill(listener);
        let other = Arc::new(FdSet::of(&mixed.engine));
        let asked = Event::new(Events::from_bits_retain(EXCLUSIVE), OF_COUNTER);
        other.set.add(COUNTER, &mixed.counter, asked).unwrap();
        let quiet = run(&mixed, |mixed| mixed.set.wait_quietly(1).unwrap());
        let waiter = {
            let other = Arc::clone(&other);
            spawn(move || other.try_wait(1))
        };
        mixed.counter.write(1).unwrap();
        match quiet.join().unwrap()[..] {
            [OF_LISTENER] => {}
            _ => mixed.counter.write(1).unwrap(),
        }
        assert_eq!(waiter.join().unwrap().unwrap(), [OF_COUNTER]);
    });
}

/// Catches a quiet wait that is told of a watch in both halves, and one that is told in neither.
#[test]
fn a_quiet_sleeper_is_told_once_of_what_comes_home() {
    explore(2, || expect_once(|set| set.wait_quietly(4).unwrap()));
}
