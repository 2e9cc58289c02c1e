extern crate std;
use super::cost::MOST_COST;
use super::*;
use crate::sync::spin::Spinner;
use core::time::Duration;

/// One that has just looked at a waker.
fn looked() -> AdaptiveSpin {
    let memory = AdaptiveSpin::new();
    memory.spent.store(0, Ordering::Relaxed);
    memory
}

fn waits(memory: &AdaptiveSpin, waits: usize) -> usize {
    (0..waits).filter(|_| memory.is_worth_it()).count()
}

#[test]
fn short_waits_are_spun_for_and_long_ones_are_not() {
    let memory = looked();
    assert_eq!(waits(&memory, 1), 0, "nothing is known");
    for _ in 0..64 {
        memory.remember(Some(100), spin::AUTO_LIMIT);
    }
    assert_eq!(waits(&memory, 1), 1);
    for _ in 0..64 {
        memory.remember(None, spin::AUTO_LIMIT);
    }
    assert_eq!(waits(&memory, 1), 0);
}

/// As long as a sleep costs more than it would be spun.
#[test]
fn waits_longer_than_a_sleep_costs_are_not_spun_for() {
    let memory = looked();
    for _ in 0..16 {
        memory.remember(Some(3 * MOST_COST), 4 * MOST_COST);
    }
    assert_eq!(waits(&memory, 1), 0);
}

