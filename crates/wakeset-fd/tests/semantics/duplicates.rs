//! One description with several numbers: to which number a watch belongs, and what the close of
//! which number ends. epoll(7), questions and answers 6.

use crate::backend::Backend;
use crate::objects::{Counter, ET, Fd, IN, LONG, ONESHOT, OUT, Set, ctl, far_number};
use crate::task::Task;
use libc::{
    EAGAIN, EBADF, EEXIST, EINVAL, ENOENT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event,
};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

on_both!(
    each_number_has_a_watch_of_its_own,
    the_last_close_ends_it_in_any_order,
    a_watch_outlives_its_number,
    a_watch_moves_with_its_closed_number,
    a_state_is_that_of_the_description,
    a_set_is_the_same_by_each_number,
    a_set_is_nested_by_each_number,
    a_wait_goes_on_after_its_number_is_closed,
    a_read_goes_on_after_one_number_is_closed,
    a_number_of_several_is_replaced,
    a_number_is_replaced_beside_writers,
    a_number_is_closed_beside_writers,
    a_number_is_used_again_by_another_object,
    a_duplicate_replaces_the_set_that_watches_it,
);

fn sorted(mut reports: Vec<(u64, u32)>) -> Vec<(u64, u32)> {
    reports.sort_unstable();
    reports
}

fn each_number_has_a_watch_of_its_own<B: Backend>() {
    let (set, one) = (Set::<B>::new(), Counter::new(0));
    let other = one.dup();
    set.add(&one, IN | ET, 1);
    set.add(&other, IN | ONESHOT, 2);
    other.write(1);
    assert_eq!(sorted(set.ready()), [(1, IN), (2, IN)]);
    assert_eq!(set.ready(), []);
    set.modify(&other, IN, 3);
    assert_eq!(set.ready(), [(3, IN)]);
    set.remove(&one);
    assert_eq!(set.try_remove(&one), Err(ENOENT));
    one.write(1);
    assert_eq!(set.ready(), [(3, IN)]);
    set.remove(&other);
    assert_eq!(set.ready(), []);
}

fn the_last_close_ends_it_in_any_order<B: Backend>() {
    for last in 0..3 {
        for way in 0..2 {
            let (set, one) = (Set::<B>::new(), Counter::new(1));
            let (two, three) = (one.dup(), one.dup());
            set.add(&one, IN, 1);
            set.add(&two, IN, 2);
            set.add(&three, IN, 3);
            let mut numbers = vec![one, two, three];
            let kept = numbers.remove(last);
            drop(numbers.remove(way));
            drop(numbers);
            assert_eq!(sorted(set.ready()), [(1, IN), (2, IN), (3, IN)]);
            drop(kept);
            assert_eq!(set.ready(), []);
        }
    }
}

/// A number that no other test gets until it is closed here.
fn high<B: Backend>(of: &Counter<B>) -> RawFd {
    B::dup2(of.fd().as_raw_fd(), far_number()).unwrap()
}

fn a_watch_outlives_its_number<B: Backend>() {
    let (set, counter, another) = (Set::<B>::new(), Counter::<B>::new(1), Counter::<B>::new(0));
    let number = high(&counter);
    let change = |op| ctl::<B>(set.as_raw_fd(), op, number, IN, 2);
    assert_eq!(change(EPOLL_CTL_ADD), Ok(()));
    B::close(number).unwrap();
    assert_eq!(set.ready(), [(2, IN)]);
    assert_eq!([EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL].map(change), [Err(EBADF); 3]);
    // Another's, and its own again.
    B::dup2(another.fd().as_raw_fd(), number).unwrap();
    assert_eq!([EPOLL_CTL_MOD, EPOLL_CTL_DEL].map(change), [Err(ENOENT); 2]);
    B::dup2(counter.fd().as_raw_fd(), number).unwrap();
    assert_eq!(change(EPOLL_CTL_ADD), Err(EEXIST));
    assert_eq!(change(EPOLL_CTL_DEL), Ok(()));
    assert_eq!(set.ready(), []);
    B::close(number).unwrap();
}

