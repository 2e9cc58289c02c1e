//! The `maxevents` argument: the rest stays ready, and delivery goes round.

use crate::backend::Backend;
use crate::objects::{Counter, ET, IN, ONESHOT, Set};

on_both!(
    leaves_the_rest_ready,
    level_triggered_delivery_goes_round,
    what_becomes_ready_later_gets_its_turn,
    edge_triggered_delivery_goes_on_where_it_stopped,
    a_new_edge_goes_behind_what_is_left,
    a_watch_that_no_longer_holds_takes_no_room,
    nothing_starves_beside_a_busy_source,
);

fn ready_counters<B: Backend>(set: &Set<B>, n: u64, flags: u32) -> Vec<Counter<B>> {
    let add = |data| {
        let counter = Counter::new(1);
        set.add(&counter, IN | flags, data);
        counter
    };
    (0..n).map(add).collect()
}

fn data<B: Backend>(set: &Set<B>, max: usize) -> Vec<u64> {
    set.wait(max, 0).unwrap().into_iter().map(|(data, _)| data).collect()
}

fn leaves_the_rest_ready<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 5, ONESHOT);
    assert_eq!(data(&set, 2), [0, 1]);
    assert_eq!(data(&set, 2), [2, 3]);
    assert_eq!(data(&set, 2), [4]);
    assert_eq!(data(&set, 2), []);
    drop(counters);
}

fn level_triggered_delivery_goes_round<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 5, 0);
    assert_eq!(data(&set, 2), [0, 1]);
    assert_eq!(data(&set, 2), [2, 3]);
    assert_eq!(data(&set, 2), [4, 0]);
    assert_eq!(data(&set, 2), [1, 2]);
    assert_eq!(data(&set, 8), [3, 4, 0, 1, 2]);
    drop(counters);
}

fn what_becomes_ready_later_gets_its_turn<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 3, 0);
    counters[1].drain();
    assert_eq!(data(&set, 1), [0]);
    // The ready list: 1 (which is no longer ready), 2, 0.
    assert_eq!(data(&set, 1), [2]);
    counters[1].write(1);
    assert_eq!(data(&set, 3), [0, 2, 1]);
}

fn edge_triggered_delivery_goes_on_where_it_stopped<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 3, ET);
    assert_eq!(data(&set, 1), [0]);
    counters[0].write(1);
    assert_eq!(data(&set, 1), [1]);
    assert_eq!(data(&set, 8), [2, 0]);
    assert_eq!(data(&set, 8), []);
}

fn a_new_edge_goes_behind_what_is_left<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 4, ET);
    assert_eq!(data(&set, 2), [0, 1]);
    counters[1].write(1);
    counters[3].write(1);
    counters[0].write(1);
    assert_eq!(data(&set, 8), [2, 3, 1, 0]);
}

fn a_watch_that_no_longer_holds_takes_no_room<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 5, 0);
    for counter in &counters[..3] {
        counter.drain();
    }
    assert_eq!(data(&set, 1), [3]);
    assert_eq!(data(&set, 2), [4, 3]);
}

fn nothing_starves_beside_a_busy_source<B: Backend>() {
    let set = Set::<B>::new();
    let counters = ready_counters(&set, 3, ET);
    let mut seen = [0; 3];
    for _ in 0..300 {
        let [next] = data(&set, 1)[..] else { panic!("something is always ready") };
        seen[next as usize] += 1;
        // The busy counter has a new edge all the time; the others only after they have been
        // served.
        counters[0].write(1);
        counters[next as usize].write(1);
    }
    assert_eq!(seen, [100; 3]);
}
