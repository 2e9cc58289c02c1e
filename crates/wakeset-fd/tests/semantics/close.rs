//! Closing: a watch goes with the last descriptor of what it watches.

use crate::backend::Backend;
use crate::objects::{Counter, ET, Fd, IN, LONG, OUT, Set, ctl, pipe};
use crate::task::Task;
use libc::{EBADF, EEXIST, ENOENT, EPERM, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use std::os::fd::AsRawFd;

on_both!(
    the_last_close_removes_the_watch,
    a_close_takes_back_a_report_nobody_has_seen,
    a_duplicate_keeps_the_watch,
    a_watch_whose_number_is_closed_cannot_be_reached,
    a_number_used_again_is_another_key,
    a_number_replaced_by_dup2_is_closed,
    a_set_goes_with_its_last_descriptor,
    a_duplicate_of_a_set_is_the_set,
    closing_the_set_leaves_its_sources,
    closing_an_inner_set_removes_it_from_the_outer,
    closing_an_outer_set_leaves_the_inner_one,
    closing_in_the_middle_of_three,
    a_waiter_outlives_the_number_of_its_set,
    a_waiter_does_not_hear_of_a_closed_source,
    a_reader_outlives_the_number_it_reads,
    a_kernel_descriptor_goes_too,
    open_add_signal_wait_close_by_many_threads,
    many_threads_share_one_set,
    numbers_are_used_again_and_again,
    a_watch_removed_while_its_event_is_held,
);

fn the_last_close_removes_the_watch<B: Backend>() {
    let (set, counter, other) = (Set::<B>::new(), Counter::new(0), Counter::new(1));
    set.add(&counter, IN, 1);
    set.add(&other, IN, 2);
    drop(counter);
    assert_eq!(set.ready(), [(2, IN)]);
}

fn a_close_takes_back_a_report_nobody_has_seen<B: Backend>() {
    for flags in [0, ET] {
        let (set, counter) = (Set::<B>::new(), Counter::new(0));
        set.add(&counter, IN | flags, 1);
        counter.write(1);
        drop(counter);
        assert_eq!(set.ready(), []);
    }
}

/// epoll(7), questions and answers 6.
fn a_duplicate_keeps_the_watch<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let same = counter.dup();
    drop(counter);
    assert_eq!(set.ready(), []);
    same.write(1);
    assert_eq!(set.ready(), [(1, IN)]);
    same.drain();
    assert_eq!(set.ready(), []);
    same.write(1);
    drop(same);
    assert_eq!(set.ready(), []);
}

fn a_watch_whose_number_is_closed_cannot_be_reached<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Fd::<B>::own(B::eventfd(1, 0).unwrap()));
    set.add(&counter, IN, 1);
    let same = counter.dup();
    let number = counter.as_raw_fd();
    // The counter is replaced by a second number of itself and closed there, so that no other test
    // gets its number in the meantime.
    let spare = Counter::<B>::new(0);
    B::dup2(spare.as_raw_fd(), number).unwrap();
    for op in [EPOLL_CTL_MOD, EPOLL_CTL_DEL] {
        assert_eq!(ctl::<B>(set.as_raw_fd(), op, number, OUT, 2), Err(ENOENT));
        assert_eq!(ctl::<B>(set.as_raw_fd(), op, same.as_raw_fd(), OUT, 2), Err(ENOENT));
    }
    assert_eq!(set.ready(), [(1, IN)]);
    // Back under its number, the watch can be removed.
    B::dup2(same.as_raw_fd(), number).unwrap();
    set.modify(&counter, OUT, 3);
    assert_eq!(set.ready(), [(3, OUT)]);
    set.remove(&counter);
}

fn a_number_used_again_is_another_key<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    set.add(&counter, IN, 1);
    let old = counter.dup();
    let new = Counter::<B>::new(0);
    B::dup2(new.as_raw_fd(), counter.as_raw_fd()).unwrap();
    // `counter` is now a number of `new`.
    set.add(&counter, IN, 2);
    assert_eq!(set.try_add(&counter, IN, 2), Err(EEXIST));
    old.write(1);
    assert_eq!(set.ready(), [(1, IN)]);
    new.write(1);
    assert_eq!(set.ready(), [(1, IN), (2, IN)]);
    set.remove(&counter);
    assert_eq!(set.ready(), [(1, IN)]);
    drop(old);
    assert_eq!(set.ready(), []);
}

