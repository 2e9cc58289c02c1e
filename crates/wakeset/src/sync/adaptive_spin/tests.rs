use super::*;

fn waits(memory: &AdaptiveSpin, waits: usize) -> usize {
    (0..waits).filter(|_| memory.is_worth_it()).count()
}

#[test]
fn short_waits_are_spun_for_and_long_ones_are_not() {
    let memory = AdaptiveSpin::new();
    assert_eq!(waits(&memory, 1), 0, "nothing is known");
    for _ in 0..16 {
        memory.remember(Some(1_000), spin::AUTO_LIMIT);
    }
    assert_eq!(waits(&memory, 1), 1);
    for _ in 0..16 {
        memory.remember(None, spin::AUTO_LIMIT);
    }
    assert_eq!(waits(&memory, 1), 0);
}

/// As long as a sleep costs more than it would be spun.
#[test]
fn waits_longer_than_a_sleep_costs_are_not_spun_for() {
    let memory = AdaptiveSpin::new();
    for _ in 0..16 {
        memory.remember(Some(3 * MOST_COST), 4 * MOST_COST);
    }
    assert_eq!(waits(&memory, 1), 0);
}

#[test]
fn failures_back_off_and_successes_come_back() {
    let memory = AdaptiveSpin::new();
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
        memory.asleep(|| memory.waking(|| true));
    }
    assert!(memory.gain() > 0, "each was woken at once: {}", memory.gain());
    for _ in 0..64 {
        memory.asleep(|| ());
    }
    assert!(memory.gain() < 0, "none was woken by a waker: {}", memory.gain());
}

#[test]
fn a_spin_ends() {
    let memory = AdaptiveSpin::new();
    let Some(spinner) = Spinner::begin(false) else { return };
    drop(spinner);
    for _ in 0..64 {
        memory.remember(Some(500), spin::AUTO_LIMIT);
    }
    let start = Deadline::now().as_nanos();
    let mut spin = memory.begin(start + 1_000).expect("a spin");
    while spin.goes_on(u64::MAX) {}
    spin.failed();
    // The wait was over; or the thread lost its processor.
    let failures = memory.failures.load(Ordering::Relaxed);
    assert!(failures == 0 && memory.begin(u64::MAX).is_some() || failures == PREEMPTED);
}

/// A thread that has left a spin by a jump is not counted for ever.
#[test]
fn a_thread_that_jumped_out_of_a_spin_keeps_no_other_from_spinning() {
    let Some(spinner) = Spinner::begin(false) else { return };
    let now = Deadline::now().as_nanos();
    spinner.spins_until(now + 1);
    core::mem::forget(spinner);
    let another = Spinner::begin(false).expect("two processors");
    assert!(!another.is_one_too_many(now + 2));
}
