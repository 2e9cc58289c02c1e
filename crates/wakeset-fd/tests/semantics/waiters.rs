//! Several threads that wait on one set: which of them is woken, and what each of them gets.

use crate::backend::Backend;
use crate::objects::{Counter, ET, IN, LONG, ONESHOT, OUT, Report, Set};
use crate::task::{Task, ended};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

on_both!(
    a_waiter_sees_a_concurrent_add,
    a_waiter_sees_a_concurrent_modify,
    a_waiter_sees_a_write,
    a_waiter_sees_a_drain,
    a_removal_wakes_nobody,
    one_edge_wakes_one_waiter,
    one_oneshot_wakes_one_waiter,
    as_many_events_as_waiters_wake_them_all,
    events_in_one_burst_wake_as_many_waiters,
    a_level_that_stays_wakes_every_waiter_in_turn,
    leftovers_wake_the_next_waiter,
    a_wait_of_no_time_never_misses_what_another_thread_holds,
    a_wait_of_no_time_never_misses_one_of_two,
    each_edge_is_reported_to_one_thread,
    each_oneshot_is_reported_to_one_thread,
    no_edge_is_lost_under_load,
    no_level_is_lost_under_load,
    no_waiter_sleeps_through_a_modify,
    writers_and_changers_do_not_disturb_each_other,
    a_set_that_becomes_empty_goes_on_waiting,
    a_wait_on_an_empty_set_ends_with_its_time,
    two_sets_of_one_source_wake_a_waiter_each,
);

fn waiter<B: Backend>(set: &Set<B>, max: usize) -> Task<Vec<Report>> {
    let set = set.clone();
    Task::asleep(move || set.wait(max, LONG).unwrap())
}

fn a_waiter_sees_a_concurrent_add<B: Backend>() {
    for flags in [0, ET, ONESHOT] {
        let (set, counter) = (Set::<B>::new(), Counter::new(1));
        let task = waiter(&set, 4);
        set.add(&counter, IN | flags, 1);
        assert_eq!(task.join(), [(1, IN)]);
        // And a source that becomes ready after it was added.
        let later = Counter::new(0);
        set.remove(&counter);
        let task = waiter(&set, 4);
        set.add(&later, IN | flags, 2);
        later.write(1);
        assert_eq!(task.join(), [(2, IN)]);
    }
}

fn a_waiter_sees_a_concurrent_modify<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, 0, 1);
    let task = waiter(&set, 4);
    set.modify(&counter, IN, 2);
    assert_eq!(task.join(), [(2, IN)]);
    set.modify(&counter, IN | ONESHOT, 3);
    assert_eq!(set.ready(), [(3, IN)]);
    let task = waiter(&set, 4);
    set.modify(&counter, IN | ONESHOT, 4);
    assert_eq!(task.join(), [(4, IN)]);
}

fn a_waiter_sees_a_write<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    for _ in 0..50 {
        let task = waiter(&set, 4);
        counter.write(1);
        assert_eq!(task.join(), [(1, IN)]);
        counter.drain();
    }
}

fn a_waiter_sees_a_drain<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    counter.write(crate::objects::LARGEST);
    set.add(&counter, OUT, 1);
    let task = waiter(&set, 4);
    counter.read();
    assert_eq!(task.join(), [(1, OUT)]);
}

fn a_removal_wakes_nobody<B: Backend>() {
    let (set, counter, other) = (Set::<B>::new(), Counter::new(0), Counter::new(0));
    set.add(&counter, IN, 1);
    set.add(&other, IN, 2);
    let task = waiter(&set, 4);
    set.remove(&counter);
    counter.write(1);
    assert_eq!(ended(std::slice::from_ref(&task), 0), 0);
    other.write(1);
    assert_eq!(task.join(), [(2, IN)]);
}

fn one_edge_wakes_one_waiter<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 1);
    let tasks: Vec<_> = (0..4).map(|_| waiter(&set, 4)).collect();
    for woken in 1..=4 {
        counter.write(1);
        assert_eq!(ended(&tasks, woken), woken);
    }
    for task in tasks {
        assert_eq!(task.join(), [(1, IN)]);
    }
    assert_eq!(set.ready(), []);
}