fn a_number_replaced_by_dup2_is_closed<B: Backend>() {
    let (set, counter, other) = (Set::<B>::new(), Counter::<B>::new(1), Counter::<B>::new(1));
    set.add(&counter, IN, 1);
    set.add(&other, IN, 2);
    assert_eq!(B::dup2(other.as_raw_fd(), counter.as_raw_fd()), Ok(counter.as_raw_fd()));
    assert_eq!(set.ready(), [(2, IN)]);
    assert_eq!(set.try_remove(&counter), Err(ENOENT));
    // dup2(2) onto itself does nothing.
    assert_eq!(B::dup2(other.as_raw_fd(), other.as_raw_fd()), Ok(other.as_raw_fd()));
    assert_eq!(set.ready(), [(2, IN)]);
    assert_eq!(B::dup2(-1, other.as_raw_fd()), Err(EBADF));
    assert_eq!(set.ready(), [(2, IN)]);
}

fn a_set_goes_with_its_last_descriptor<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    set.add(&counter, IN, 1);
    let same = set.dup();
    drop(set);
    assert_eq!(same.ready(), [(1, IN)]);
    assert_eq!(same.try_add(&counter, IN, 1), Err(EEXIST));
    drop(same);
    counter.write(1);
    assert_eq!(counter.read(), 2);
}

fn a_duplicate_of_a_set_is_the_set<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    let same = set.dup();
    set.add(&counter, IN | ET, 1);
    counter.write(1);
    assert_eq!(same.ready(), [(1, IN)]);
    assert_eq!(set.ready(), []);
    same.remove(&counter);
    assert_eq!(set.try_remove(&counter), Err(ENOENT));
}

fn closing_the_set_leaves_its_sources<B: Backend>() {
    let (set, other, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(0));
    set.add(&counter, IN, 1);
    other.add(&counter, IN, 2);
    drop(set);
    counter.write(1);
    assert_eq!(other.ready(), [(2, IN)]);
    let again = Set::new();
    again.add(&counter, IN, 3);
    assert_eq!(again.ready(), [(3, IN)]);
}

fn closing_an_inner_set_removes_it_from_the_outer<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(1));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN, 2);
    assert_eq!(outer.ready(), [(2, IN)]);
    drop(inner);
    assert_eq!(outer.ready(), []);
    counter.write(1);
    assert_eq!(outer.ready(), []);
}

fn closing_an_outer_set_leaves_the_inner_one<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(0));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN, 2);
    counter.write(1);
    drop(outer);
    assert_eq!(inner.ready(), [(1, IN)]);
    counter.write(1);
    assert_eq!(inner.ready(), [(1, IN)]);
}

fn closing_in_the_middle_of_three<B: Backend>() {
    let (top, middle, bottom) = (Set::<B>::new(), Set::<B>::new(), Set::<B>::new());
    let counter = Counter::<B>::new(0);
    bottom.add(&counter, IN, 1);
    middle.add(&bottom, IN, 2);
    top.add(&middle, IN, 3);
    counter.write(1);
    drop(middle);
    assert_eq!(top.ready(), []);
    counter.write(1);
    assert_eq!(top.ready(), []);
    assert_eq!(bottom.ready(), [(1, IN)]);
    top.add(&bottom, IN, 4);
    assert_eq!(top.ready(), [(4, IN)]);
}

fn a_waiter_outlives_the_number_of_its_set<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    set.add(&counter, IN, 1);
    let number = set.as_raw_fd();
    let task = Task::asleep(move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        unsafe { B::epoll_wait(number, &mut event, 1, LONG) }.map(|n| (n, event.u64, event.events))
    });
    drop(set);
    task.until_asleep();
    assert!(!task.has_ended());
    counter.write(1);
    assert_eq!(task.join(), Ok((1, 1, IN)));
}

fn a_waiter_does_not_hear_of_a_closed_source<B: Backend>() {
    let (set, counter, other) = (Set::<B>::new(), Counter::<B>::new(0), Counter::<B>::new(0));
    set.add(&counter, IN | OUT, 1);
    set.modify(&counter, IN, 1);
    set.add(&other, IN, 2);
    let waiting = set.clone();
    let task = Task::asleep(move || waiting.wait(4, LONG));
    drop(counter);
    task.until_asleep();
    assert!(!task.has_ended());
    other.write(1);
    assert_eq!(task.join(), Ok(vec![(2, IN)]));
}

