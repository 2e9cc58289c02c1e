use super::super::{MOST_FAILURES, PREEMPTED, Spin};
use super::*;
use crate::sync::spin::AUTO_LIMIT;

const SHORT: u64 = 100;

/// A memory of waits that are too long to spin for, each ended soon by a waker elsewhere.
fn near(sleeps: u8) -> AdaptiveSpin {
    let memory = AdaptiveSpin::new();
    memory.spent.store(0, Ordering::Relaxed);
    for _ in 0..64 {
        memory.remember(None, AUTO_LIMIT);
    }
    (0..sleeps).for_each(|_| memory.counts_as_near(Some(AUTO_LIMIT)));
    memory
}

/// Spins, as `spin` takes note of them, until a wait does not; how many these were.
fn spins(memory: &AdaptiveSpin, spin: impl Fn(&AdaptiveSpin)) -> usize {
    let is_worth_it = || memory.skipped.load(Ordering::Relaxed) == 0 && memory.is_worth_it();
    (0..1_000).take_while(|_| is_worth_it()).map(|_| spin(memory)).count()
}

fn skips(memory: &AdaptiveSpin) -> usize {
    let skipped = memory.skipped.load(Ordering::Relaxed);
    assert_eq!((0..skipped).filter(|_| memory.is_worth_it()).count(), 0);
    skipped.into()
}

fn pays(memory: &AdaptiveSpin) {
    memory.succeeded(SHORT, AUTO_LIMIT);
}

fn is_in_vain(memory: &AdaptiveSpin) {
    memory.failed(FAILED, AUTO_LIMIT);
}

#[test]
fn spins_that_pay_in_an_attempt_go_on() {
    let memory = near(NEAR);
    assert!(memory.gain() < 0);
    assert_eq!(spins(&memory, pays), 1_000);
    assert_eq!((memory.stage(), skips(&memory)), (0, 0));
}

#[test]
fn spins_that_do_not_pay_end_with_the_attempt() {
    let too_long = |memory: &AdaptiveSpin| memory.succeeded(4 * AUTO_LIMIT, AUTO_LIMIT);
    assert_eq!(spins(&near(NEAR), too_long), SPINS.into());
    let memory = near(NEAR);
    assert_eq!(spins(&memory, is_in_vain), usize::from(SPINS / FAILED + 1));
    assert_eq!(skips(&memory), 128);
    let memory = near(NEAR);
    assert_eq!(spins(&memory, |memory| memory.failed(PREEMPTED, AUTO_LIMIT)), 1);
    assert_eq!(skips(&memory), 128);
}

/// The waker gets used to being awake.
#[test]
fn the_first_spins_of_an_attempt_are_not_judged() {
    let memory = near(NEAR);
    for _ in 0..SETTLE {
        assert!(memory.is_worth_it() && memory.gain() <= 0);
        memory.succeeded(4 * AUTO_LIMIT, AUTO_LIMIT);
    }
    assert_eq!(spins(&memory, pays), 1_000);
}

#[test]
fn each_attempt_that_fails_doubles_the_waits_without_one() {
    let memory = near(NEAR);
    for waits in (7..16).map(|i| 1 << i) {
        assert!(spins(&memory, is_in_vain) > 0);
        assert_eq!(skips(&memory), waits);
        (0..NEAR).for_each(|_| memory.counts_as_near(Some(AUTO_LIMIT)));
    }
    for _ in 0..2 {
        assert!(spins(&memory, is_in_vain) > 0);
        assert_eq!(skips(&memory), u16::MAX.into());
        assert_eq!(memory.failures.load(Ordering::Relaxed), MOST_FAILURES);
        (0..NEAR).for_each(|_| memory.counts_as_near(Some(AUTO_LIMIT)));
    }
}

#[test]
fn attempts_are_made_after_sleeps_in_a_row_that_a_waker_elsewhere_ends_soon() {
    let attempts = |memory: &AdaptiveSpin| memory.is_worth_it();
    assert!(!attempts(&near(NEAR - 1)));
    assert!(attempts(&near(NEAR)));
    for far in [None, Some(u64::MAX)] {
        let memory = near(NEAR - 1);
        memory.counts_as_near(far);
        memory.counts_as_near(Some(AUTO_LIMIT));
        assert!(!attempts(&memory), "{far:?} is far");
    }
    let memory = near(NEAR - 1);
    memory.woken_from.store(super::super::processor(), Ordering::Relaxed);
    // This thread may be moved meanwhile.
    if memory.shares_processor() {
        memory.counts_as_near(None);
        memory.counts_as_near(Some(AUTO_LIMIT));
        if memory.shares_processor() {
            assert_eq!(memory.stage(), NEAR - 1);
        }
    }
    let memory = near(NEAR);
    memory.busy.store(10_000, Ordering::Relaxed);
    assert!(!attempts(&memory), "its waker keeps busy");
}

/// Spins that end for other reasons are few as well.
#[test]
fn an_attempt_ends_whatever_its_spins_find() {
    let memory = near(NEAR);
    let is_cut_short = |mut spin: Spin<'_>| {
        while spin.goes_on(0) {}
        spin.failed();
    };
    let mut spins = 0;
    while spins == 0 || memory.stage() > NEAR {
        let Some(spin) = memory.begin(u64::MAX) else { return };
        if spins % 2 == 0 {
            spin.found_outside()
        } else {
            is_cut_short(spin)
        }
        spins += 1;
    }
    assert!((1..=SPINS).contains(&spins));
}