fn one_oneshot_wakes_one_waiter<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ONESHOT, 1);
    let tasks: Vec<_> = (0..3).map(|_| waiter(&set, 4)).collect();
    counter.write(1);
    for woken in 1..=3 {
        assert_eq!(ended(&tasks, woken), woken);
        set.modify(&counter, IN | ONESHOT, 1);
    }
    for task in tasks {
        assert_eq!(task.join(), [(1, IN)]);
    }
    assert_eq!(set.ready(), [(1, IN)]);
}

fn as_many_events_as_waiters_wake_them_all<B: Backend>() {
    let set = Set::<B>::new();
    let counters: [Counter<B>; 4] = std::array::from_fn(|data| {
        let counter = Counter::new(0);
        set.add(&counter, IN | ET, data as u64);
        counter
    });
    let tasks: Vec<_> = (0..4).map(|_| waiter(&set, 1)).collect();
    for (i, counter) in counters.iter().enumerate() {
        counter.write(1);
        assert_eq!(ended(&tasks, i + 1), i + 1);
    }
    assert_eq!(all(tasks), [0, 1, 2, 3].map(|data| (data, IN)));
}

/// Everything the waiters got, sorted.
fn all(tasks: Vec<Task<Vec<Report>>>) -> Vec<Report> {
    let mut got: Vec<Report> = tasks.into_iter().flat_map(Task::join).collect();
    got.sort_unstable();
    got
}

fn events_in_one_burst_wake_as_many_waiters<B: Backend>() {
    for _ in 0..20 {
        let set = Set::<B>::new();
        let counters: [Counter<B>; 4] = std::array::from_fn(|data| {
            let counter = Counter::new(0);
            set.add(&counter, IN | ET, data as u64);
            counter
        });
        let tasks: Vec<_> = (0..4).map(|_| waiter(&set, 1)).collect();
        counters.iter().for_each(|counter| counter.write(1));
        assert_eq!(all(tasks), [0, 1, 2, 3].map(|data| (data, IN)));
    }
}

fn a_level_that_stays_wakes_every_waiter_in_turn<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let tasks: Vec<_> = (0..4).map(|_| waiter(&set, 4)).collect();
    counter.write(1);
    for task in tasks {
        assert_eq!(task.join(), [(1, IN)]);
    }
}

/// One wake for two events: a source with two watches in the set, of which the first waiter takes
/// one.
fn leftovers_wake_the_next_waiter<B: Backend>() {
    for _ in 0..20 {
        let (outer, inner, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(0));
        let same = counter.dup();
        inner.add(&counter, IN | ET, 1);
        inner.add(&same, IN | ET, 2);
        outer.add(&inner, IN, 3);
        let tasks: Vec<_> = (0..2).map(|_| waiter(&inner, 1)).collect();
        counter.write(1);
        assert_eq!(all(tasks), [(1, IN), (2, IN)]);
        assert_eq!(outer.ready(), []);
    }
}

/// Makes `looks` waits with a limit of 0 on each of two threads; returns how many found nothing.
fn empty_looks<B: Backend>(set: &Set<B>, max: usize, looks: u32) -> u32 {
    let look = |set: Set<B>| {
        move || (0..looks).filter(|_| set.wait(max, 0).unwrap().is_empty()).count() as u32
    };
    let other = Task::start(look(set.clone()));
    look(set.clone())() + other.join()
}

fn a_wait_of_no_time_never_misses_what_another_thread_holds<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 1);
    assert_eq!(empty_looks(&set, 1, 100_000), 0);
}

fn a_wait_of_no_time_never_misses_one_of_two<B: Backend>() {
    let (set, counters) = (Set::<B>::new(), [Counter::new(1), Counter::new(1)]);
    set.add(&counters[0], IN, 1);
    set.add(&counters[1], IN, 2);
    assert_eq!(empty_looks(&set, 1, 50_000), 0);
    assert_eq!(empty_looks(&set, 4, 50_000), 0);
}

