//! What a set reports of a timer.

use super::*;

pub(super) fn watched<B: Backend>(events: u32) -> (Set<B>, Timer<B>) {
    let (set, timer) = (Set::new(), Timer::new());
    set.add(&timer, events, 7);
    (set, timer)
}

pub(super) fn a_set_reports_it_at_its_time<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    assert_eq!(set.ready(), []);
    let at = now() + 4 * MS;
    timer.set_at(at, NONE);
    assert_eq!(set.next(), (7, IN));
    assert!(now() >= at);
    // The timer is set before it is watched.
    let other = Timer::<B>::new();
    other.set(2 * MS, NONE);
    timer.read();
    set.add(&other, IN, 8);
    assert_eq!(set.next(), (8, IN));
    let third = Timer::<B>::new();
    third.set_at(MS, NONE);
    sleep(MS);
    other.read();
    set.add(&third, IN, 9);
    assert_eq!(set.ready(), [(9, IN)]);
}

pub(super) fn a_level_stays_until_it_is_read<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    timer.set(MS, HOUR);
    assert_eq!(set.next(), (7, IN));
    assert_eq!(set.ready(), [(7, IN)]);
    assert_eq!(timer.read(), 1);
    assert_eq!(set.ready(), []);
    timer.set(MS, MS);
    for _ in 0..5 {
        assert_eq!(set.next(), (7, IN));
        timer.read();
    }
    timer.set(NONE, NONE);
    assert_eq!(set.ready(), []);
}

pub(super) fn an_edge_for_each_expiry_after_a_read<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(MS, MS);
    assert_eq!(set.next(), (7, IN));
    assert_eq!(set.wait(8, 5), Ok(vec![]), "no further edge while it is not read");
    for _ in 0..3 {
        timer.read();
        assert_eq!(set.next(), (7, IN));
    }
}

pub(super) fn looking_at_what_is_left_begins_the_next_edge<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(MS, 3 * MS);
    assert_eq!(set.next(), (7, IN));
    assert_eq!(set.wait(8, 8), Ok(vec![]));
    timer.get();
    assert_eq!(set.next(), (7, IN));
    assert!(timer.read() >= 2);
}

pub(super) fn setting_it_anew_is_a_new_edge<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    for _ in 0..3 {
        timer.set_at(MS, NONE);
        assert_eq!(set.next(), (7, IN));
        assert_eq!(set.ready(), []);
    }
    timer.read();
    timer.set(MS, NONE);
    sleep(3 * MS);
    timer.set(HOUR, NONE);
    assert_eq!(set.ready(), [], "it expired, and was set anew before anybody looked");
}

pub(super) fn oneshot_and_a_change_of_interest<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ONESHOT);
    timer.set(MS, MS);
    assert_eq!(set.next(), (7, IN));
    timer.read();
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    set.modify(&timer, IN | ONESHOT, 8);
    assert_eq!(set.next(), (8, IN));
    set.modify(&timer, IN | ET, 9);
    assert_eq!(set.next(), (9, IN), "what holds is reported");
    set.modify(&timer, 0, 10);
    timer.read();
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    set.modify(&timer, IN, 11);
    assert_eq!(set.next(), (11, IN));
    set.remove(&timer);
    assert_eq!(set.wait(8, 5), Ok(vec![]));
}

pub(super) fn exclusive_watches<B: Backend>() {
    let sets = [Set::<B>::new(), Set::new()];
    let timer = Timer::<B>::new();
    timer.set(HOUR, NONE);
    for set in &sets {
        set.add(&timer, IN | ET | EXCLUSIVE, 7);
    }
    let waiters = sets.clone().map(|set| Task::start(move || set.wait(1, 300)));
    waiters.iter().for_each(Task::until_asleep);
    timer.set(MS, NONE);
    let got: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap().len()).collect();
    assert_eq!(got.iter().sum::<usize>(), 1, "{got:?}");
}

pub(super) fn nothing_but_in_is_ever_reported<B: Backend>() {
    let (set, timer) = watched::<B>(OUT | objects::PRI | objects::RDNORM | objects::HUP);
    timer.set_at(MS, MS);
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    set.modify(&timer, !(ET | ONESHOT | EXCLUSIVE | objects::WAKEUP), 8);
    assert_eq!(set.next(), (8, IN));
}

pub(super) fn a_timer_in_two_sets_is_reported_in_both<B: Backend>() {
    for flags in [0, ET, ONESHOT] {
        let (set, timer) = watched::<B>(IN | flags);
        let other = Set::<B>::new();
        other.add(&timer, IN | flags, 8);
        timer.set(3 * MS, NONE);
        assert_eq!(other.ready(), []);
        let waiter = Task::start(move || set.next());
        assert_eq!(other.next(), (8, IN));
        assert_eq!(waiter.join(), (7, IN));
    }
}

