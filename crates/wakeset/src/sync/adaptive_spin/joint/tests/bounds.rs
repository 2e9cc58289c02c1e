//! What spins that do not pay may cost at most.

use super::super::super::busy::{Busy, MOST_REST};
use super::*;

/// Of a chain whose spins cost more, the waits that spin while a third thread computes and, if it
/// joins, waits once in each window apart.
fn spins_beside_one_that_computes(joins: bool) -> u64 {
    let (joint, mut chain) = (Joint::new(), Chain::new((40_000, 20_000), (20_000, 33_000)));
    chain.threads = 2;
    let mut seen = joint.window();
    for _ in 0..LONG {
        let before = chain.now.get();
        chain.wait(&joint);
        let computed = &chain.times[2];
        computed.set(computed.get() + chain.now.get() - before);
        let window = joint.window();
        if joins && seen != window && window.phase() == Phase::Apart {
            let turn = chain.next.replace(2);
            joint.waits(Alone::Sleeps, &chain);
            chain.next.set(turn);
        }
        seen = window;
    }
    chain.spun.get()
}

/// Its processor time is less for as much work of the chain if that is done sooner.
#[test]
fn one_that_computes_hides_no_cost() {
    let alone = spins_beside_one_that_computes(false);
    let beside = spins_beside_one_that_computes(true);
    assert!(alone > 0 && beside < 2 * alone, "{alone} and {beside} of {LONG}");
}

/// Rates change all the time, and one thread writes while it is apart and not together.
#[test]
fn trials_whose_work_cannot_be_told_are_paid_for() {
    let (joint, chain) = (Joint::new(), Chain::new(COSTS[0], (10_000, 100_000)));
    for i in 0..1 << 10 {
        chain.apart.set((if i % 2 == 0 { 8_000 } else { 40_000 }, COSTS[0].1));
        for _ in 0..WAITS * (CHANGED + 1) {
            if joint.window().phase() == Phase::Apart {
                joint.signals(1);
            }
            chain.wait(&joint);
        }
    }
    let excess = chain.spun.get() * (100_000 - COSTS[0].1);
    assert!(excess > 0 && excess < (chain.time() - excess) / 32, "{excess} of {}", chain.time());
}

/// On a machine that takes long to wake threads, where windows take long as well. Less than a
/// second of spins, with those of the trials that follow.
#[test]
fn what_comes_to_cost_more_ends_within_a_second() {
    let (joint, mut chain) = (Joint::new(), Chain::new((190_000, 60_000), (100_000, 50_000)));
    chain.joint_limit = 200_000;
    chain.run(&joint, LONG);
    while joint.window().phase() != Phase::Kept || joint.windows.load(Ordering::Relaxed) < 60 {
        chain.wait(&joint);
    }
    chain.together.set((190_000, 90_000));
    let spun = chain.run(&joint, 1 << 15);
    assert!(spun * 190_000 < 1_000_000_000, "{spun} spins");
}

/// What was kept before waits became rare is not charged to a trial much later.
#[test]
fn what_was_kept_is_forgotten_with_its_trial() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.kept.load(Ordering::Relaxed) < 50 {
        chain.wait(&joint);
    }
    chain.apart.set((1_000_000, 15_000));
    chain.together.set((1_000_000, 15_000));
    chain.run(&joint, 2000);
    assert_eq!(joint.window().phase(), Phase::Resting);
    assert_eq!(joint.kept.load(Ordering::Relaxed), 0);
}

/// Losses come whenever threads begin to spin, which they do long after they were to.
#[test]
fn rests_double_until_spins_go_on() {
    let (busy, mut now, mut longest) = (Busy::new(0), 1_000_000_000, 0);
    for _ in 0..8 {
        now += 5_000_000_000;
        busy.end_rest(now);
        now += 10_000_000;
        busy.lose(2_500_000, now - 5_000_000);
        assert!(busy.lose(2_500_000, now));
        longest = (0..).find(|rest| !busy.rests(|| now + rest * 1_000_000)).unwrap_or(0);
    }
    assert_eq!(longest * 1_000_000, MOST_REST);
}
