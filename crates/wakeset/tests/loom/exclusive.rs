//! Sets that watch one source exclusively: a change wakes one, and not none.

use super::*;

struct Pair {
    sets: [EventPoll; 2],
    counter: Description<Counter>,
}

fn pair() -> Arc<Pair> {
    let engine = Engine::new();
    let sets = [EventPoll::new(&engine).unwrap(), EventPoll::new(&engine).unwrap()];
    let counter = open(&engine);
    for set in &sets {
        set.add(1, &counter, Event::new(Events::IN | Events::ET | Events::EXCLUSIVE, 1)).unwrap();
    }
    Arc::new(Pair { sets, counter })
}

/// Catches a wake that counts as taken by a set in which nobody waits.
#[test]
fn a_change_goes_on_to_the_set_where_somebody_sleeps() {
    explore(3, || {
        let pair = pair();
        let waiter = run(&pair, |pair| wait(&pair.sets[1], Timeout::Never));
        pair.counter.write(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
}

/// Catches a wake spent on a watch that is already on its list, or on a waiter that leaves by
/// itself at that moment: with two changes nobody sleeps who could have had one.
#[test]
fn two_changes_reach_two_sets() {
    explore(2, || {
        let pair = pair();
        let waiters = [0, 1].map(|i| run(&pair, move |pair| wait(&pair.sets[i], Timeout::Never)));
        pair.counter.write(1).unwrap();
        pair.counter.write(1).unwrap();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [Some(1), Some(1)]);
    });
}

/// Two sets that watch a counter exclusively (data 1), the first of which has another counter as
/// well (data 2).
struct Busy {
    sets: [EventPoll; 2],
    counter: Description<Counter>,
    other: Description<Counter>,
}

fn busy() -> Arc<Busy> {
    let engine = Engine::new();
    let sets = [EventPoll::new(&engine).unwrap(), EventPoll::new(&engine).unwrap()];
    let [counter, other] = [open(&engine), open(&engine)];
    sets[0].add(2, &other, Event::new(Events::IN | Events::ET, 2)).unwrap();
    for set in &sets {
        set.add(1, &counter, Event::new(Events::IN | Events::ET | Events::EXCLUSIVE, 1)).unwrap();
    }
    Arc::new(Busy { sets, counter, other })
}

/// Catches a wake spent on a waiter that has been woken for another event and leaves with that.
#[test]
fn who_was_woken_for_another_event_does_not_take_the_wake() {
    explore(2, || {
        let busy = busy();
        let waiters = [0, 1].map(|i| run(&busy, move |busy| wait(&busy.sets[i], Timeout::Never)));
        busy.other.write(1).unwrap();
        busy.counter.write(1).unwrap();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [Some(2), Some(1)]);
    });
}

/// Catches a wake left to a waiter that no waker can know to be on its way out, and that leaves
/// with another event.
#[test]
fn what_is_left_to_a_remote_waiter_is_passed_on() {
    explore(2, || {
        let busy = busy();
        let remote = run(&busy, |busy| {
            busy.sets[0].enter_remote();
            busy.sets[0].leave_remote();
            assert!(matches!(take(&busy.sets[0]), None | Some(2)));
        });
        let sleeper = run(&busy, |busy| wait(&busy.sets[1], Timeout::Never));
        busy.other.write(1).unwrap();
        busy.counter.write(1).unwrap();
        assert_eq!(sleeper.join().unwrap(), Some(1));
        remote.join().unwrap();
    });
}
