//! EPOLLONESHOT: one report, then disarmed until EPOLL_CTL_MOD.

use crate::backend::Backend;
use crate::objects::{Counter, ET, HUP, IN, LARGEST, ONESHOT, OUT, Set, pipe};
use libc::EEXIST;

on_both!(
    reports_once,
    disarms_the_whole_entry,
    disarms_hang_up_too,
    a_modify_arms_it_again,
    a_modify_can_leave_it_disarmed_by_not_holding,
    a_modify_can_end_it,
    a_disarmed_watch_is_still_there,
    with_edges_too,
    two_sets_have_a_shot_each,
    a_shot_that_no_longer_holds_is_kept,
);

fn reports_once<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ONESHOT, 7);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(set.ready(), []);
    counter.write(1);
    counter.drain();
    counter.write(1);
    assert_eq!(set.ready(), []);
}

fn disarms_the_whole_entry<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | OUT | ONESHOT, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    counter.write(1);
    assert_eq!(set.ready(), []);
    counter.write(LARGEST - 1);
    counter.drain();
    assert_eq!(set.ready(), []);
}

fn disarms_hang_up_too<B: Backend>() {
    let set = Set::<B>::new();
    let (reader, writer) = pipe::<B>();
    set.add(&reader, IN | ONESHOT, 7);
    writer.write(b"x").unwrap();
    assert_eq!(set.ready(), [(7, IN)]);
    drop(writer);
    assert_eq!(set.ready(), []);
    set.modify(&reader, ONESHOT, 8);
    assert_eq!(set.ready(), [(8, HUP)]);
    assert_eq!(set.ready(), []);
}

fn a_modify_arms_it_again<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | ONESHOT, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    for data in 8..11 {
        set.modify(&counter, IN | ONESHOT, data);
        assert_eq!(set.ready(), [(data, IN)]);
        assert_eq!(set.ready(), []);
    }
}

fn a_modify_can_leave_it_disarmed_by_not_holding<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | ONESHOT, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    counter.drain();
    set.modify(&counter, IN | ONESHOT, 8);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(8, IN)]);
}

fn a_modify_can_end_it<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | ONESHOT, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    set.modify(&counter, IN, 8);
    assert_eq!(set.ready(), [(8, IN)]);
    assert_eq!(set.ready(), [(8, IN)]);
}

fn a_disarmed_watch_is_still_there<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | ONESHOT, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(set.try_add(&counter, IN, 8), Err(EEXIST));
    set.remove(&counter);
    set.add(&counter, IN, 8);
    assert_eq!(set.ready(), [(8, IN)]);
}

fn with_edges_too<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET | ONESHOT, 7);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    counter.write(1);
    assert_eq!(set.ready(), []);
    set.modify(&counter, IN | ET | ONESHOT, 8);
    assert_eq!(set.ready(), [(8, IN)]);
    assert_eq!(set.ready(), []);
}

fn two_sets_have_a_shot_each<B: Backend>() {
    let (sets, counter) = ([Set::<B>::new(), Set::new()], Counter::new(1));
    for set in &sets {
        set.add(&counter, IN | ONESHOT, 1);
    }
    for set in &sets {
        assert_eq!(set.ready(), [(1, IN)]);
        counter.write(1);
        assert_eq!(set.ready(), []);
    }
}

/// Only a report disarms: an event that is gone before a wait polls it is not reported.
fn a_shot_that_no_longer_holds_is_kept<B: Backend>() {
    for flags in [0, ET] {
        let (set, counter) = (Set::<B>::new(), Counter::new(0));
        set.add(&counter, IN | ONESHOT | flags, 1);
        counter.write(1);
        counter.drain();
        assert_eq!(set.ready(), []);
        counter.write(1);
        assert_eq!(set.ready(), [(1, IN)]);
        assert_eq!(set.ready(), []);
    }
}
