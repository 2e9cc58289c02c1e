//! What disturbs a trial, or spins that are kept: other programs, a stop of the process, threads
//! that come late.

use super::super::super::busy::MOST_REST;
use super::*;

/// Spins cost less than sleeps and take less time, but now and then one gives its processor to
/// another program, for three milliseconds. How many of so many waits spin.
fn run_beside_others(joint: &Joint, chain: &Chain, waits: u64) -> u64 {
    let before = chain.spun.get();
    for i in 0..waits {
        let lost = if i % 40 == 0 { 3_000_000 } else { 0 };
        chain.together.set((15_000 + lost, 20_000));
        // All waits take longer for that later, spins or not.
        chain.apart.set((if i % 5_000 < 2_500 { 120_000 } else { 30_000 }, 40_000));
        if chain.wait(joint) && lost > 0 {
            joint.lost(lost, false, chain);
        }
    }
    chain.spun.get() - before
}

#[test]
fn a_busy_machine_is_left_to_others_until_it_is_free() {
    let (joint, chain) = (Joint::new(), Chain::new((40_000, 40_000), (15_000, 20_000)));
    let spun = run_beside_others(&joint, &chain, LONG);
    // Some ten seconds, of which four trials and then one every four take a few milliseconds each.
    assert!((1..8 * u64::from(WAITS)).contains(&spun), "{spun}");
    chain.together.set((15_000, 20_000));
    chain.apart.set((40_000, 40_000));
    let since = chain.now.get();
    while chain.run(&joint, 1 << 10) < 1 << 9 {}
    let took = chain.now.get() - since;
    assert!(took < 2 * MOST_REST, "free again for {took} ns");
}

/// One that becomes busy while spins are kept.
#[test]
fn spins_that_were_kept_end_when_others_want_the_processors() {
    let (joint, chain) = (Joint::new(), Chain::new((40_000, 40_000), (15_000, 20_000)));
    chain.run(&joint, LONG);
    let spun = run_beside_others(&joint, &chain, 1 << 13);
    assert!(spun < u64::from(WAITS), "{spun}");
    assert!(joint.busy.rests(|| chain.now.get()));
}

/// Spins lose more than they gain, as the process finds by all of them.
#[test]
fn spins_that_were_kept_end_when_all_do() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.window().phase() != Phase::Kept {
        chain.wait(&joint);
    }
    joint.lost(300_000, true, &chain);
    assert_eq!(joint.window().phase(), Phase::Resting);
    assert!(joint.busy.rests(|| chain.now()));
}

/// A short loss is none, and a longer one is seldom enough.
#[test]
fn a_processor_lost_now_and_then_is_no_busy_machine() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    for i in 0..LONG {
        if chain.wait(&joint) && i % 1024 == 0 {
            joint.lost(300_000, false, &chain);
        }
    }
    assert!(chain.spun.get() > LONG * 7 / 8, "{:?}", chain.spun);
}

/// Before a window together has settled it has not lasted for long, so a loss would be most of it.
#[test]
fn a_loss_before_a_window_settles_is_one_as_any_other() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    let mut before = joint.window();
    for _ in 0..LONG {
        let window = joint.window();
        let begins = window != before && window.phase() == Phase::Together;
        before = window;
        if chain.wait(&joint) && begins {
            joint.lost(1_000_000, false, &chain);
        }
    }
    assert!(chain.spun.get() > LONG * 7 / 8, "{:?}", chain.spun);
}

/// The process is stopped for an hour, or the machine is, in any window.
#[test]
fn a_stop_ends_no_trials_for_long() {
    for at in 1..64 {
        let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
        chain.run(&joint, (1 << 14) + at * 37);
        let hour = 3_600_000_000_000;
        if chain.wait(&joint) {
            // Each thread that spins finds it.
            (0..3).for_each(|_| joint.lost(hour, false, &chain));
            assert!(!joint.busy.rests(|| chain.now()), "a stop at {at} is no busy machine");
        }
        chain.now.set(chain.now.get() + hour);
        chain.run(&joint, 1 << 14);
        let spun = chain.run(&joint, 1 << 14);
        assert!(spun > (1 << 14) * 7 / 8, "{spun} after a stop at {at}");
    }
}

/// While spins are kept they come to cost a little more than sleeps do.
#[test]
fn what_comes_to_cost_a_little_more_is_given_up_soon() {
    for cost in [15_600, 16_000, 16_800] {
        let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
        chain.run(&joint, LONG);
        chain.together.set((PAYS[1].0, cost));
        let spun = chain.run(&joint, LONG) / u64::from(WAITS);
        assert!(spun <= u64::from(KEPT << MOST_SUCCESSES) + 4, "{spun} windows with {cost}");
    }
}

/// One comparison comes out the other way by chance.
#[test]
fn one_pair_ends_nothing_that_has_paid() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.window().phase() != Phase::Together {
        chain.wait(&joint);
    }
    chain.together.set((PAYS[1].0, 2 * PAYS[0].1));
    while joint.window().phase() == Phase::Together {
        chain.wait(&joint);
    }
    chain.together.set(PAYS[1]);
    assert_eq!(joint.window().phase(), Phase::Apart);
    let waits = u64::from(8 * WAITS);
    // One window apart, after which one kept, and another one apart.
    let spun = chain.run(&joint, waits);
    assert!(spun >= waits - u64::from(2 * WAITS) - 2, "{spun} of {waits}");
}

/// Threads on their wakers' processor do not spin; those that do find nothing.
#[test]
fn waits_that_only_sleep_find_nothing() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.window().phase() != Phase::Kept || joint.windows.load(Ordering::Relaxed) < 60 {
        chain.wait(&joint);
    }
    let (kept, mut vain) = (joint.window(), 0);
    chain.finds.set(false);
    while joint.window() == kept {
        joint.waits(Alone::OnlySleeps, &chain);
        vain += u64::from(chain.wait(&joint));
    }
    assert!(vain <= u64::from(EARLY / 2), "{vain}");
}

/// What was kept before spins came to find nothing was not in vain.
#[test]
fn spins_in_vain_are_charged_for_themselves_alone() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.kept.load(Ordering::Relaxed) < 32 {
        chain.wait(&joint);
    }
    let before = joint.credit.left();
    chain.finds.set(false);
    while joint.window().phase() != Phase::Resting {
        chain.wait(&joint);
    }
    let charged = before - joint.credit.left();
    assert!(charged <= i64::from(3 * EARLY) * chain.joint_limit as i64, "{charged}");
}

/// A thread that came when the window apart had settled has no part of its own to compare, and one
/// that took its place before is not taken for it.
#[test]
fn a_thread_that_joins_late_takes_no_part() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.window().phase() != Phase::Apart || joint.left.load(Ordering::Relaxed) != WAITS / 2
    {
        chain.wait(&joint);
    }
    let (trial, late) = (joint.window(), 7);
    let part = joint.part(late);
    (0..9).for_each(|_| part.note_wait());
    part.begin(1);
    // It has counted its wait before the window had settled, and is held up until now.
    part.join(trial, late);
    (0..9).for_each(|_| part.note_wait());
    assert_eq!(joint.in_trial().filter(|part| part.thread() == late).count(), 0);
    while joint.window() == trial {
        chain.wait(&joint);
    }
    assert!(joint.in_trial().all(|part| part.thread() != late));
    chain.run(&joint, u64::from(SETTLE + 2));
    assert!(!joint.part(late).belongs_to(trial), "it has left");
}
