//! Waiters that sleep and producers that wake them.

use super::*;

/// Catches a waiter that looks at the ready list before it counts itself in, or a waker that looks
/// at the count before it pushes: either sleeps for ever.
#[test]
fn a_sleeper_is_woken() {
    explore(3, || {
        let world = World::watching(Events::IN);
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        world.counter.write(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
}

/// Catches a second producer that relies on the first one's mark and leaves before the waiter can
/// see its change.
#[test]
fn two_producers_reach_one_waiter() {
    explore(2, || {
        let world = World::watching(Events::IN | Events::ET);
        let producers = [1, 2].map(|n| run(&world, move |world| world.counter.write(n).unwrap()));
        let mut sum = 0;
        while sum < 3 {
            assert_eq!(wait(&world.set, Timeout::Never), Some(1));
            sum += world.counter.read().unwrap_or(0);
        }
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// Catches a wake that two events share although two waiters sleep: one of them would sleep for
/// ever.
#[test]
fn two_events_wake_two_waiters() {
    explore(2, || {
        let world = World::watching(Events::IN | Events::ET);
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(Events::IN | Events::ET, 2)).unwrap();
        let waiters =
            [0, 1].map(|_| run(&world, |world| wait(&world.set, Timeout::Never).unwrap()));
        world.counter.write(1).unwrap();
        other.write(1).unwrap();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()).into_iter().sum::<u64>(), 1 + 2);
    });
}

/// Catches an add or a change of interest that makes a watch ready and tells nobody who sleeps.
#[test]
fn an_add_of_a_ready_source_wakes_a_sleeper() {
    explore(3, || {
        let world = World::new();
        world.counter.write(1).unwrap();
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        world.set.add(1, &world.counter, Event::new(Events::IN | Events::ET, 1)).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
}

/// Catches a harvester that leaves something on the list without waking the next waiter: here, what
/// is level-triggered.
#[test]
fn what_one_waiter_leaves_wakes_the_next() {
    explore(2, || {
        let world = World::watching(Events::IN);
        let waiters = [0, 1].map(|_| run(&world, |world| wait(&world.set, Timeout::Never)));
        world.counter.write(1).unwrap();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [Some(1), Some(1)]);
    });
}

/// Catches a batch that tells nobody, or only one of two for whom it has something.
#[test]
fn a_batch_of_ready_sources_wakes_two_sleepers() {
    explore(2, || {
        let world = World::new();
        let other = open(&world.engine);
        world.counter.write(1).unwrap();
        other.write(1).unwrap();
        let waiters = [0, 1].map(|_| run(&world, |world| wait(&world.set, Timeout::Never)));
        let ready = |data| Event::new(Events::IN | Events::ET, data);
        let mut changes =
            [Change::add(1, &world.counter, ready(1)), Change::add(2, &other, ready(2))];
        assert_eq!(world.set.apply(&mut changes, OnError::GoOn), 2);
        let mut got = waiters.map(|waiter| waiter.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [Some(1), Some(2)]);
    });
}