#[test]
fn failures_back_off_and_successes_come_back() {
    let memory = looked();
    let learn = || (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    learn();
    let mut before = 0;
    for _ in 0..6 {
        memory.failed(FAILED, spin::AUTO_LIMIT);
        learn();
        let skipped = (0..1 << 20).take_while(|_| !memory.is_worth_it()).count();
        assert!(skipped > before, "{skipped} after {before}");
        before = skipped;
    }
    for _ in 0..MOST_FAILURES {
        memory.succeeded(500, spin::AUTO_LIMIT);
    }
    assert_eq!(waits(&memory, 10), 10);
    assert_eq!(memory.failures.load(Ordering::Relaxed), 0);
}

#[test]
fn a_wake_up_tells_how_long_a_sleep_would_have_been_spun() {
    let memory = AdaptiveSpin::new();
    for _ in 0..64 {
        memory.asleep(false, || memory.waking(|| true));
    }
    assert!(memory.gain() > 0, "each was woken at once: {}", memory.gain());
    for _ in 0..64 {
        memory.asleep(false, || std::thread::sleep(Duration::from_nanos(2 * SLEEP)));
    }
    assert!(memory.gain() < 0, "none was woken by a waker: {}", memory.gain());
}

#[test]
fn a_spin_ends() {
    let memory = looked();
    let Some(spinner) = Spinner::begin(false) else { return };
    drop(spinner);
    for _ in 0..64 {
        memory.remember(Some(500), spin::AUTO_LIMIT);
    }
    let (gain, start) = (memory.gain(), Deadline::now().as_nanos());
    let mut spin = memory.begin(start + 1_000).expect("a spin");
    while spin.goes_on(u64::MAX) {}
    spin.failed();
    // The wait was over; or the thread lost its processor, for moments or for long.
    let failures = memory.failures.load(Ordering::Relaxed);
    let is_interrupted = failures == FAILED && memory.gain() == gain;
    let is_lost = is_interrupted || failures == PREEMPTED;
    assert!(failures == 0 && memory.begin(u64::MAX).is_some() || is_lost);
}

/// A spin that ends in the first of these looks at the clock, which is so long (ns) after the one
/// before. Its failures, and what it has changed of the gain.
fn spin_with_a_gap(memory: &AdaptiveSpin, gap: u64) -> Option<(u8, i32)> {
    (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    let before = memory.gain();
    let mut spin = memory.begin(u64::MAX)?;
    spin.last -= gap;
    while spin.goes_on(u64::MAX) {}
    spin.failed();
    Some((memory.failures.load(Ordering::Relaxed), memory.gain() - before))
}

/// An interrupt, or the host of a virtual machine, takes the processor for moments. That says
/// nothing of how long the wait needs.
#[test]
fn a_moment_without_a_processor_is_not_held_against_spins() {
    let Some((failures, change)) = spin_with_a_gap(&looked(), LONG_YIELD / 2) else { return };
    // It may be a long one on a busy machine.
    assert!((failures, change) == (FAILED, 0) || failures == PREEMPTED, "{failures}, {change}");
    let Some((failures, change)) = spin_with_a_gap(&looked(), 2 * LONG_YIELD) else { return };
    assert_eq!(failures, PREEMPTED);
    assert!(change < 0);
    // Nor if the event comes meanwhile.
    let memory = looked();
    let spun = || {
        memory.gain.store(20_000, Ordering::Relaxed);
        let spin = memory.begin(u64::MAX).expect("a spin");
        std::thread::sleep(Duration::from_nanos(LONG_YIELD / 4));
        spin.succeeded();
        memory.gain()
    };
    // One that has needed more than its limit would lose some 6,000.
    assert!((0..64).any(|_| spun() > 16_000));
}

/// Its waker sleeps as well then, and has to be woken first.
#[test]
fn sleeps_after_a_spin_in_vain_are_not_held_against_spins() {
    let memory = looked();
    memory.gain.store(20_000, Ordering::Relaxed);
    memory.failed(2 * FAILED, spin::AUTO_LIMIT);
    let gain = memory.gain();
    assert!(gain > 0, "one failure is not enough to end spins");
    let sleeps = || memory.asleep(false, || std::thread::sleep(Duration::from_nanos(2 * SLEEP)));
    for _ in 0..4 {
        assert_eq!(waits(&memory, 1), 0);
        sleeps();
        assert_eq!(memory.gain(), gain);
    }
    assert_eq!(waits(&memory, 1), 1);
    sleeps();
    assert!(memory.gain() < gain, "this one has not followed a spin");
}

/// A thread that has left a spin by a jump is not counted for ever.
#[test]
fn a_thread_that_jumped_out_of_a_spin_keeps_no_other_from_spinning() {
    let Some(spinner) = Spinner::begin(false) else { return };
    let now = Deadline::now().as_nanos();
    spinner.spins_until(now + 1);
    core::mem::forget(spinner);
    assert!((0..64).any(|processor| spin::is_spun_on(processor, now)));
    let another = Spinner::begin(false).expect("two processors");
    assert!(!another.is_one_too_many(now + 2));
}

/// As a spin takes one by one, and a sleep at once, what a waker makes that goes on.
#[test]
fn wakers_that_keep_busy_are_not_spun_for() {
    let memory = looked();
    let learn = || (0..64).for_each(|_| memory.remember(Some(100), spin::AUTO_LIMIT));
    let look = |is_busy| {
        for _ in 0..64 {
            memory.has_seen(is_busy, 10 * MOST_COST);
        }
    };
    look(true);
    learn();
    // What a sleep and a wake cost is this machine's, and other tests measure it meanwhile.
    if SLEEP_COST.get() + WAKE_COST.get() < MOST_COST as i32 {
        assert_eq!((waits(&memory, 1), memory.gains_by_sleeping()), (0, true));
    }
    look(false);
    learn();
    assert_eq!(waits(&memory, 10), 10);
    memory.spend(u64::MAX);
    assert_eq!(waits(&memory, 10), 0, "the next one sleeps, for a look");
    memory.spent.store(0, Ordering::Relaxed);
    assert_eq!((waits(&memory, 1), memory.gains_by_sleeping()), (1, false));
}

#[test]
fn a_busy_waker_is_a_surprise_until_it_is_known() {
    let memory = AdaptiveSpin::new();
    assert!(!memory.has_seen(false, 2 * MOST_COST));
    assert!(memory.has_seen(true, 2 * MOST_COST));
    assert!(!memory.has_seen(false, 2 * MOST_COST));
    let looks = (0..64).take_while(|_| memory.has_seen(true, 2 * MOST_COST)).count();
    assert!((1..8).contains(&looks), "{looks}");
}

#[test]
fn a_look_at_a_waker_is_due_after_some_sleeps_or_spins() {
    let memory = AdaptiveSpin::new();
    let sleeps = |sleeps| (0..sleeps).for_each(|_| memory.look_at_waker(0, 2 * SLEEP, None));
    assert!(memory.is_look_due(), "nothing is known");
    memory.look_at_waker(0, SLEEP, None);
    assert!(!memory.is_look_due(), "that was no sleep, and the next one may be none");
    sleeps(15);
    assert!(!memory.is_look_due());
    sleeps(1);
    assert!(memory.is_look_due());
    sleeps(1);
    assert!(!memory.is_look_due());
    let spins = |millis| (0..1_000 * millis).for_each(|_| memory.succeeded(1_000, MOST_COST));
    memory.busy.store(1_000, Ordering::Relaxed);
    spins(1);
    assert!(!memory.is_look_overdue());
    spins(2);
    assert!(memory.is_look_overdue());
    memory.busy.store(0, Ordering::Relaxed);
    assert!(!memory.is_look_overdue());
    spins(15);
    assert!(memory.is_look_overdue());
}

#[test]
fn the_lower_half_of_a_time_says_how_long_after_the_beginning_a_wake_was() {
    let memory = AdaptiveSpin::new();
    memory.woken_at.store(5, Ordering::Relaxed);
    let before = 3 << 32 | 0xffff_fffb;
    assert_eq!(memory.woken_after(before, 20), Some(10));
    assert_eq!(memory.woken_after(before, 9), None, "that was another sleep's");
    assert_eq!(memory.woken_after(before, 1 << 31), None, "it may have been");
}

#[test]
fn wakes_by_another_processor_say_how_long_spins_may_take() {
    let memory = AdaptiveSpin::new();
    let wake = |from: u16, taken: u64| {
        let now = Deadline::now().as_nanos();
        memory.woken_from.store(from, Ordering::Relaxed);
        memory.woken_at.store((now - taken) as u32, Ordering::Relaxed);
        memory.learn_latency(now - 2 * taken, 2 * taken);
    };
    (0..256).for_each(|_| wake(NOWHERE, 60_000));
    let limit = LATENCY.limit();
    assert!((70_000..100_000).contains(&limit), "{limit}");
    (0..256).for_each(|_| wake(processor(), 10_000));
    assert!(LATENCY.limit().abs_diff(limit) < 10_000, "{}", LATENCY.limit());
}

#[test]
fn a_thread_runs_or_does_not() {
    use crate::sync::thread_id;
    use std::sync::{Arc, Barrier, mpsc};
    if spin::runs(thread_id::current()) != Some(true) {
        return;
    }
    let (tell, told) = mpsc::channel();
    let over = Arc::new(Barrier::new(2));
    let sleeper = std::thread::spawn({
        let over = over.clone();
        move || {
            tell.send(thread_id::current()).unwrap();
            over.wait();
        }
    });
    let thread = told.recv().unwrap();
    while spin::runs(thread) != Some(false) {}
    over.wait();
    sleeper.join().unwrap();
    while spin::runs(thread).is_some() {}
}

#[test]
fn a_wait_takes_part_if_a_waker_that_waits_has_ended_its_last_sleep() {
    let memory = AdaptiveSpin::new();
    assert!(!memory.takes_part(), "nothing is known");
    let woken = || memory.asleep(false, || memory.waking(|| true));
    let not_woken = || memory.asleep(false, || std::thread::sleep(Duration::from_nanos(2 * SLEEP)));
    woken();
    memory.busy.store(0, Ordering::Relaxed);
    assert!(memory.takes_part());
    not_woken();
    assert!(!memory.takes_part());
    woken();
    memory.busy.store(10_000, Ordering::Relaxed);
    assert!(!memory.takes_part(), "its waker keeps busy");
}

/// Not of what the wait would be without the others.
#[test]
fn nothing_is_learned_from_a_joint_spin() {
    let memory = looked();
    let known = || {
        let (gain, skipped) = (&memory.gain, &memory.skipped);
        (gain.load(Ordering::Relaxed), skipped.load(Ordering::Relaxed))
    };
    for _ in 0..64 {
        memory.remember(Some(500), spin::AUTO_LIMIT);
    }
    let before = known();
    let joint = || {
        let mut spin = memory.begin(u64::MAX)?;
        spin.is_joint = true;
        Some(spin)
    };
    let Some(spin) = joint() else { return };
    spin.succeeded();
    let Some(spin) = joint() else { return };
    spin.failed();
    assert_eq!(known(), before);
    memory.asleep(false, || std::thread::sleep(Duration::from_nanos(2 * SLEEP)));
    assert_eq!(known(), before, "the sleep after it was cut short");
    memory.asleep(false, || std::thread::sleep(Duration::from_nanos(2 * SLEEP)));
    assert_ne!(known(), before);
}

/// A set that a waker has woken once, and of which then sockets are ready again and again, is no
/// part of a chain.
#[test]
fn what_is_found_outside_ends_a_part() {
    let memory = looked();
    memory.notes.store(WOKEN, Ordering::Relaxed);
    for outside in [true, false, true, false] {
        memory.found_jointly(outside, 1_000);
        assert!(memory.takes_part(), "by turns it is");
    }
    memory.found_jointly(true, 1_000);
    memory.found_jointly(true, 1_000);
    assert!(!memory.takes_part());
}

/// A look at the waker comes due by joint spins as well.
#[test]
fn joint_spins_are_spent() {
    let memory = looked();
    memory.notes.store(WOKEN, Ordering::Relaxed);
    assert!(memory.takes_part());
    (0..2_000).for_each(|_| memory.found_jointly(false, 10_000));
    assert!(!memory.takes_part(), "one wait sleeps, in order to look");
}

/// One whose account is overdrawn until an hour from now.
fn resting() -> Busy {
    let (busy, later) = (Busy::new(0), now() + 3_600_000_000_000);
    (0..2).for_each(|i| _ = busy.lose(2_500_000, later + i * 5_000_000));
    assert!(busy.rests(now));
    busy
}

#[test]
fn nothing_spins_or_yields_while_others_want_the_processors() {
    let memory = looked();
    (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    if memory.begin_unless(&Busy::new(0), u64::MAX).is_none() {
        return;
    }
    let busy = resting();
    assert!(memory.begin_unless(&busy, u64::MAX).is_none());
    memory.credit.store(MOST, Ordering::Relaxed);
    let yields = |busy| memory.yield_unless(busy, true, || true, || 1);
    assert_eq!(yields(&busy), 0);
    assert_eq!(yields(&Busy::new(0)), 1);
    busy.end_rest(now());
    assert!(memory.begin_unless(&busy, u64::MAX).is_some());
}

#[test]
fn a_spin_that_finds_something_gains_what_a_sleep_costs() {
    let (memory, busy) = (looked(), Busy::new(0));
    (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    let Some(spin) = memory.begin_unless(&busy, u64::MAX) else { return };
    spin.failed();
    assert_eq!(busy.account(), 0);
    memory.skipped.store(0, Ordering::Relaxed);
    (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    memory.begin_unless(&busy, u64::MAX).unwrap().succeeded();
    assert!(busy.account() > 0);
}

/// A pair on two processors yielded before each sleep, to nobody.
#[test]
fn yields_end_where_no_other_thread_wants_the_processor() {
    let memory = looked();
    let credit = || memory.credit.load(Ordering::Relaxed);
    let yields = |took, found| {
        let yielded = || {
            std::thread::sleep(took);
            found
        };
        memory.yield_unless(&Busy::new(0), true, yielded, || 1);
        credit()
    };
    memory.credit.store(MOST, Ordering::Relaxed);
    assert_eq!(yields(Duration::from_micros(10), false), MOST - 1, "another one may have had it");
    // This thread may lose its processor in one of them.
    let once = |credit, found, after| {
        (0..64).any(|_| {
            memory.credit.store(credit, Ordering::Relaxed);
            yields(Duration::ZERO, found) == after
        })
    };
    assert!(once(MOST, false, MOST - EMPTY));
    assert!(once(MOST - EMPTY, true, MOST));
    assert!(once(THRESHOLD + EMPTY - 1, false, 0));
    memory.asleep(false, || memory.waking(|| true));
    assert_eq!(credit(), 0, "the next sleeps earn none");
}
