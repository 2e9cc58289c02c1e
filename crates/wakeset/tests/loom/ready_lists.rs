//! The ready lists that exist for the benchmark only: they too wake who sleeps, and lose nothing.

use super::*;
use wakeset::ReadyList;

fn a_sleeper_is_woken(list: ReadyList) {
    explore(3, move || {
        let engine = Engine::new();
        let set = EventPoll::with_ready_list(&engine, list).unwrap();
        let counter = open(&engine);
        set.add(1, &counter, Event::new(Events::IN | Events::ET, 1)).unwrap();
        let producer = run(&Arc::new(counter.clone()), |counter| counter.write(1).unwrap());
        let mut events = [Event::default()];
        assert_eq!(set.wait(&mut events, Timeout::Never).unwrap(), 1);
        producer.join().unwrap();
    });
}

/// Catches a spinlock that is not given back, or a push that nobody is told of.
#[test]
fn a_sleeper_is_woken_with_the_spinlock() {
    a_sleeper_is_woken(ReadyList::Spinlock);
}

/// The same for the read-write lock.
#[test]
fn a_sleeper_is_woken_with_the_rwlock() {
    a_sleeper_is_woken(ReadyList::Rwlock);
}
