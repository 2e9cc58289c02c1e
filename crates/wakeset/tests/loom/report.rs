//! What is reported while something else happens: no edge lost, no event twice.

use super::*;

/// Catches a level-triggered watch that is dropped from the list while it becomes ready again.
#[test]
fn a_level_is_not_lost_to_a_harvest() {
    explore(3, || {
        let world = World::watching(Events::IN);
        world.counter.write(1).unwrap();
        world.counter.read().unwrap();
        // Queued, and not ready: the harvest is about to drop it.
        let harvester = run(&world, |world| world.take());
        world.counter.write(1).unwrap();
        harvester.join().unwrap();
        assert_eq!(world.take(), Some(1));
    });
}

/// Catches an edge that comes between a harvester's poll and its clearing of the mark.
#[test]
fn an_edge_is_not_lost_to_a_harvest() {
    // Reads to the end on each report, as an edge-triggered consumer must, and only then.
    fn consume(world: &World) {
        if world.take().is_some() {
            let _ = world.counter.read();
        }
    }
    explore(3, || {
        let world = World::watching(Events::IN | Events::ET);
        world.counter.write(1).unwrap();
        world.counter.read().unwrap();
        // Queued, and not ready: the harvest is about to drop it.
        let harvester = run(&world, consume);
        world.counter.write(2).unwrap();
        harvester.join().unwrap();
        consume(&world);
        assert_eq!(world.counter.value(), Some(0), "an edge was lost");
    });
}

/// Catches a wake that looks at the mark before the change can be seen by all.
#[test]
fn a_source_without_a_total_order_loses_nothing() {
    explore(3, || {
        let world = World::new();
        let flag = Flag::open(&world.engine);
        world.set.add(1, &flag, Event::new(Events::IN | Events::ET, 1)).unwrap();
        flag.queue.wake(Events::IN);
        // Queued, and not ready: the harvest is about to drop it.
        let harvester = run(&world, |world| world.take().is_some());
        flag.raise();
        assert!(harvester.join().unwrap() || world.take().is_some(), "an edge was lost");
    });
}

/// Catches a ready watch that is in one harvester's hands and looks like nothing to another.
#[test]
fn a_level_shows_while_another_harvests_it() {
    explore(3, || {
        let world = World::watching(Events::IN);
        world.counter.write(1).unwrap();
        let other = run(&world, |world| world.take());
        assert_eq!(world.take(), Some(1));
        assert_eq!(other.join().unwrap(), Some(1));
    });
}

/// Catches an add that polls before it is in the wait queue: a change in between is seen by
/// neither.
#[test]
fn an_add_sees_a_wake_or_is_seen() {
    explore(3, || {
        let world = World::new();
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.add(1, &world.counter, Event::new(Events::IN | Events::ET, 1)).unwrap();
        writer.join().unwrap();
        assert_eq!(world.take(), Some(1));
    });
}

/// Catches a change of interest that polls before the new interest can be seen.
#[test]
fn a_change_of_interest_sees_a_wake_or_is_seen() {
    explore(3, || {
        let world = World::watching(Events::OUT | Events::ET);
        assert_eq!(world.take(), Some(1));
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.modify(1, &world.counter, Event::new(Events::IN | Events::ET, 2)).unwrap();
        writer.join().unwrap();
        assert_eq!(world.take(), Some(2));
    });
}

/// Catches a change of interest that has the watch in its hands and hides it from a waiter that
/// does not want to wait, in the very thread whose write has completed.
#[test]
fn a_change_of_interest_hides_nothing() {
    explore(3, || {
        let world = World::watching(Events::IN);
        let changer = run(&world, |world| {
            world.set.modify(1, &world.counter, Event::new(Events::IN, 1)).unwrap();
        });
        world.counter.write(1).unwrap();
        assert_eq!(world.take(), Some(1));
        changer.join().unwrap();
    });
}

/// Catches a ONESHOT watch that two changes, or a change and a harvest, report twice.
#[test]
fn oneshot_reports_once_per_arm() {
    explore(3, || {
        let world = World::watching(Events::IN | Events::ONESHOT);
        let writer = run(&world, |world| {
            world.counter.write(1).unwrap();
            world.counter.write(1).unwrap();
        });
        let harvester = run(&world, |world| world.take());
        let mine = world.take();
        let reports =
            usize::from(mine.is_some()) + usize::from(harvester.join().unwrap().is_some());
        writer.join().unwrap();
        let reports = reports + usize::from(world.take().is_some());
        assert_eq!((reports, world.take()), (1, None));
        world.set.modify(1, &world.counter, Event::new(Events::IN | Events::ONESHOT, 2)).unwrap();
        assert_eq!((world.take(), world.take()), (Some(2), None));
    });
}

