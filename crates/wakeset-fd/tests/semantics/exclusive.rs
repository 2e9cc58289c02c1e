//! EPOLLEXCLUSIVE: of several sets that watch one source, at least one is woken, and not all.

use crate::backend::Backend;
use crate::objects::{
    Counter, ERR, ET, EXCLUSIVE, HUP, IN, LARGEST, LONG, MSG, ONESHOT, OUT, PRI, RDBAND, RDHUP,
    RDNORM, Report, Set, WAKEUP, WRNORM, socket_pair,
};
use crate::task::{Task, ended};
use libc::{EEXIST, EINVAL, ENOENT};

on_both!(
    goes_with_a_few_bits_only,
    a_bad_second_add_is_told_of_its_bits,
    cannot_be_set_by_modify,
    cannot_be_modified,
    is_not_for_sets,
    a_refused_watch_is_not_there,
    alone_it_is_an_ordinary_watch,
    without_waiters_every_set_is_told,
    wakes_one_and_not_all,
    every_event_wakes_somebody,
    the_others_are_always_told,
    a_set_without_a_waiter_does_not_take_the_wake,
    the_oldest_watch_is_woken_first,
    added_again_it_goes_behind_the_others,
    a_waiter_that_asked_for_something_else_does_not_take_the_wake,
    a_waiter_outside_does_not_take_the_wake,
    a_waiter_woken_for_another_event_does_not_take_the_wake,
    writable_edges_are_exclusive_too,
    one_set_may_have_both_kinds,
);

fn goes_with_a_few_bits_only<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    for bits in [0, IN, OUT, IN | OUT, ERR | HUP, IN | ET, IN | OUT | ERR | HUP | WAKEUP | ET] {
        assert_eq!(set.try_add(&counter, bits | EXCLUSIVE, 1), Ok(()), "{bits:#x}");
        set.remove(&counter);
    }
    for bits in [ONESHOT, PRI, RDHUP, RDNORM, RDBAND, WRNORM, MSG, 1 << 27] {
        assert_eq!(set.try_add(&counter, IN | bits | EXCLUSIVE, 1), Err(EINVAL), "{bits:#x}");
    }
}

fn a_bad_second_add_is_told_of_its_bits<B: Backend>() {
    let (set, counter, (socket, _other)) = (Set::<B>::new(), Counter::new(0), socket_pair());
    set.add(&counter, IN, 1);
    set.add(&socket, IN, 2);
    for (bits, errno) in
        [(0, EEXIST), (EXCLUSIVE, EEXIST), (ONESHOT, EEXIST), (RDHUP | EXCLUSIVE, EINVAL)]
    {
        assert_eq!(set.try_add(&counter, IN | bits, 3), Err(errno), "{bits:#x}");
        assert_eq!(set.try_add(&socket, IN | bits, 3), Err(errno), "{bits:#x}");
    }
}

fn cannot_be_set_by_modify<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 1);
    assert_eq!(set.try_modify(&counter, IN | EXCLUSIVE, 2), Err(EINVAL));
    assert_eq!(set.ready(), [(1, IN)]);
    // Nor for a descriptor that is not watched at all.
    assert_eq!(set.try_modify(&Counter::<B>::new(0), IN | EXCLUSIVE, 2), Err(EINVAL));
}

fn cannot_be_modified<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN | EXCLUSIVE, 1);
    assert_eq!(set.try_modify(&counter, IN, 2), Err(EINVAL));
    assert_eq!(set.try_modify(&counter, OUT, 2), Err(EINVAL));
    assert_eq!(set.ready(), [(1, IN)]);
    set.remove(&counter);
    set.add(&counter, IN, 3);
    set.modify(&counter, OUT, 4);
    assert_eq!(set.ready(), [(4, OUT)]);
}

fn is_not_for_sets<B: Backend>() {
    let (outer, inner) = (Set::<B>::new(), Set::<B>::new());
    assert_eq!(outer.try_add(&inner, IN | EXCLUSIVE, 1), Err(EINVAL));
    assert_eq!(outer.try_add(&outer, IN | EXCLUSIVE, 1), Err(EINVAL));
    outer.add(&inner, IN, 1);
    assert_eq!(outer.try_add(&inner, IN | EXCLUSIVE, 1), Err(EINVAL));
}

fn a_refused_watch_is_not_there<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    assert_eq!(set.try_add(&counter, IN | ONESHOT | EXCLUSIVE, 1), Err(EINVAL));
    assert_eq!(set.ready(), []);
    assert_eq!(set.try_remove(&counter), Err(ENOENT));
}

fn alone_it_is_an_ordinary_watch<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | EXCLUSIVE, 1);
    counter.write(1);
    assert_eq!(set.ready(), [(1, IN)]);
    assert_eq!(set.ready(), [(1, IN)]);
    counter.drain();
    assert_eq!(set.ready(), []);
    set.remove(&counter);
    set.add(&counter, IN | ET | EXCLUSIVE, 2);
    for _ in 0..3 {
        counter.write(1);
        assert_eq!(set.ready(), [(2, IN)]);
        assert_eq!(set.ready(), []);
    }
}