fn a_watch_moves_with_its_closed_number<B: Backend>() {
    for taken in [false, true] {
        let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
        let another = Counter::<B>::new(0);
        let number = high(&counter);
        let change = |op| ctl::<B>(set.as_raw_fd(), op, number, IN, 2);
        assert_eq!(change(EPOLL_CTL_ADD), Ok(()));
        if taken {
            B::dup2(another.fd().as_raw_fd(), number).unwrap();
        } else {
            B::close(number).unwrap();
        }
        B::migrate(counter.fd().as_raw_fd());
        assert_eq!(set.ready(), [(2, IN)]);
        assert_eq!(change(EPOLL_CTL_DEL), Err(if taken { ENOENT } else { EBADF }));
        B::dup2(counter.fd().as_raw_fd(), number).unwrap();
        assert_eq!(change(EPOLL_CTL_ADD), Err(EEXIST));
        drop(counter);
        assert_eq!(set.ready(), [(2, IN)]);
        B::close(number).unwrap();
        assert_eq!(set.ready(), []);
    }
}

fn a_state_is_that_of_the_description<B: Backend>() {
    let one = Counter::<B>::new(3);
    let other = one.dup();
    assert_eq!(other.read(), 3);
    B::set_nonblocking(other.fd().as_raw_fd(), true).unwrap();
    assert_eq!(one.try_read(), Err(EAGAIN));
    one.write(4);
    drop(one);
    assert_eq!(other.read(), 4);
}

fn a_set_is_the_same_by_each_number<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    let twin = set.dup();
    let waiter = Task::start({
        let set = set.clone();
        move || set.next()
    });
    waiter.until_asleep();
    twin.add(&counter, IN | OUT | ET, 1);
    assert_eq!(waiter.join(), (1, OUT));
    assert_eq!(set.try_add(&counter, IN, 1), Err(EEXIST));
    drop(set);
    counter.write(1);
    assert_eq!(twin.ready(), [(1, IN | OUT)]);
}

fn a_set_is_nested_by_each_number<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(1));
    let twin = inner.dup();
    outer.add(&inner, IN, 1);
    outer.add(&twin, IN, 2);
    twin.add(&counter, IN, 3);
    assert_eq!(sorted(outer.ready()), [(1, IN), (2, IN)]);
    drop(inner);
    assert_eq!(sorted(outer.ready()), [(1, IN), (2, IN)]);
    drop(twin);
    assert_eq!(outer.ready(), []);
}

fn a_wait_goes_on_after_its_number_is_closed<B: Backend>() {
    for moves in [false, true] {
        let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
        let twin = set.dup();
        set.add(&counter, IN, 1);
        let number = set.as_raw_fd();
        let waiter = Task::start(move || {
            let mut event = epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event.
            let found = unsafe { B::epoll_wait(number, &raw mut event, 1, LONG) };
            (found, { event.u64 })
        });
        waiter.until_asleep();
        drop(set);
        if moves {
            B::migrate(twin.as_raw_fd());
        }
        counter.write(1);
        assert_eq!(waiter.join(), (Ok(1), 1));
        assert_eq!(twin.ready(), [(1, IN)]);
    }
}

fn a_read_goes_on_after_one_number_is_closed<B: Backend>() {
    for moves in [false, true] {
        let counter = Counter::<B>::with_flags(0, 0);
        let twin = counter.dup();
        let number = counter.fd().as_raw_fd();
        let reader = Task::start(move || {
            let mut value = [0; 8];
            // SAFETY: room for 8 bytes.
            unsafe { B::read(number, value.as_mut_ptr(), 8) }.map(|_| u64::from_ne_bytes(value))
        });
        reader.until_asleep();
        drop(counter);
        if moves {
            B::migrate(twin.fd().as_raw_fd());
        }
        twin.write(7);
        assert_eq!(reader.join(), Ok(7));
    }
}

