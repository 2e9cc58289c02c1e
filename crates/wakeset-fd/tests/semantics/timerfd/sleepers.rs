//! Threads that sleep in a set until a timer expires.

use super::*;

pub(super) fn a_sleeper_hears_of_a_time_set_later<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let waiter = Task::start(move || set.next());
    waiter.until_asleep();
    timer.set(2 * MS, NONE);
    assert_eq!(waiter.join(), (7, IN));
}

pub(super) fn a_sleeper_hears_of_an_earlier_time<B: Backend>() {
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

pub(super) fn a_sleeper_outlives_a_disarmed_timer<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let waiter = loop {
        timer.set(10 * MS, NONE);
        let set = set.clone();
        let waiter = Task::start(move || set.next());
        waiter.until_asleep();
        let (left, _) = timer.try_set(0, NONE, NONE).unwrap();
        if left > NONE {
            break waiter;
        }
        // On a busy machine the timer may expire before it is disarmed: once more.
        timer.set_at(now(), NONE);
        assert_eq!(waiter.join(), (7, IN));
        timer.read();
    };
    sleep(15 * MS);
    let at = now() + MS;
    timer.set_at(at, NONE);
    assert_eq!(waiter.join(), (7, IN));
    assert!(now() >= at);
}

pub(super) fn two_sleepers_take_one_expiry_each<B: Backend>() {
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

pub(super) fn a_sleeper_that_leaves_takes_no_deadline_with_it<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    let stayer = loop {
        timer.set(30 * MS, NONE);
        let leaver = Task::start({
            let set = set.clone();
            move || set.wait(1, 10)
        });
        leaver.until_asleep();
        let set = set.clone();
        let stayer = Task::start(move || set.next());
        let left_with = leaver.join().unwrap();
        if left_with.is_empty() {
            break stayer;
        }
        // On a busy machine the timer may expire before the leaver's time is up: once more.
        assert_eq!((left_with, stayer.join()), (vec![(7, IN)], (7, IN)));
        timer.read();
    };
    assert_eq!(stayer.join(), (7, IN));
}

pub(super) fn a_timer_beside_a_pipe<B: Backend>() {
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
    // Longer than the kernel may round up to.
    let at = now() + 60 * MS;
    timer.set_at(at, NONE);
    assert_eq!(set.wait_masked(None, None), Ok(vec![(7, IN)]));
    assert!(now() >= at);
}

pub(super) fn a_timer_beside_a_counter_and_a_pipe_asleep<B: Backend>() {
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

pub(super) fn a_wait_is_over_in_time_beside_a_later_timer<B: Backend>() {
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
        // A timer that is set to a later time before it expires does not end the wait.
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
        assert!(
            got == Ok(vec![]) && took >= 20 * MS || got == Ok(vec![(7, IN)]),
            "{got:?} after {took:?}"
        );
    }
}