/// Catches a re-arm that is lost because an earlier change still had the watch on the list.
#[test]
fn a_rearm_is_not_lost() {
    explore(2, || {
        let world = World::watching(Events::IN | Events::ONESHOT);
        world.counter.write(1).unwrap();
        assert_eq!(world.take(), Some(1));
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        let harvester = run(&world, |world| world.take());
        world.set.modify(1, &world.counter, Event::new(Events::IN | Events::ONESHOT, 2)).unwrap();
        writer.join().unwrap();
        let theirs = harvester.join().unwrap();
        assert_eq!(theirs.or_else(|| world.take()), Some(2));
        assert_eq!(world.take(), None);
    });
}

/// Catches a producer that takes another's mark for the deed: the first has marked the watch and is
/// stopped before it pushes it, and the second's own wait finds nothing.
#[test]
fn a_second_producer_sees_its_own_change() {
    explore(3, || {
        let world = World::watching(Events::IN);
        let first = run(&world, |world| world.counter.write(1).unwrap());
        world.counter.write(1).unwrap();
        assert_eq!(world.take(), Some(1));
        first.join().unwrap();
    });
}

/// Catches the late end of one wake that is taken for the end of the next: a third producer then
/// relies on a mark whose owner is stopped before it pushes.
#[test]
fn a_late_end_of_a_wake_does_not_end_the_next() {
    explore(2, || {
        let world = World::watching(Events::IN | Events::ET);
        // Not loom's: it must order nothing for the engine.
        let harvested = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let first = run(&world, |world| world.counter.write(1).unwrap());
        let said = Arc::clone(&harvested);
        let second = run(&world, move |world| {
            world.take();
            said.store(true, std::sync::atomic::Ordering::Relaxed);
            world.counter.write(1).unwrap();
        });
        first.join().unwrap();
        // From then on nobody else takes what the third reports.
        let mine_alone = harvested.load(std::sync::atomic::Ordering::Relaxed);
        world.counter.write(1).unwrap();
        let reported = world.take();
        assert!(reported == Some(1) || !mine_alone);
        second.join().unwrap();
    });
}

/// Catches a ONESHOT watch that is reported out of a stopped producer's hands and again when that
/// one goes on.
#[test]
fn what_is_in_hand_is_reported_once_per_arm() {
    explore(2, || {
        let world = World::watching(Events::IN | Events::ONESHOT);
        let first = run(&world, |world| world.counter.write(1).unwrap());
        world.counter.write(1).unwrap();
        assert_eq!(world.take(), Some(1));
        first.join().unwrap();
        assert_eq!(world.take(), None);
    });
}

/// Catches a call for attention that a push or a removal, in between, takes off the list.
#[test]
fn attention_outlives_what_comes_between() {
    explore(2, || {
        let world = World::watching(Events::IN);
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(Events::IN, 2)).unwrap();
        let first = run(&world, |world| world.counter.write(1).unwrap());
        // Finds the mark of the first, who may be stopped before it pushes.
        world.counter.write(1).unwrap();
        other.write(1).unwrap();
        world.set.remove(2, &other).unwrap();
        assert_eq!(world.take(), Some(1));
        first.join().unwrap();
    });
}

/// Catches a change of interest that takes another's mark for the deed and reports nothing at once.
#[test]
fn a_change_of_interest_reports_what_is_in_hand() {
    explore(3, || {
        let world = World::watching(Events::IN | Events::ET);
        world.counter.write(1).unwrap();
        assert_eq!(world.take(), Some(1));
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.modify(1, &world.counter, Event::new(Events::IN | Events::ET, 2)).unwrap();
        assert_eq!(world.take(), Some(2));
        writer.join().unwrap();
    });
}

/// Catches a watch that is put behind the slot in the queue itself, and that a wake misses which
/// does not look there.
#[test]
fn an_add_to_a_longer_queue_sees_a_wake_or_is_seen() {
    explore(3, || {
        let world = World::watching(Events::IN | Events::ET);
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.add(2, &world.counter, Event::new(Events::IN | Events::ET, 2)).unwrap();
        writer.join().unwrap();
        let mut reported = [world.take(), world.take()];
        reported.sort_unstable();
        assert_eq!(reported, [Some(1), Some(2)]);
    });
}

/// Catches a batch whose add polls before it is in the wait queue, or whose change of interest
/// tells nobody.
#[test]
fn a_batch_sees_a_wake_or_is_seen() {
    explore(2, || {
        let world = World::new();
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(Events::OUT | Events::ET, 2)).unwrap();
        assert_eq!(world.take(), Some(2));
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        let edge = |data| Event::new(Events::IN | Events::ET, data);
        let mut changes = [Change::add(1, &world.counter, edge(1)), Change::remove(2, &other)];
        assert_eq!(world.set.apply(&mut changes, OnError::GoOn), 2);
        writer.join().unwrap();
        assert_eq!([world.take(), world.take()], [Some(1), None]);
    });
}
