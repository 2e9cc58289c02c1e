//! Models of the alarm of a set. A thread has slept in the set since before its first listener,
//! while others add listeners, remove them, take the alarm and close the set.

use super::IN;
use super::mixed::{Mixed, run};
use crate::rooms::kernel::{ALARM, BELL, KERNEL};
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL};
use std::sync::Arc;
use wakeset::{Timeout, explore};

/// The numbers of two listeners, and their places in the set.
const LISTENERS: [c_int; 2] = [3, 5];

/// A set with a file in its kernel half.
fn set() -> Arc<Mixed> {
    let mixed = Mixed::new();
    mixed.add_file(IN);
    LISTENERS.into_iter().for_each(|fd| {
        KERNEL.open(fd);
    });
    mixed
}

/// The same with the first listener, and an alarm that has gone off and that no sleeper needs.
fn with_alarm() -> Arc<Mixed> {
    let mixed = set();
    mixed.set.set.enter_remote();
    change(&mixed, EPOLL_CTL_ADD, 0);
    mixed.set.set.leave_remote();
    KERNEL.let_alarm_expire();
    assert!(mixed.set.rotation.has_alarm());
    mixed
}

fn change(mixed: &Mixed, op: c_int, place: usize) {
    mixed.set.ctl_of_listener(op, LISTENERS[place], place, 30);
}

/// A wait that only looks, and may use up the alarm and the doorbell's ring.
fn look(mixed: &Mixed) {
    assert_eq!(mixed.set.wait(1, Timeout::Now), []);
}

/// Catches a sleeper that knows of no listener and that the alarm does not wake, because another
/// thread has taken the ring for the first listener, and has ended the alarm.
#[test]
fn an_alarm_lasts_while_one_sleeps() {
    explore(2, || {
        let mixed = set();
        let sleeper = run(&mixed, |mixed| mixed.set.try_wait(1));
        change(&mixed, EPOLL_CTL_ADD, 0);
        KERNEL.let_alarm_expire();
        look(&mixed);
        KERNEL.let_alarm_expire();
        assert_eq!(sleeper.join().unwrap(), None, "its sleep has a limit");
    });
}

/// Catches an alarm that is ended, for a listener that has gone or for sleepers that have left,
/// when the thread that has added the next listener relies on it.
#[test]
fn an_alarm_stays_for_the_next_listener() {
    explore(2, || {
        let mixed = with_alarm();
        let remover = run(&mixed, |mixed| change(mixed, EPOLL_CTL_DEL, 0));
        let taker = run(&mixed, look);
        // A thread goes to sleep: it counts itself in, then looks whether there is a listener.
        mixed.set.set.enter_remote();
        let knows = mixed.set.rotation.any();
        change(&mixed, EPOLL_CTL_ADD, 1);
        remover.join().unwrap();
        taker.join().unwrap();
        assert!(knows || mixed.set.rotation.has_alarm() && KERNEL.alarm_is_armed());
    });
}

/// Catches a sleeper that comes when there is no listener, does not know of the next one, and is
/// not seen by the thread that adds it.
#[test]
fn a_sleeper_between_two_listeners_is_woken() {
    explore(2, || {
        let mixed = with_alarm();
        change(&mixed, EPOLL_CTL_DEL, 0);
        let sleeper = run(&mixed, |mixed| mixed.set.try_wait(1));
        let taker = run(&mixed, look);
        change(&mixed, EPOLL_CTL_ADD, 1);
        taker.join().unwrap();
        KERNEL.let_alarm_expire();
        assert_eq!(sleeper.join().unwrap(), None, "its sleep has a limit");
    });
}

/// Catches an alarm, and a doorbell, that come into a set as it is closed, and stay in what has its
/// number next.
#[test]
fn what_comes_as_the_set_closes_is_taken_out() {
    explore(3, || {
        let mixed = set();
        mixed.set.set.enter_remote();
        let closer = run(&mixed, |mixed| mixed.set.lose_number());
        change(&mixed, EPOLL_CTL_ADD, 0);
        closer.join().unwrap();
        assert!(!mixed.set.rotation.has_alarm() && !KERNEL.alarm_is_armed());
        assert!(![ALARM, BELL].into_iter().any(|fd| KERNEL.watches(fd)));
    });
}