/// Starts `threads` threads, each of which takes one report after another until it is told to stop.
/// `take` handles a report.
fn takers<B: Backend>(
    set: &Set<B>,
    threads: usize,
    max: usize,
    take: impl Fn(Report) + Send + Sync + 'static,
) -> impl FnOnce() {
    let stop = Arc::new(AtomicBool::new(false));
    let take = Arc::new(take);
    let tasks: Vec<_> = (0..threads)
        .map(|_| {
            let (set, stop, take) = (set.clone(), stop.clone(), take.clone());
            Task::start(move || {
                while !stop.load(Ordering::SeqCst) {
                    for report in set.wait(max, LONG).unwrap() {
                        if report.0 != STOP {
                            take(report);
                        }
                    }
                }
            })
        })
        .collect();
    let (set, bell) = (set.clone(), Counter::<B>::new(1));
    move || {
        stop.store(true, Ordering::SeqCst);
        set.add(&bell, IN, STOP);
        tasks.into_iter().for_each(Task::join);
    }
}

/// The data of the watch that ends the takers.
const STOP: u64 = u64::MAX;

/// Waits until `count` is `wanted`; it may be more, which the caller asserts.
#[track_caller]
fn until(count: &AtomicU64, wanted: u64) {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while count.load(Ordering::SeqCst) < wanted {
        assert!(std::time::Instant::now() < give_up, "{count:?} of {wanted}");
        thread::yield_now();
    }
}

fn each_edge_is_reported_to_one_thread<B: Backend>() {
    const EDGES: u64 = 3_000;
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN | ET, 1);
    let reports = Arc::new(AtomicU64::new(0));
    let count = reports.clone();
    let stop = takers(&set, 3, 1, move |report| {
        assert_eq!(report, (1, IN));
        count.fetch_add(1, Ordering::SeqCst);
    });
    for edge in 1..=EDGES {
        counter.write(1);
        until(&reports, edge);
        assert_eq!(reports.load(Ordering::SeqCst), edge);
    }
    stop();
    assert_eq!(reports.load(Ordering::SeqCst), EDGES);
}

fn each_oneshot_is_reported_to_one_thread<B: Backend>() {
    const TURNS: u64 = 3_000;
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    let reports = Arc::new(AtomicU64::new(0));
    let count = reports.clone();
    let stop = takers(&set, 3, 1, move |report| {
        assert_eq!(report, (count.fetch_add(1, Ordering::SeqCst), IN));
    });
    set.add(&counter, IN | ONESHOT, 0);
    for turn in 1..=TURNS {
        until(&reports, turn);
        set.modify(&counter, IN | ONESHOT, turn);
    }
    until(&reports, TURNS + 1);
    stop();
    assert_eq!(reports.load(Ordering::SeqCst), TURNS + 1);
}

