//! Level-triggered watches: reported as long as the condition holds.

use crate::backend::Backend;
use crate::objects::{
    Counter, ET, IN, LARGEST, ONESHOT, OUT, PRI, RDBAND, RDHUP, RDNORM, Set, WAKEUP, WRBAND, WRNORM,
};

on_both!(
    reported_until_drained,
    readiness_that_came_and_went_is_not_reported,
    an_add_reports_what_is_ready_already,
    in_and_out_are_reported_together,
    a_full_counter_is_not_writable,
    only_what_was_asked_for_is_reported,
    a_counter_has_no_other_bits,
    interest_in_nothing_reports_nothing,
    the_wakeup_flag_changes_nothing,
    data_is_handed_back_whole,
    first_come_first_reported,
    the_newest_watch_of_one_source_is_told_first,
    a_removed_watch_is_silent,
    two_sets_see_the_same_source,
    a_thousand_watches_are_all_reported,
    flags_are_never_reported,
);

fn reported_until_drained<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 7);
    assert_eq!(set.ready(), []);
    counter.write(2);
    for _ in 0..3 {
        assert_eq!(set.ready(), [(7, IN)]);
    }
    assert_eq!(counter.read(), 2);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn readiness_that_came_and_went_is_not_reported<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 7);
    counter.write(1);
    counter.drain();
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn an_add_reports_what_is_ready_already<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 7);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn in_and_out_are_reported_together<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | OUT, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    counter.drain();
    assert_eq!(set.ready(), [(7, OUT)]);
}

fn a_full_counter_is_not_writable<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | OUT, 7);
    counter.write(LARGEST - 1);
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    counter.drain();
    assert_eq!(set.ready(), [(7, OUT)]);
}

fn only_what_was_asked_for_is_reported<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, OUT, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    counter.write(LARGEST - 1);
    assert_eq!(set.ready(), []);
    counter.drain();
    assert_eq!(set.ready(), [(7, OUT)]);
}

/// An eventfd's poll reports EPOLLIN and EPOLLOUT, and not their synonyms.
fn a_counter_has_no_other_bits<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, RDNORM | WRNORM | PRI | RDBAND | WRBAND | RDHUP, 7);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), []);
    set.modify(&counter, RDNORM | IN, 7);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn interest_in_nothing_reports_nothing<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, 0, 7);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN, 7);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn the_wakeup_flag_changes_nothing<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | WAKEUP, 7);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    set.modify(&counter, IN | ET | WAKEUP, 8);
    assert_eq!(set.ready(), [(8, IN)]);
    assert_eq!(set.ready(), []);
}

fn data_is_handed_back_whole<B: Backend>() {
    let set = Set::<B>::new();
    let all = [0, 1, u64::MAX, 0x0123_4567_89ab_cdef, 1 << 63];
    let counters = all.map(|data| {
        let counter = Counter::new(1);
        set.add(&counter, IN, data);
        counter
    });
    assert_eq!(set.ready(), all.map(|data| (data, IN)));
    drop(counters);
}

fn first_come_first_reported<B: Backend>() {
    let set = Set::<B>::new();
    let counters: [Counter<B>; 5] = std::array::from_fn(|i| {
        let counter = Counter::new(0);
        set.add(&counter, IN | ET, i as u64);
        counter
    });
    for i in [3, 0, 4, 1, 0, 3, 2] {
        counters[i].write(1);
    }
    assert_eq!(set.ready(), [3, 0, 4, 1, 2].map(|data| (data, IN)));
}

/// A source tells its watches in the order of its wait queue, and a new watch goes to the head.
fn the_newest_watch_of_one_source_is_told_first<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    let (second, third) = (counter.dup(), counter.dup());
    set.add(&counter, IN, 1);
    set.add(&second, IN, 2);
    set.add(&third, IN, 3);
    counter.write(1);
    assert_eq!(set.ready(), [(3, IN), (2, IN), (1, IN)]);
}

fn a_removed_watch_is_silent<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 7);
    set.remove(&counter);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), []);
    set.add(&counter, IN, 8);
    assert_eq!(set.ready(), [(8, IN)]);
}

fn two_sets_see_the_same_source<B: Backend>() {
    let (one, other, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::new(0));
    one.add(&counter, IN, 1);
    other.add(&counter, IN | ET, 2);
    counter.write(1);
    assert_eq!(one.ready(), [(1, IN)]);
    assert_eq!(other.ready(), [(2, IN)]);
    assert_eq!(one.ready(), [(1, IN)]);
    assert_eq!(other.ready(), []);
    counter.drain();
    assert_eq!(one.ready(), []);
}

fn a_thousand_watches_are_all_reported<B: Backend>() {
    let set = Set::<B>::new();
    let counters: Vec<Counter<B>> = (0..1000)
        .map(|data| {
            let counter = Counter::new(0);
            set.add(&counter, IN, data);
            counter
        })
        .collect();
    for counter in &counters {
        counter.write(1);
    }
    let all: Vec<_> = (0..1000).map(|data| (data, IN)).collect();
    assert_eq!(set.wait(1001, 0).unwrap(), all);
    for counter in counters.iter().step_by(2) {
        counter.drain();
    }
    let odd: Vec<_> = (0..1000).filter(|data| data % 2 == 1).map(|data| (data, IN)).collect();
    assert_eq!(set.wait(1001, 0).unwrap(), odd);
}

/// The input flags are not events: only events are reported, whatever else was in the mask.
fn flags_are_never_reported<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    for flags in [ET, ONESHOT, WAKEUP, ET | ONESHOT | WAKEUP, 1 << 27, 0x0fff_0000] {
        set.add(&counter, IN | OUT | flags, 1);
        assert_eq!(set.ready(), [(1, IN | OUT)], "{flags:#x}");
        set.remove(&counter);
    }
}