fn without_waiters_every_set_is_told<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let sets: Vec<Set<B>> = (0..4).map(|data| exclusive(&counter, 0, data)).collect();
    counter.write(1);
    for (data, set) in sets.iter().enumerate() {
        assert_eq!(set.ready(), [(data as u64, IN)]);
    }
}

/// A set with an exclusive watch on `counter`.
fn exclusive<B: Backend>(counter: &Counter<B>, flags: u32, data: u64) -> Set<B> {
    let set = Set::new();
    set.add(counter, IN | EXCLUSIVE | flags, data);
    set
}

fn waiter<B: Backend>(set: &Set<B>) -> Task<Vec<Report>> {
    let set = set.clone();
    Task::asleep(move || set.wait(4, LONG).unwrap())
}

/// Writes until all tasks have ended, however few of them each write wakes.
fn write_until_ended<B: Backend>(counter: &Counter<B>, tasks: Vec<Task<Vec<Report>>>) {
    for (i, task) in tasks.into_iter().enumerate() {
        while !task.has_ended() {
            counter.write(1);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        assert_eq!(task.join(), [(i as u64, IN)]);
    }
}

fn wakes_one_and_not_all<B: Backend>() {
    for flags in [0, ET] {
        let counter = Counter::<B>::new(0);
        let sets: Vec<Set<B>> = (0..4).map(|data| exclusive(&counter, flags, data)).collect();
        let tasks: Vec<_> = sets.iter().map(waiter).collect();
        counter.write(1);
        let woken = ended(&tasks, 1);
        assert!((1..4).contains(&woken), "{woken} of 4 woken");
        write_until_ended(&counter, tasks);
    }
}

fn every_event_wakes_somebody<B: Backend>() {
    const ROUNDS: u64 = 2_000;
    let counter = Counter::<B>::new(0);
    let tasks: Vec<_> = (0..3)
        .map(|data| {
            let (set, counter) = (exclusive(&counter, 0, data), counter.clone());
            Task::start(move || {
                let mut taken = 0;
                loop {
                    assert_eq!(set.next(), (data, IN));
                    match counter.try_read() {
                        Ok(LAST_WORD..) => return taken,
                        Ok(n) => taken += n,
                        Err(libc::EAGAIN) => {}
                        Err(errno) => panic!("errno {errno}"),
                    }
                }
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        counter.write(1);
        // The next event comes when this one has been taken, so a lost event stops the test.
        let waits = Set::<B>::new();
        waits.add(&counter, IN, 0);
        let mut spins = 0u32;
        while !waits.ready().is_empty() {
            spins += 1;
            assert!(spins < 100_000_000, "an event that nobody takes");
            std::thread::yield_now();
        }
    }
    let mut taken = 0;
    for task in tasks {
        while !task.has_ended() {
            let _ = counter.try_write(LAST_WORD);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        taken += task.join();
    }
    assert_eq!(taken, ROUNDS);
}

/// The value that tells the takers to end.
const LAST_WORD: u64 = 1 << 40;

fn the_others_are_always_told<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let mut sets: Vec<Set<B>> = (0..2).map(|data| exclusive(&counter, 0, data)).collect();
    let ordinary = Set::new();
    ordinary.add(&counter, IN, 2);
    sets.push(exclusive(&counter, 0, 3));
    let edge = Set::new();
    edge.add(&counter, IN | ET, 4);
    let tasks: Vec<_> = sets.iter().map(waiter).collect();
    let told = [waiter(&ordinary), waiter(&edge)];
    counter.write(1);
    let [ordinary, edge] = told;
    assert_eq!(ordinary.join(), [(2, IN)]);
    assert_eq!(edge.join(), [(4, IN)]);
    assert!((1..3).contains(&ended(&tasks, 1)));
    for task in tasks {
        while !task.has_ended() {
            counter.write(1);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        assert!(matches!(task.join()[..], [(0 | 1 | 3, IN)]));
    }
}

fn a_set_without_a_waiter_does_not_take_the_wake<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let sets: Vec<Set<B>> = (0..3).map(|data| exclusive(&counter, ET, data)).collect();
    let only = waiter(&sets[2]);
    counter.write(1);
    assert_eq!(only.join(), [(2, IN)]);
    assert_eq!(sets[0].ready(), [(0, IN)]);
    assert_eq!(sets[1].ready(), [(1, IN)]);
}

/// The index of the set whose waiter one write wakes.
fn who_is_woken<B: Backend>(counter: &Counter<B>, sets: &[Set<B>]) -> Vec<usize> {
    let tasks: Vec<_> = sets.iter().map(waiter).collect();
    counter.write(1);
    ended(&tasks, 1);
    let woken = (0..tasks.len()).filter(|&i| tasks[i].has_ended()).collect();
    write_until_ended(counter, tasks);
    counter.drain();
    woken
}

/// The first of five attempts that is as `wanted`, or the last one. A waiter that does not sleep
/// yet lets the wake go by, which is right too.
#[track_caller]
fn in_one_of_five<T: PartialEq + std::fmt::Debug>(wanted: T, attempt: impl Fn() -> T) {
    let mut attempts = (0..5).map(|_| attempt());
    let last = attempts.next_back();
    assert!(
        last.as_ref() == Some(&wanted) || attempts.any(|got| got == wanted),
        "{last:?} is not {wanted:?}"
    );
}

fn the_oldest_watch_is_woken_first<B: Backend>() {
    in_one_of_five(vec![0], || {
        let counter = Counter::<B>::new(0);
        let sets: Vec<Set<B>> = (0..3).map(|data| exclusive(&counter, 0, data)).collect();
        who_is_woken(&counter, &sets)
    });
}

fn added_again_it_goes_behind_the_others<B: Backend>() {
    let in_turn = (0..6).map(|turn| vec![turn % 3]).collect();
    in_one_of_five::<Vec<_>>(in_turn, || {
        let counter = Counter::<B>::new(0);
        let sets: Vec<Set<B>> = (0..3).map(|data| exclusive(&counter, 0, data)).collect();
        let one_turn = |turn: usize| {
            let woken = who_is_woken(&counter, &sets);
            let first = turn % 3;
            sets[first].remove(&counter);
            sets[first].add(&counter, IN | EXCLUSIVE, first as u64);
            woken
        };
        (0..6).map(one_turn).collect()
    });
}

fn a_waiter_that_asked_for_something_else_does_not_take_the_wake<B: Backend>() {
    let counter = Counter::<B>::new(0);
    counter.write(LARGEST);
    let (out, other) = (Set::new(), exclusive(&counter, ET, 1));
    out.add(&counter, OUT | EXCLUSIVE, 0);
    assert_eq!(other.ready(), [(1, IN)]);
    let tasks = [waiter(&out), waiter(&other)];
    counter.write(0);
    let [out, other] = tasks;
    assert_eq!(other.join(), [(1, IN)]);
    counter.drain();
    assert_eq!(out.join(), [(0, OUT)]);
}

/// A thread that sleeps on an outer set is not a waiter of the inner set: all exclusive watches are
/// told.
fn a_waiter_outside_does_not_take_the_wake<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let (outer, inner, other) = (Set::new(), exclusive(&counter, 0, 1), exclusive(&counter, 0, 2));
    outer.add(&inner, IN, 0);
    let tasks = [waiter(&outer), waiter(&other)];
    counter.write(1);
    let [outer, other] = tasks;
    assert_eq!(outer.join(), [(0, IN)]);
    assert_eq!(other.join(), [(2, IN)]);
}

/// A waiter that another event has woken is no longer in the queue, also while its thread has not
/// run yet, and what it leaves behind is the next set's.
fn a_waiter_woken_for_another_event_does_not_take_the_wake<B: Backend>() {
    for _ in 0..10 {
        let (counter, other) = (Counter::<B>::new(0), Counter::<B>::new(0));
        let (first, second) = (exclusive(&counter, 0, 1), exclusive(&counter, 0, 2));
        first.add(&other, IN, 3);
        let busy = first.clone();
        let tasks = [Task::asleep(move || busy.wait(1, LONG).unwrap()), waiter(&second)];
        other.write(1);
        counter.write(1);
        let [first, second] = tasks;
        assert_eq!(first.join(), [(3, IN)]);
        assert_eq!(second.join(), [(2, IN)]);
    }
}

fn writable_edges_are_exclusive_too<B: Backend>() {
    let counter = Counter::<B>::new(0);
    counter.write(LARGEST);
    let sets: Vec<Set<B>> = (0..3)
        .map(|data| {
            let set = Set::new();
            set.add(&counter, OUT | ET | EXCLUSIVE, data);
            set
        })
        .collect();
    let tasks: Vec<_> = sets.iter().map(waiter).collect();
    counter.read();
    assert!((1..3).contains(&ended(&tasks, 1)));
    for task in tasks {
        while !task.has_ended() {
            counter.write(LARGEST);
            counter.read();
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        assert!(matches!(task.join()[..], [(_, OUT)]));
    }
}

/// The same source in one set under two numbers, exclusive under one of them.
fn one_set_may_have_both_kinds<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    let same = counter.dup();
    set.add(&counter, IN | EXCLUSIVE, 1);
    set.add(&same, IN, 2);
    counter.write(1);
    let mut got = set.ready();
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (2, IN)]);
    assert_eq!(set.try_modify(&counter, IN, 3), Err(EINVAL));
    set.modify(&same, IN, 3);
}