/// Writers add to many counters, takers drain what is reported; every unit must arrive.
fn everything_arrives<B: Backend>(flags: u32) {
    const COUNTERS: usize = 5;
    const WRITES: u64 = 4_000;
    let set = Set::<B>::new();
    let counters: Arc<[Counter<B>]> = (0..COUNTERS)
        .map(|data| {
            let counter = Counter::new(0);
            set.add(&counter, IN | flags, data as u64);
            counter
        })
        .collect();
    let sum = Arc::new(AtomicU64::new(0));
    let (theirs, total, rearm) = (counters.clone(), sum.clone(), set.clone());
    let stop = takers(&set, 2, 2, move |(data, _)| {
        let counter = &theirs[data as usize];
        // Another thread may have drained it already; EAGAIN is then the right answer.
        total.fetch_add(counter.try_read().unwrap_or(0), Ordering::SeqCst);
        if flags & ONESHOT != 0 {
            rearm.modify(counter, IN | flags, data);
        }
    });
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let counters = counters.clone();
            Task::start(move || {
                for i in 0..WRITES {
                    counters[(writer + i as usize) % COUNTERS].write(1);
                    if i % 64 == 0 {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(Task::join);
    until(&sum, 3 * WRITES);
    stop();
    assert_eq!(sum.load(Ordering::SeqCst), 3 * WRITES);
}

fn no_edge_is_lost_under_load<B: Backend>() {
    everything_arrives::<B>(ET);
    everything_arrives::<B>(ET | ONESHOT);
}

fn no_level_is_lost_under_load<B: Backend>() {
    everything_arrives::<B>(0);
    everything_arrives::<B>(ONESHOT);
}

fn no_waiter_sleeps_through_a_modify<B: Backend>() {
    const TURNS: u64 = 3_000;
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, 0, 0);
    let theirs = set.clone();
    let task = Task::start(move || {
        for turn in 1..=TURNS {
            assert_eq!(theirs.next(), (turn, IN));
        }
    });
    for turn in 1..=TURNS {
        set.modify(&counter, IN | ONESHOT, turn);
        // A oneshot watch that reports has been taken; other data would be an old report.
        let mut looks = 0u32;
        while !task.has_ended() && set_is_armed(&set, &counter, &mut looks) {}
    }
    task.join();
}

/// Whether the report has not been taken yet, seen from a set that watches `set`.
fn set_is_armed<B: Backend>(set: &Set<B>, _counter: &Counter<B>, looks: &mut u32) -> bool {
    *looks += 1;
    assert!(*looks < 10_000_000, "nobody takes it");
    let outer = Set::<B>::new();
    outer.add(set, IN, 0);
    let armed = !outer.ready().is_empty();
    if armed {
        thread::yield_now();
    }
    armed
}

/// Adds and removals of one source beside the traffic of another.
fn writers_and_changers_do_not_disturb_each_other<B: Backend>() {
    const TURNS: u64 = 2_000;
    let (set, busy) = (Set::<B>::new(), Counter::new(0));
    set.add(&busy, IN | ET, 1);
    let sum = Arc::new(AtomicU64::new(0));
    let (total, drain) = (sum.clone(), busy.clone());
    let stop = takers(&set, 2, 4, move |(data, _)| {
        if data == 1 {
            total.fetch_add(drain.try_read().unwrap_or(0), Ordering::SeqCst);
        }
    });
    let (changed, other) = (set.clone(), Counter::<B>::new(0));
    let changer = Task::start(move || {
        for turn in 0..TURNS {
            changed.add(&other, IN | ET, 2);
            other.write(1);
            changed.modify(&other, IN, 3 + turn);
            changed.remove(&other);
        }
    });
    for _ in 0..TURNS {
        busy.write(1);
    }
    changer.join();
    until(&sum, TURNS);
    stop();
    assert_eq!(sum.load(Ordering::SeqCst), TURNS);
}

fn a_set_that_becomes_empty_goes_on_waiting<B: Backend>() {
    let (set, removed, closed, later) =
        (Set::<B>::new(), Counter::new(0), Counter::new(0), Counter::new(0));
    set.add(&removed, IN, 1);
    set.add(&closed, IN, 2);
    let task = waiter(&set, 4);
    set.remove(&removed);
    drop(closed);
    removed.write(1);
    task.until_asleep();
    assert!(!task.has_ended());
    set.add(&later, IN, 3);
    later.write(1);
    assert_eq!(task.join(), [(3, IN)]);
}

fn a_wait_on_an_empty_set_ends_with_its_time<B: Backend>() {
    let set = Set::<B>::new();
    assert_eq!(set.wait(1, 0), Ok(vec![]));
    assert_eq!(set.wait(1, 3), Ok(vec![]));
}

fn two_sets_of_one_source_wake_a_waiter_each<B: Backend>() {
    for flags in [0, ET, ONESHOT] {
        let (sets, counter) = ([Set::<B>::new(), Set::new()], Counter::new(0));
        for set in &sets {
            set.add(&counter, IN | flags, 1);
        }
        let tasks = sets.each_ref().map(|set| waiter(set, 4));
        counter.write(1);
        for task in tasks {
            assert_eq!(task.join(), [(1, IN)]);
        }
    }
}
