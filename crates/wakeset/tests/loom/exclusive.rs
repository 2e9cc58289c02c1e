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
