//! Timers that migrate into the kernel.

use super::*;

pub(super) fn timers_that_move_while_somebody_sleeps<B: Backend>() {
    for moved in 0..3 {
        let (set, timer) = watched::<B>(IN);
        let other = Timer::<B>::new();
        set.add(&other, IN, 8);
        timer.set(25 * MS, HOUR);
        other.set(HOUR, NONE);
        let waiter = Task::start({
            let set = set.clone();
            move || set.next()
        });
        waiter.until_asleep();
        let copies: Vec<_> =
            [timer.migrated_dup(), other.migrated_dup()].into_iter().take(moved).collect();
        assert_eq!(waiter.join(), (7, IN));
        assert_eq!(timer.read(), 1);
        other.set(2 * MS, NONE);
        assert_eq!(set.next(), (8, IN));
        drop(copies);
    }
}

/// A migration does not lose an edge that is to come; an edge that was reported may come again.
pub(super) fn edges_that_move<B: Backend>() {
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(MS, NONE);
    sleep(3 * MS);
    let copy = timer.migrated_dup();
    assert_eq!(set.next(), (7, IN), "expired before it migrated, and not reported");
    assert_eq!(copy.read(), 1);
    let (set, timer) = watched::<B>(IN | ET);
    timer.set(4 * MS, 4 * MS);
    let copy = timer.migrated_dup();
    for _ in 0..3 {
        assert_eq!(set.next(), (7, IN));
        copy.read();
    }
}