fn a_number_of_several_is_replaced<B: Backend>() {
    let (set, one, two) = (Set::<B>::new(), Counter::<B>::new(1), Counter::<B>::new(0));
    let number = high(&one);
    let _twin = two.dup();
    assert_eq!(ctl::<B>(set.as_raw_fd(), EPOLL_CTL_ADD, number, IN, 1), Ok(()));
    B::dup2(two.fd().as_raw_fd(), number).unwrap();
    let now = Fd::<B>::own(number);
    now.write(&5_u64.to_ne_bytes()).unwrap();
    assert_eq!((one.read(), two.read()), (1, 5));
    assert_eq!(ctl::<B>(set.as_raw_fd(), EPOLL_CTL_ADD, number, IN, 2), Ok(()));
    two.write(1);
    assert_eq!(set.ready(), [(2, IN)]);
    one.write(1);
    assert_eq!(sorted(set.ready()), [(1, IN), (2, IN)]);
    drop(one);
    assert_eq!(set.ready(), [(2, IN)]);
}

/// Each write goes to what was there or to what is there now, and into nothing in between.
fn a_number_is_replaced_beside_writers<B: Backend>() {
    let (here, there) = (Counter::<B>::new(0), Counter::<B>::new(0));
    let _twins = [here.dup(), there.dup()];
    let number = high(&here);
    let over = AtomicBool::new(false);
    let written: u64 = std::thread::scope(|threads| {
        let writer = || {
            let mut written = 0;
            while !over.load(Ordering::Relaxed) {
                written += u64::from(write_one::<B>(number));
            }
            written
        };
        let writers = [threads.spawn(writer), threads.spawn(writer)];
        for round in 0..3_000 {
            let now = if round % 2 == 0 { &there } else { &here };
            B::dup2(now.fd().as_raw_fd(), number).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(value_of(&here) + value_of(&there), written);
    B::close(number).unwrap();
}

fn write_one<B: Backend>(number: RawFd) -> bool {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: 8 bytes.
    unsafe { B::write(number, one.as_ptr(), 8) == Ok(8) }
}

fn value_of<B: Backend>(counter: &Counter<B>) -> u64 {
    B::set_nonblocking(counter.fd().as_raw_fd(), true).unwrap();
    counter.try_read().unwrap_or(0)
}

/// Each write by a number that is closed meanwhile is one of the description, or fails.
fn a_number_is_closed_beside_writers<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let mut written = 0;
    for _ in 0..300 {
        // No other test gets it.
        let raw = high(&counter);
        written += std::thread::scope(|threads| {
            let writers = [(); 2].map(|()| {
                threads.spawn(move || {
                    let mut written = 0_u64;
                    while write_one::<B>(raw) {
                        written += 1;
                    }
                    written
                })
            });
            std::thread::sleep(std::time::Duration::from_micros(200));
            B::close(raw).unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u64>()
        });
    }
    assert_eq!(value_of(&counter), written);
}

fn a_number_is_used_again_by_another_object<B: Backend>() {
    for _ in 0..50 {
        let set = Set::<B>::new();
        let first = Counter::<B>::new(0);
        let kept = first.dup();
        set.add(&first, IN, 1);
        drop(first);
        // It may have the number of the first.
        let second = Counter::<B>::new(0);
        set.add(&second, IN, 2);
        kept.write(1);
        assert_eq!(set.ready(), [(1, IN)]);
        second.write(1);
        assert_eq!(sorted(set.ready()), [(1, IN), (2, IN)]);
        drop(kept);
        assert_eq!(set.ready(), [(2, IN)]);
    }
}

fn a_duplicate_replaces_the_set_that_watches_it<B: Backend>() {
    for several in [false, true] {
        let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
        let twin = several.then(|| set.dup());
        set.add(&counter, IN, 1);
        B::dup2(counter.fd().as_raw_fd(), set.as_raw_fd()).unwrap();
        assert_eq!(set.try_add(&counter, IN, 1), Err(EINVAL));
        counter.write(1);
        if let Some(twin) = twin {
            assert_eq!(twin.ready(), [(1, IN)]);
        }
        let mut value = [0; 8];
        // SAFETY: room for 8 bytes.
        assert_eq!(unsafe { B::read(set.as_raw_fd(), value.as_mut_ptr(), 8) }, Ok(8));
    }
}
