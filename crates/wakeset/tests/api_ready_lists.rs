//! All three ready lists are right; only the default also keeps the promise that a stopped waker
//! stops nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, ReadyList, Timeout,
};

/// The same tests for each list.
macro_rules! for_each_list {
    ($($name:ident),+ $(,)?) => {
        mod lock_free { $(#[test] fn $name() { super::$name(super::ReadyList::LockFree); })+ }
        mod spin_lock { $(#[test] fn $name() { super::$name(super::ReadyList::Spinlock); })+ }
        mod rw_lock { $(#[test] fn $name() { super::$name(super::ReadyList::Rwlock); })+ }
    };
}

for_each_list!(
    order_and_rotation,
    edges_and_oneshots,
    everything_arrives,
    nested_in_a_default_set,
    watches_come_and_go_under_traffic,
);

fn counters(engine: &Engine, n: usize) -> Vec<Description<Counter>> {
    (0..n).map(|_| Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))).collect()
}

fn add_all(set: &EventPoll, counters: &[Description<Counter>], flags: Events) {
    for (i, counter) in counters.iter().enumerate() {
        set.add(i as i32, counter, Event::new(Events::IN | flags, i as u64)).unwrap();
    }
}

fn data(set: &EventPoll, room: usize) -> Vec<u64> {
    let mut events = vec![Event::default(); room];
    let n = set.wait(&mut events, Timeout::Now).unwrap();
    events[..n].iter().map(|event| event.data).collect()
}

fn order_and_rotation(list: ReadyList) {
    let engine = Engine::new();
    let set = EventPoll::with_ready_list(&engine, list).unwrap();
    let counters = counters(&engine, 5);
    add_all(&set, &counters, Events::empty());
    for i in [4, 2, 0, 1, 3] {
        counters[i].write(1).unwrap();
    }
    assert_eq!(data(&set, 2), [4, 2]);
    assert_eq!(data(&set, 2), [0, 1]);
    assert_eq!(data(&set, 8), [3, 4, 2, 0, 1]);
}

fn edges_and_oneshots(list: ReadyList) {
    let engine = Engine::new();
    let set = EventPoll::with_ready_list(&engine, list).unwrap();
    let counters = counters(&engine, 2);
    set.add(0, &counters[0], Event::new(Events::IN | Events::ET, 0)).unwrap();
    set.add(1, &counters[1], Event::new(Events::IN | Events::ONESHOT, 1)).unwrap();
    for counter in &counters {
        counter.write(1).unwrap();
    }
    assert_eq!(data(&set, 8), [0, 1]);
    assert_eq!(data(&set, 8), []);
    for counter in &counters {
        counter.write(1).unwrap();
    }
    assert_eq!(data(&set, 8), [0]);
    set.modify(1, &counters[1], Event::new(Events::IN | Events::ONESHOT, 2)).unwrap();
    assert_eq!(data(&set, 8), [2]);
}

fn everything_arrives(list: ReadyList) {
    const WRITES: u64 = 5_000;
    for flags in [Events::empty(), Events::ET] {
        let engine = Engine::new();
        let set = EventPoll::with_ready_list(&engine, list).unwrap();
        let counters = counters(&engine, 8);
        add_all(&set, &counters, flags);
        let sum = AtomicU64::new(0);
        let total = 4 * WRITES;
        thread::scope(|scope| {
            for producer in 0..4 {
                let counters = &counters;
                scope.spawn(move || {
                    for i in 0..WRITES as usize {
                        counters[(producer + i) % 8].write(1).unwrap();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut events = [Event::default(); 3];
                    while sum.load(Ordering::SeqCst) < total {
                        let n = set.wait(&mut events, Timeout::Never).unwrap();
                        for event in &events[..n] {
                            let taken = counters[event.data as usize].read().unwrap_or(0);
                            if sum.fetch_add(taken, Ordering::SeqCst) + taken == total {
                                // One for each consumer that still sleeps.
                                counters[0].write(1).unwrap();
                                counters[1].write(1).unwrap();
                            }
                        }
                    }
                });
            }
        });
        assert!(sum.into_inner() >= total);
    }
}

fn nested_in_a_default_set(list: ReadyList) {
    let engine = Engine::new();
    let outer = EventPoll::new(&engine).unwrap();
    let inner = Description::new(&engine, EventPoll::with_ready_list(&engine, list).unwrap());
    let counters = counters(&engine, 2);
    add_all(&inner, &counters, Events::ET);
    outer.add(0, &inner, Event::new(Events::IN | Events::ET, 9)).unwrap();
    for _ in 0..3 {
        counters[1].write(1).unwrap();
        assert_eq!(data(&outer, 4), [9]);
        assert_eq!(data(&outer, 4), []);
    }
    assert_eq!(data(&inner, 4), [1]);
}

fn watches_come_and_go_under_traffic(list: ReadyList) {
    let engine = Engine::new();
    let set = EventPoll::with_ready_list(&engine, list).unwrap();
    let counters = counters(&engine, 4);
    thread::scope(|scope| {
        for producer in &counters {
            scope.spawn(move || (0..3_000).for_each(|_| producer.write(1).unwrap()));
        }
        scope.spawn(|| {
            for turn in 0..2_000 {
                let i = turn % 4;
                let flags = if turn % 3 == 0 { Events::ET } else { Events::empty() };
                set.add(i, &counters[i as usize], Event::new(Events::IN | flags, i as u64))
                    .unwrap();
                data(&set, 2);
                set.remove(i, &counters[i as usize]).unwrap();
            }
        });
    });
    assert!(set.is_empty());
    assert_eq!(data(&set, 8), []);
    add_all(&set, &counters, Events::empty());
    assert_eq!(data(&set, 8), [0, 1, 2, 3]);
}
