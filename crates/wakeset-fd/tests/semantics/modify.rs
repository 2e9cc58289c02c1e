//! EPOLL_CTL_MOD: looks again, and reports readiness that is already there.

use crate::backend::Backend;
use crate::objects::{Counter, ET, IN, LARGEST, OUT, Set};

on_both!(
    reports_what_holds_already,
    is_a_new_edge,
    is_no_edge_if_nothing_holds,
    replaces_interest_and_data,
    takes_back_a_report_that_nobody_has_seen,
    turns_level_to_edge_and_back,
    keeps_its_place_among_the_ready,
    does_not_queue_twice,
);

fn reports_what_holds_already<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, 0, 7);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN, 8);
    assert_eq!(set.ready(), [(8, IN)]);
}

fn is_a_new_edge<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | ET, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(set.ready(), []);
    for data in 8..11 {
        set.modify(&counter, IN | ET, data);
        assert_eq!(set.ready(), [(data, IN)]);
        assert_eq!(set.ready(), []);
    }
}

fn is_no_edge_if_nothing_holds<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 7);
    set.modify(&counter, IN | ET, 8);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(8, IN)]);
}

fn replaces_interest_and_data<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    set.modify(&counter, OUT, 8);
    assert_eq!(set.ready(), [(8, OUT)]);
    counter.write(LARGEST - 1);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN | OUT, 9);
    assert_eq!(set.ready(), [(9, IN)]);
}

fn takes_back_a_report_that_nobody_has_seen<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | ET, 7);
    set.modify(&counter, 0, 8);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN | ET, 9);
    assert_eq!(set.ready(), [(9, IN)]);
}

fn turns_level_to_edge_and_back<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 1);
    assert_eq!(set.ready(), [(1, IN)]);
    set.modify(&counter, IN | ET, 2);
    assert_eq!(set.ready(), [(2, IN)]);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN, 3);
    assert_eq!(set.ready(), [(3, IN)]);
    assert_eq!(set.ready(), [(3, IN)]);
}

fn keeps_its_place_among_the_ready<B: Backend>() {
    let set = Set::<B>::new();
    let counters: [Counter<B>; 3] = std::array::from_fn(|i| {
        let counter = Counter::new(1);
        set.add(&counter, IN, i as u64);
        counter
    });
    set.modify(&counters[0], IN, 9);
    assert_eq!(set.ready(), [(9, IN), (1, IN), (2, IN)]);
}

fn does_not_queue_twice<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 7);
    counter.write(1);
    set.modify(&counter, IN | ET, 8);
    counter.write(1);
    assert_eq!(set.ready(), [(8, IN)]);
    assert_eq!(set.ready(), []);
}