fn a_reader_outlives_the_number_it_reads<B: Backend>() {
    let counter = Counter::<B>::blocking(0);
    let same = counter.dup();
    let number = counter.as_raw_fd();
    let task = Task::asleep(move || {
        let mut bytes = [0; 8];
        // SAFETY: a buffer of 8 bytes.
        unsafe { B::read(number, bytes.as_mut_ptr(), 8) }.map(|_| u64::from_ne_bytes(bytes))
    });
    drop(counter);
    task.until_asleep();
    assert!(!task.has_ended());
    same.write(3);
    assert_eq!(task.join(), Ok(3));
}

fn a_kernel_descriptor_goes_too<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    let (reader, writer) = pipe::<B>();
    set.add(&reader, IN, 1);
    set.add(&counter, IN, 2);
    writer.write(b"x").unwrap();
    assert_eq!(set.ready(), [(1, IN)]);
    let same = reader.dup();
    drop(reader);
    assert_eq!(set.ready(), [(1, IN)]);
    drop(same);
    assert_eq!(set.ready(), []);
    counter.write(1);
    assert_eq!(set.ready(), [(2, IN)]);
}

/// One connection per request: everything is made, used once and closed without a removal.
fn open_add_signal_wait_close_by_many_threads<B: Backend>() {
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            Task::start(|| {
                for turn in 0..400 {
                    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
                    set.add(&counter, IN, turn);
                    counter.write(1);
                    assert_eq!(set.next(), (turn, IN));
                    if turn % 2 == 0 {
                        drop(set);
                    }
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(Task::join);
}

fn many_threads_share_one_set<B: Backend>() {
    let set = Set::<B>::new();
    let (outer, inner) = (Set::<B>::new(), Set::<B>::new());
    set.add(&inner, IN, u64::MAX);
    outer.add(&set, IN, 0);
    let tasks: Vec<_> = (0..4u64)
        .map(|thread| {
            let (set, outer) = (set.clone(), outer.clone());
            Task::start(move || {
                for turn in 0..300 {
                    let counter = Counter::<B>::new(0);
                    set.add(&counter, IN, thread << 32 | turn);
                    counter.write(1);
                    assert!(!outer.ready().is_empty());
                    let got = set.wait(8, LONG).unwrap();
                    assert!(!got.is_empty());
                    assert!(got.iter().all(|&(data, events)| data >> 32 < 4 && events == IN));
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(Task::join);
    assert_eq!(set.ready(), []);
    assert_eq!(outer.ready(), []);
}

/// A new object under an old number has no history.
fn numbers_are_used_again_and_again<B: Backend>() {
    let place = Counter::<B>::new(0);
    let watcher = Set::<B>::new();
    for turn in 0..200 {
        let number = place.as_raw_fd();
        if turn % 3 == 0 {
            let set = Set::<B>::new();
            B::dup2(set.as_raw_fd(), number).unwrap();
            let counter = Counter::<B>::new(1);
            assert_eq!(ctl::<B>(number, EPOLL_CTL_ADD, counter.as_raw_fd(), IN, turn), Ok(()));
            assert_eq!(set.ready(), [(turn, IN)]);
            assert_eq!(place.try_write(1), Err(libc::EINVAL));
        } else {
            let new = Counter::<B>::new(turn as u32);
            B::dup2(new.as_raw_fd(), number).unwrap();
            assert_eq!(place.try_read(), Ok(turn));
        }
        assert_eq!(watcher.try_remove(&place), Err(ENOENT));
        watcher.add(&place, IN, turn);
        assert_eq!(watcher.ready(), []);
    }
}

/// The advice of epoll(7) for programs that keep events: handling one event of a batch closes the
/// descriptor of another. Once removed and closed, that one is not reported again, not even when
/// its number is used again.
fn a_watch_removed_while_its_event_is_held<B: Backend>() {
    let set = Set::<B>::new();
    let mut counters: Vec<_> = (0..4).map(|_| Counter::<B>::new(1)).collect();
    for (data, counter) in counters.iter().enumerate() {
        set.add(counter, IN, data as u64);
    }
    assert_eq!(set.ready(), [(0, IN), (1, IN), (2, IN), (3, IN)]);
    // The first event's handler closes the last descriptor.
    let last = counters.pop().unwrap();
    let number = last.as_raw_fd();
    set.remove(&last);
    drop(last);
    assert_eq!(set.ready(), [(0, IN), (1, IN), (2, IN)]);
    // Another test may have the number by now, perhaps for a file that cannot be watched.
    let removed = set.try_remove(&number);
    assert!(matches!(removed, Err(ENOENT | EBADF | EPERM)), "{removed:?}");
}
