//! The ready lists that exist for the benchmark only: they too wake who sleeps, and lose nothing.

use super::*;
use wakeset::{ReadyList, RwLock, SpinLock};

fn a_sleeper_is_woken<R: ReadyList>() {
    explore(3, || {
        let engine = Engine::new();
        let set = EventPoll::<R>::with_ready_list(&engine).unwrap();
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
    a_sleeper_is_woken::<SpinLock>();
}

/// The same for the read-write lock.
#[test]
fn a_sleeper_is_woken_with_the_rwlock() {
    a_sleeper_is_woken::<RwLock>();
}
