//! Waits that spin before they sleep, and before a time that they have slept for.

use super::*;
use std::time::Duration;
use wakeset::{Timer, TimerFlags, set_model_clock, set_model_spin};

/// Looks before a sleep: the event comes before the first, between two, or after the last.
const LOOKS: u32 = 2;

fn begin() {
    set_model_clock(1);
    set_model_spin(LOOKS);
}

/// Catches a waiter that relies on what it saw in the spin when it goes to sleep.
#[test]
fn who_has_spun_in_vain_is_woken() {
    explore(3, || {
        begin();
        let world = World::watching(Events::IN);
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        world.counter.write(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
}

/// Catches an exclusive wake that was left to a waiter in its spin, and that leaves with another
/// event.
#[test]
fn what_is_left_to_a_spinner_is_passed_on() {
    explore(2, || {
        begin();
        let engine = Engine::new();
        let sets = [EventPoll::new(&engine).unwrap(), EventPoll::new(&engine).unwrap()];
        let counters = [open(&engine), open(&engine)];
        for set in &sets {
            let exclusive = Events::IN | Events::ET | Events::EXCLUSIVE;
            set.add(1, &counters[0], Event::new(exclusive, 1)).unwrap();
        }
        sets[0].add(2, &counters[1], Event::new(Events::IN | Events::ET, 2)).unwrap();
        let busy = Arc::new((sets, counters));
        let spinner = run(&busy, |(sets, _)| {
            let data = wait(&sets[0], Timeout::After(Duration::from_nanos(3)));
            assert!(matches!(data, None | Some(2)));
        });
        let sleeper = run(&busy, |(sets, _)| wait(&sets[1], Timeout::Never));
        busy.1[1].write(1).unwrap();
        busy.1[0].write(1).unwrap();
        assert_eq!(sleeper.join().unwrap(), Some(1));
        spinner.join().unwrap();
    });
}

/// Catches a blocked read that relies on its last attempt in the spin.
#[test]
fn a_read_that_has_spun_in_vain_sees_a_write() {
    explore(3, || {
        begin();
        let counter = Arc::new(Counter::new(0, CounterFlags::empty()));
        let reader = run(&counter, |counter| counter.read().unwrap());
        counter.write(7).unwrap();
        assert_eq!(reader.join().unwrap(), 7);
    });
}

/// Catches a waiter that spins for a timer, leaves with another event, and tells nobody of the
/// timer.
#[test]
fn who_leaves_the_last_stretch_hands_the_time_over() {
    explore(2, || {
        begin();
        let world = World::watching(Events::IN | Events::ONESHOT);
        let timer = Description::new(&world.engine, Timer::new(TimerFlags::NONBLOCK));
        world.set.add(2, &timer, Event::new(Events::IN | Events::ONESHOT, 2)).unwrap();
        timer.set_at(Duration::from_nanos(20), Duration::ZERO).unwrap();
        let waiters =
            [0, 1].map(|_| run(&world, |world| wait(&world.set, Timeout::Never).unwrap()));
        world.counter.write(1).unwrap();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()).into_iter().sum::<u64>(), 3);
    });
}

/// Catches a waiter that is not told of an earlier time than the one that it spins or sleeps for.
#[test]
fn the_last_stretch_ends_at_an_earlier_time() {
    explore(3, || {
        begin();
        let world = World::new();
        let timer = Description::new(&world.engine, Timer::new(TimerFlags::NONBLOCK));
        world.set.add(2, &timer, Event::new(Events::IN, 2)).unwrap();
        // It never comes.
        timer.set_at(Duration::from_nanos(1 << 40), Duration::ZERO).unwrap();
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        timer.set_at(Duration::from_nanos(20), Duration::ZERO).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(2));
    });
}
