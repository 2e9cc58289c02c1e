extern crate std;
use super::super::{Busy, IN_VAIN, MOST_FAILURES, NOWHERE, PREEMPTED, Spin};
use super::*;
use crate::sync::spin::{AUTO_LIMIT, Spinner};

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

/// Whatever other tests attempt.
fn is_worth_it(memory: &AdaptiveSpin) -> bool {
    memory.is_worth_it_unless(&Pause::new())
}

/// Spins, as `spin` takes note of them, until a wait does not; how many these were.
fn spins(memory: &AdaptiveSpin, spin: impl Fn(&AdaptiveSpin)) -> usize {
    let spins = || memory.skipped.load(Ordering::Relaxed) == 0 && is_worth_it(memory);
    (0..1_000).take_while(|_| spins()).map(|_| spin(memory)).count()
}

fn skips(memory: &AdaptiveSpin) -> usize {
    let skipped = memory.skipped.load(Ordering::Relaxed);
    assert_eq!((0..skipped).filter(|_| is_worth_it(memory)).count(), 0);
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
        assert!(is_worth_it(&memory) && memory.gain() <= 0);
        memory.succeeded(4 * AUTO_LIMIT, AUTO_LIMIT);
    }
    assert_eq!(spins(&memory, pays), 1_000);
}

#[test]
fn each_attempt_that_fails_doubles_the_waits_without_one() {
    let is_late = |memory: &AdaptiveSpin| memory.succeeded(AUTO_LIMIT - 1, AUTO_LIMIT);
    // What a sleep and a wake cost is this machine's.
    let is_late_enough = near(0).saved(AUTO_LIMIT - 1) < 0;
    let fails: [fn(&AdaptiveSpin); 2] =
        [is_in_vain, if is_late_enough { is_late } else { is_in_vain }];
    for fail in fails {
        let memory = near(NEAR);
        for waits in (7..16).map(|i| 1 << i).chain([u16::MAX.into(); 2]) {
            memory.spent.store(0, Ordering::Relaxed);
            assert!(spins(&memory, fail) > 0);
            assert_eq!(skips(&memory), waits);
            (0..NEAR).for_each(|_| memory.counts_as_near(Some(AUTO_LIMIT)));
        }
        assert_eq!(memory.failures.load(Ordering::Relaxed), MOST_FAILURES);
    }
}

#[test]
fn attempts_are_made_after_sleeps_in_a_row_that_a_waker_elsewhere_ends_soon() {
    let attempts = is_worth_it;
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
    if Spinner::begin(false).is_none() {
        return;
    }
    let is_cut_short = |mut spin: Spin<'_>| {
        while spin.goes_on(0) {}
        spin.failed();
    };
    let ends: [&dyn Fn(Spin<'_>); 3] =
        [&|spin| spin.found_outside(), &|spin| spin.stopped(), &is_cut_short];
    for end in ends {
        let memory = near(NEAR);
        assert!(is_worth_it(&memory));
        let mut spins = 0;
        while memory.stage() > NEAR {
            end(memory.begin_unless(&Busy::new(0), u64::MAX).expect("a spin"));
            spins += 1;
            assert!(spins <= SPINS);
        }
        // One that was interrupted counts for more.
        assert!(spins > 0 && memory.stage() == 0);
    }
}

/// One that wakes up some time after its wake by a waker elsewhere, which came `after`.
fn sleeps(memory: &AdaptiveSpin, after: u64, outside: bool) {
    let now = Deadline::now().as_nanos();
    memory.woken_from.store(NOWHERE, Ordering::Relaxed);
    memory.woken_at.store((now - AUTO_LIMIT) as u32, Ordering::Relaxed);
    memory.end_sleep(now - AUTO_LIMIT - after, outside);
}

#[test]
fn sleeps_that_a_waker_ends_soon_are_near() {
    for outside in [true, false] {
        let memory = near(NEAR - 1);
        sleeps(&memory, AUTO_LIMIT * 3 / 2, outside);
        assert_eq!(memory.stage(), NEAR);
        sleeps(&memory, 300_000, outside);
        assert_eq!(memory.stage(), 0);
        // No waker has ended this one: it has found something at once.
        let memory = near(NEAR - 1);
        memory.end_sleep(Deadline::now().as_nanos(), outside);
        assert_eq!(memory.stage(), 0);
    }
}

#[test]
fn notes_and_stages_leave_each_other_alone() {
    let memory = near(0);
    memory.notes.store(NOTES, Ordering::Relaxed);
    memory.set_stage(NEAR);
    assert_eq!(memory.notes.load(Ordering::Relaxed), NOTES | NEAR << STAGE);
    // A sleep after a spin in vain says nothing of how near its waker is.
    sleeps(&memory, 300_000, false);
    assert_eq!(memory.stage(), NEAR);
    memory.note_vain();
    memory.succeeded(SHORT, AUTO_LIMIT);
    assert_eq!(memory.notes.load(Ordering::Relaxed) & IN_VAIN, 0);
    assert_eq!(memory.stage(), 0, "sleeps and spins by turns are no row");
}

#[test]
fn an_attempt_begins_anew_whatever_was_learned_before() {
    let memory = near(NEAR);
    memory.gain.store(-1_000_000_i32 as u32, Ordering::Relaxed);
    assert!(is_worth_it(&memory));
    assert_eq!(memory.gain(), 0);
    memory.spend(u64::MAX);
    assert!(!is_worth_it(&memory), "one wait sleeps, for a look at its waker");
    memory.spent.store(0, Ordering::Relaxed);
    assert!(is_worth_it(&memory));
    memory.busy.store(10_000, Ordering::Relaxed);
    assert_eq!((is_worth_it(&memory), memory.stage()), (false, 0));
}

#[test]
fn a_process_with_many_sets_attempts_seldom() {
    let (pause, longest) = (Pause::new(), u64::from(SPINS) * AUTO_LIMIT);
    let memories: std::vec::Vec<_> = (0..8).map(|_| near(NEAR)).collect();
    let begun = memories.iter().filter(|memory| memory.is_worth_it_unless(&pause)).count();
    assert_eq!(begun, 1);
    let until = pause.0.load(Ordering::Relaxed);
    assert!(until - Deadline::now().as_nanos() > SHARE * longest / 2);
    pause.end();
    assert!(memories[7].is_worth_it_unless(&pause));
}
