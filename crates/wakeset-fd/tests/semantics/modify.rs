//! EPOLL_CTL_MOD: polls again, and reports readiness that is already there.

use crate::backend::Backend;
use crate::objects::{Counter, ET, IN, LARGEST, ONESHOT, OUT, Set};
use libc::{EFD_NONBLOCK, EFD_SEMAPHORE};

on_both!(
    reports_what_holds_already,
    is_a_new_edge,
    is_no_edge_if_nothing_holds,
    replaces_interest_and_data,
    takes_back_a_report_that_nobody_has_seen,
    turns_level_to_edge_and_back,
    keeps_its_place_among_the_ready,
    comes_behind_what_became_ready_before,
    does_not_queue_twice,
    data_alone_changes_what_is_queued,
    arms_the_next_unit_of_a_semaphore,
    disarms_what_is_queued,
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

fn comes_behind_what_became_ready_before<B: Backend>() {
    let (set, written) = (Set::<B>::new(), Counter::new(0));
    let (changed, added) = (Counter::new(1), Counter::new(1));
    set.add(&written, IN, 1);
    set.add(&changed, 0, 2);
    written.write(1);
    set.modify(&changed, IN, 2);
    set.add(&added, IN, 3);
    assert_eq!(set.ready(), [(1, IN), (2, IN), (3, IN)]);
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

fn data_alone_changes_what_is_queued<B: Backend>() {
    for flags in [0, ET, ONESHOT] {
        let (set, counter) = (Set::<B>::new(), Counter::new(0));
        set.add(&counter, IN | flags, 1);
        counter.write(1);
        set.modify(&counter, IN | flags, 2);
        assert_eq!(set.wait(4, 0), Ok(vec![(2, IN)]));
        set.modify(&counter, IN | flags, 3);
        assert_eq!(set.wait(4, 0), Ok(vec![(3, IN)]), "re-armed, with other data");
    }
}

/// One unit for each report: edge-triggered and oneshot watches are armed again for what a
/// semaphore still holds.
fn arms_the_next_unit_of_a_semaphore<B: Backend>() {
    for flags in [ET, ONESHOT, ET | ONESHOT] {
        let (set, counter) =
            (Set::<B>::new(), Counter::with_flags(3, EFD_NONBLOCK | EFD_SEMAPHORE));
        set.add(&counter, IN | flags, 0);
        for unit in 0..3 {
            assert_eq!(set.ready(), [(unit, IN)]);
            assert_eq!(set.ready(), []);
            assert_eq!(counter.read(), 1);
            assert_eq!(set.ready(), []);
            set.modify(&counter, IN | flags, unit + 1);
        }
        assert_eq!(set.ready(), []);
        counter.write(1);
        assert_eq!(set.ready(), [(3, IN)]);
    }
}

fn disarms_what_is_queued<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 1);
    counter.write(1);
    set.modify(&counter, 0, 2);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN | ET, 3);
    assert_eq!(set.ready(), [(3, IN)]);
    assert_eq!(set.ready(), []);
}
