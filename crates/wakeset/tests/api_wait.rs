//! Waiting through the Rust door: timeouts of every kind, buffers, callbacks.

use std::thread;
use std::time::{Duration, Instant};
use wakeset::{
    Counter, CounterFlags, Deadline, Description, Engine, Error, Event, EventPoll, Events, Timeout,
};

struct World {
    engine: Engine,
    set: EventPoll,
    counter: Description<Counter>,
}

fn world() -> World {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
    set.add(1, &counter, Event::new(Events::IN, 7)).unwrap();
    World { engine, set, counter }
}

#[test]
fn room_for_nothing_is_invalid() {
    let w = world();
    for timeout in [Timeout::Now, Timeout::Never, Timeout::After(Duration::from_secs(30))] {
        assert_eq!(w.set.wait(&mut [], timeout), Err(Error::Invalid));
        assert_eq!(w.set.wait_with(0, timeout, &mut |_| true), Err(Error::Invalid));
    }
}

#[test]
fn a_callback_gets_what_a_buffer_would() {
    let w = world();
    w.counter.write(1).unwrap();
    let mut got = Vec::new();
    let mut take = |event| {
        got.push(event);
        true
    };
    assert_eq!(w.set.wait_with(4, Timeout::Never, &mut take), Ok(1));
    assert_eq!(got, [Event::new(Events::IN, 7)]);
}

/// As the kernel keeps an event whose place in the buffer cannot be written (EFAULT).
#[test]
fn what_a_callback_refuses_is_delivered_again() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let w = world();
        let others: Vec<_> = (2..5)
            .map(|fd| {
                let counter = Description::new(&w.engine, Counter::new(1, CounterFlags::NONBLOCK));
                w.set.add(fd, &counter, Event::new(Events::IN | flags, fd as u64)).unwrap();
                counter
            })
            .collect();
        assert_eq!(w.set.wait_with(4, Timeout::Never, &mut |_| false), Ok(0));
        let mut got = Vec::new();
        let mut take_one = |event: Event| {
            let room = got.is_empty();
            if room {
                got.push(event.data);
            }
            room
        };
        assert_eq!(w.set.wait_with(4, Timeout::Never, &mut take_one), Ok(1));
        assert_eq!(got, [2]);
        let mut events = [Event::default(); 2];
        assert_eq!(w.set.wait(&mut events, Timeout::Now), Ok(2));
        assert_eq!(events.map(|event| event.data), [3, 4]);
        drop(others);
    }
}

#[test]
fn never_too_early() {
    let w = world();
    for limit in [0, 1, 1_000, 1_500_000, 12_345_678].map(Duration::from_nanos) {
        let before = Instant::now();
        assert_eq!(w.set.wait(&mut [Event::default()], Timeout::After(limit)), Ok(0));
        assert!(before.elapsed() >= limit);
    }
}

#[test]
fn a_limit_beyond_the_clock_is_none() {
    assert_eq!(Deadline::of(Timeout::Never), None);
    assert_eq!(Deadline::of(Timeout::After(Duration::MAX)), None);
    assert_eq!(Deadline::of(Timeout::After(Duration::from_secs(u64::MAX))), None);
    let w = world();
    for timeout in [
        Timeout::Never,
        Timeout::After(Duration::MAX),
        Timeout::After(Duration::from_secs(1 << 33)),
        Timeout::After(Duration::from_nanos(u64::MAX)),
    ] {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| w.set.wait(&mut [Event::default()], timeout));
            thread::sleep(Duration::from_millis(2));
            assert!(!waiter.is_finished());
            w.counter.write(1).unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(1));
        });
        w.counter.read().unwrap();
    }
}

#[test]
fn timeouts_are_made_from_what_the_calls_take() {
    assert_eq!(Timeout::from_millis(0), Timeout::Now);
    assert_eq!(Timeout::from_millis(-1), Timeout::Never);
    assert_eq!(Timeout::from_millis(i32::MIN), Timeout::Never);
    assert_eq!(Timeout::from_millis(3), Timeout::After(Duration::from_millis(3)));
    assert_eq!(
        Timeout::from_millis(i32::MAX),
        Timeout::After(Duration::from_millis(2_147_483_647))
    );
    assert_eq!(Timeout::from(None), Timeout::Never);
    assert_eq!(Timeout::from(Some(Duration::ZERO)), Timeout::Now);
    assert_eq!(
        Timeout::from(Some(Duration::from_nanos(1))),
        Timeout::After(Duration::from_nanos(1))
    );
}

#[test]
fn a_deadline_says_what_is_left() {
    let limit = Duration::from_secs(1_000);
    let before = Instant::now();
    let deadline = Deadline::of(Timeout::After(limit)).unwrap();
    let left = deadline.remaining();
    assert!(left <= limit && left + before.elapsed() >= limit);
    assert!(Deadline::now() < deadline);
    assert_eq!(Deadline::now().remaining(), Duration::ZERO);
}

/// Waiters in many sets of one engine, woken in any order.
#[test]
fn waits_of_different_sets_do_not_meet() {
    let engine = Engine::new();
    let worlds: Vec<_> = (0..6)
        .map(|_| {
            let set = EventPoll::new(&engine).unwrap();
            let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
            set.add(1, &counter, Event::new(Events::IN | Events::ET, 7)).unwrap();
            World { engine: engine.clone(), set, counter }
        })
        .collect();
    assert!(worlds.iter().all(|w| w.engine.is(&engine)));
    thread::scope(|scope| {
        let waiters: Vec<_> = worlds
            .iter()
            .map(|w| {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(w.set.wait(&mut [Event::default()], Timeout::Never), Ok(1));
                        w.counter.read().unwrap();
                    }
                })
            })
            .collect();
        for (w, waiter) in worlds.iter().zip(&waiters).rev() {
            while !waiter.is_finished() {
                w.counter.write(1).unwrap();
                thread::yield_now();
            }
        }
    });
}
