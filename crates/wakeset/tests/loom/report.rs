//! What is reported while something else happens: no edge lost, no event twice.

use super::*;
use loom::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use wakeset::WaitQueue;

/// Catches a level-triggered watch that is dropped from the list while it becomes ready again.
/// (Mutant `unqueue_after_poll`.)
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
/// (Mutant `unqueue_after_poll`.)
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

/// A source as its users write one: its state is no sequentially consistent variable.
struct Flag {
    up: AtomicBool,
    queue: WaitQueue,
}

impl Flag {
    fn raise(&self) {
        self.up.store(true, Release);
        self.queue.wake(Events::IN);
    }
}

impl Source for Flag {
    fn poll(&self) -> Events {
        if self.up.load(Acquire) { Events::IN } else { Events::empty() }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// Catches a wake that looks at the mark before the change can be seen by all. (Mutant `wake_without_fence`.)
#[test]
fn a_source_without_a_total_order_loses_nothing() {
    explore(3, || {
        let world = World::new();
        let flag = Description::new(&world.engine, Flag { up: AtomicBool::new(false), queue: WaitQueue::new() });
        world.set.add(1, &flag, Event::new(Events::IN | Events::ET, 1)).unwrap();
        flag.queue.wake(Events::IN);
        // Queued, and not ready: the harvest is about to drop it.
        let harvester = run(&world, |world| world.take().is_some());
        flag.raise();
        assert!(harvester.join().unwrap() || world.take().is_some(), "an edge was lost");
    });
}

/// Catches a ready watch that is in one harvester's hands and looks like nothing to another.
/// (Mutant `hint_before_list`.)
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

/// Catches an add that polls before it is in the wait queue: a change in between is seen by neither.
/// (Mutant `poll_before_attach`.)
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

/// Catches a change of interest that polls before the new interest can be seen. (Mutant `poll_before_interest`.)
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

/// Catches a change of interest that has the watch in its hands and hides it from a waiter that does not want to wait,
/// in the very thread whose write has completed. (Mutant `hint_after_mark`.)
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
/// (Mutant `oneshot_keeps_its_mask`.)
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
        let reports = usize::from(mine.is_some()) + usize::from(harvester.join().unwrap().is_some());
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

/// Catches a producer that takes another's mark for the deed: the first has marked the watch and is stopped before it pushes it,
/// and the second's own wait finds nothing.
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
