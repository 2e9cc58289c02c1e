//! Edge-triggered watches: reported once for each change.

use crate::backend::Backend;
use crate::objects::{Counter, ET, IN, LARGEST, OUT, Set};
use libc::EFD_NONBLOCK;

on_both!(
    every_write_is_an_edge_even_undrained,
    writes_before_a_look_are_one_event,
    a_write_of_nothing_is_an_edge_if_something_holds,
    an_edge_that_no_longer_holds_is_dropped,
    a_watch_begins_with_an_edge_if_ready,
    full_then_drained_is_a_writable_edge,
    a_write_is_no_edge_for_out,
    a_read_is_no_edge_for_in,
    in_and_out_have_edges_of_their_own,
    a_semaphore_read_is_a_writable_edge,
    a_refused_call_is_no_edge,
    draining_by_halves_gives_no_edge,
    another_set_does_not_consume_the_edge,
);

fn every_write_is_an_edge_even_undrained<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 7);
    assert_eq!(set.ready(), []);
    for _ in 0..5 {
        counter.write(1);
        assert_eq!(set.ready(), [(7, IN)]);
        assert_eq!(set.ready(), []);
    }
    assert_eq!(counter.read(), 5);
    assert_eq!(set.ready(), []);
}

fn writes_before_a_look_are_one_event<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 7);
    counter.write(1);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(set.ready(), []);
}

fn a_write_of_nothing_is_an_edge_if_something_holds<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 7);
    counter.write(0);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    counter.write(0);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn an_edge_that_no_longer_holds_is_dropped<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 7);
    counter.write(1);
    counter.drain();
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
}

fn a_watch_begins_with_an_edge_if_ready<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | OUT | ET, 7);
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    assert_eq!(set.ready(), []);
}

fn full_then_drained_is_a_writable_edge<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, OUT | ET, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    for _ in 0..3 {
        counter.write(LARGEST);
        assert_eq!(set.ready(), []);
        assert_eq!(counter.read(), LARGEST);
        assert_eq!(set.ready(), [(7, OUT)]);
        assert_eq!(set.ready(), []);
    }
}

fn a_write_is_no_edge_for_out<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, OUT | ET, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    counter.write(1);
    assert_eq!(set.ready(), []);
}

fn a_read_is_no_edge_for_in<B: Backend>() {
    let (set, counter) =
        (Set::<B>::new(), Counter::<B>::with_flags(2, EFD_NONBLOCK | libc::EFD_SEMAPHORE));
    set.add(&counter, IN | ET, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(counter.read(), 1);
    assert_eq!(set.ready(), []);
}

/// Either kind of change wakes the watch, and the report has all bits that are true at that moment.
fn in_and_out_have_edges_of_their_own<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | OUT | ET, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    counter.write(LARGEST - 1);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(set.ready(), []);
    counter.read();
    assert_eq!(set.ready(), [(7, OUT)]);
    assert_eq!(set.ready(), []);
    counter.write(LARGEST);
    counter.read();
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    assert_eq!(set.ready(), []);
}

fn a_semaphore_read_is_a_writable_edge<B: Backend>() {
    let (set, counter) =
        (Set::<B>::new(), Counter::<B>::with_flags(3, EFD_NONBLOCK | libc::EFD_SEMAPHORE));
    set.add(&counter, IN | OUT | ET, 7);
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    counter.read();
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    counter.read();
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    counter.read();
    assert_eq!(set.ready(), [(7, OUT)]);
    assert_eq!(set.ready(), []);
}

fn a_refused_call_is_no_edge<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | OUT | ET, 7);
    assert_eq!(set.ready(), [(7, OUT)]);
    assert_eq!(counter.try_read(), Err(libc::EAGAIN));
    assert_eq!(counter.try_write(u64::MAX), Err(libc::EINVAL));
    assert_eq!(set.ready(), []);
    counter.write(LARGEST);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(counter.try_write(1), Err(libc::EAGAIN));
    assert_eq!(set.ready(), []);
}

/// epoll(7), question 9: until a read fails with EAGAIN, another report is not guaranteed.
fn draining_by_halves_gives_no_edge<B: Backend>() {
    let (set, counter) =
        (Set::<B>::new(), Counter::<B>::with_flags(2, EFD_NONBLOCK | libc::EFD_SEMAPHORE));
    set.add(&counter, IN | ET, 7);
    assert_eq!(set.ready(), [(7, IN)]);
    counter.read();
    assert_eq!(set.ready(), []);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!((counter.read(), counter.read()), (1, 1));
}

fn another_set_does_not_consume_the_edge<B: Backend>() {
    let (one, other, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::new(0));
    one.add(&counter, IN | ET, 1);
    other.add(&counter, IN | ET, 2);
    counter.write(1);
    assert_eq!(one.ready(), [(1, IN)]);
    assert_eq!(one.ready(), []);
    assert_eq!(other.ready(), [(2, IN)]);
    assert_eq!(other.ready(), []);
}