pub(super) fn a_timer_in_a_set_in_a_set<B: Backend>() {
    for flags in [0, ET] {
        let (inner, timer) = watched::<B>(IN);
        let (middle, outer) = (Set::<B>::new(), Set::<B>::new());
        middle.add(&inner, IN | flags, 1);
        outer.add(&middle, IN | flags, 2);
        timer.set(3 * MS, NONE);
        assert_eq!(outer.next(), (2, IN));
        assert_eq!(inner.ready(), [(7, IN)]);
        timer.read();
        assert_eq!(outer.ready(), []);
        let waiter = Task::start(move || outer.next());
        waiter.until_asleep();
        timer.set(2 * MS, NONE);
        assert_eq!(waiter.join(), (2, IN));
    }
}

pub(super) fn a_timer_set_again_inside_is_one_edge_outside<B: Backend>() {
    let (inner, timer) = watched::<B>(IN);
    timer.set_at(MS, NONE);
    sleep(2 * MS);
    let outer = Set::<B>::new();
    outer.add(&inner, IN | ET, 1);
    timer.set_at(MS, NONE);
    sleep(5 * MS);
    assert_eq!(outer.next(), (1, IN));
    assert_eq!(outer.ready(), []);
}

/// A set is told of a timer when it expires, not when something that has one comes into a set in
/// it.
pub(super) fn a_timer_added_inside_is_no_edge_outside<B: Backend>() {
    let (outer, middle, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(1));
    let (inner, timer) = watched::<B>(0);
    middle.add(&counter, IN, 1);
    outer.add(&middle, IN | ET, 2);
    timer.set(HOUR, NONE);
    assert_eq!(outer.ready(), [(2, IN)]);
    inner.modify(&timer, IN, 3);
    middle.add(&inner, IN, 4);
    assert_eq!(outer.ready(), []);
    middle.add(&timer, 0, 5);
    middle.modify(&timer, IN, 5);
    assert_eq!(outer.ready(), []);
    // It has been planned all the same.
    let soon = Timer::<B>::new();
    soon.set(3 * MS, NONE);
    inner.add(&soon, IN, 6);
    assert_eq!(outer.next(), (2, IN));
    assert_eq!(inner.ready(), [(6, IN)]);
}

/// A set tells those around it of IN alone. A watch that asks for RDNORM is not told of an expiry,
/// though a poll of the inner set says both.
pub(super) fn a_timer_inside_is_in_and_not_rdnorm<B: Backend>() {
    let (outermost, outer) = (Set::<B>::new(), Set::<B>::new());
    let (inner, timer) = watched::<B>(IN);
    outer.add(&inner, RDNORM, 1);
    outermost.add(&outer, IN | ET, 2);
    timer.set(MS, NONE);
    assert_eq!(inner.next(), (7, IN));
    assert_eq!(outermost.ready(), []);
    assert_eq!(outer.ready(), []);
    outer.modify(&inner, RDNORM | ET, 3);
    assert_eq!(outermost.ready(), [(2, IN)]);
    assert_eq!(outer.ready(), [(3, RDNORM)]);
}

/// The timer has expired and is on the inner set's ready list when it is set to a later time.
pub(super) fn a_listed_timer_set_later_is_heard_of_outside<B: Backend>() {
    let (outer, inner, timer) = (Set::<B>::new(), Set::<B>::new(), Timer::<B>::new());
    timer.set_at(MS, NONE);
    inner.add(&timer, IN, 7);
    timer.set(5 * MS, NONE);
    outer.add(&inner, IN, 1);
    assert_eq!(outer.next(), (1, IN));
    assert_eq!(inner.ready(), [(7, IN)]);
}

/// The watches that were added last are told first, as with other sources.
pub(super) fn many_sets_hear_of_it_in_order<B: Backend>() {
    let set = Set::<B>::new();
    let timer = Timer::<B>::new();
    let inner: Vec<_> = (0..3)
        .map(|data| {
            let inner = Set::<B>::new();
            inner.add(&timer, IN, 9);
            set.add(&inner, IN, data);
            inner
        })
        .collect();
    set.add(&timer, IN, 3);
    timer.set_at(MS, NONE);
    sleep(5 * MS);
    assert_eq!(set.ready(), [(3, IN), (2, IN), (1, IN), (0, IN)]);
    drop(inner);
}

pub(super) fn a_closed_timer_is_forgotten<B: Backend>() {
    let (set, timer) = watched::<B>(IN);
    timer.set(MS, NONE);
    drop(timer);
    assert_eq!(set.wait(8, 5), Ok(vec![]));
    // The new timer most likely has the same number.
    let timer = Timer::<B>::new();
    assert_eq!(timer.get(), (NONE, NONE));
    set.add(&timer, IN, 8);
    timer.set(MS, NONE);
    assert_eq!(set.next(), (8, IN));
}
