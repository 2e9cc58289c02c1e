//! Watches, sources and sets that go while a waker has them in its hands.

use super::*;

/// Catches a late wake that marks the next life of the watch's memory, a watch freed twice, and one
/// freed while it is on the list.
#[test]
fn a_late_wake_does_not_reach_the_next_watch() {
    explore(3, || {
        let world = World::watching(Events::IN | Events::ET);
        let next = open(&world.engine);
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.remove(1, &world.counter).unwrap();
        world.set.add(2, &next, Event::new(Events::IN | Events::ET, 2)).unwrap();
        assert_eq!(world.take(), None, "reported after it was removed");
        next.write(1).unwrap();
        assert_eq!(world.take(), Some(2));
        writer.join().unwrap();
        assert_eq!(world.take(), None);
        works_as_new(&world.engine, &world.set);
    });
}

/// Catches a wake lost because it met the old life of a watch that was removed and added again.
#[test]
fn a_wake_reaches_the_watch_that_was_added_again() {
    explore(3, || {
        let world = World::watching(Events::IN | Events::ET);
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.remove(1, &world.counter).unwrap();
        world.set.add(1, &world.counter, Event::new(Events::IN | Events::ET, 2)).unwrap();
        writer.join().unwrap();
        assert_eq!((world.take(), world.take()), (Some(2), None));
        works_as_new(&world.engine, &world.set);
    });
}

/// Catches a report of a watch whose removal has returned.
#[test]
fn nothing_is_reported_after_a_removal() {
    explore(2, || {
        let world = World::watching(Events::IN);
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        let harvester = run(&world, |world| world.take());
        world.set.remove(1, &world.counter).unwrap();
        assert_eq!(world.take(), None);
        writer.join().unwrap();
        harvester.join().unwrap();
        assert_eq!(world.take(), None);
        works_as_new(&world.engine, &world.set);
    });
}

/// A world whose counter is not a [`Description`], so that it can be closed while another thread
/// writes, as a descriptor table does.
struct Table {
    world: Arc<World>,
    counter: Counter,
}

impl Table {
    /// Its set does not watch its counter yet.
    fn unwatched() -> Arc<Self> {
        Arc::new(Self { world: World::new(), counter: Counter::new(0, CounterFlags::NONBLOCK) })
    }

    fn new() -> Arc<Self> {
        let table = Self::unwatched();
        table.add().unwrap();
        table
    }

    fn add(&self) -> Result<(), Error> {
        let source: *const dyn Source = &self.counter;
        // SAFETY: each model closes the counter's queue before the table goes.
        unsafe { self.world.set.add_source(1, source, Event::new(Events::IN, 1)) }
    }
}

/// Catches a closed source that a late wake reports, or whose watch it frees twice.
#[test]
fn a_source_closes_while_it_wakes() {
    explore(3, || {
        let table = Table::new();
        let writer = run(&table, |table| table.counter.write(1).unwrap());
        table.counter.wait_queue().close();
        assert_eq!((table.world.take(), table.world.set.len()), (None, 0));
        writer.join().unwrap();
        assert_eq!(table.world.take(), None);
        works_as_new(&table.world.engine, &table.world.set);
    });
}

/// Catches a watch that is added to a source closed meanwhile, and that stays for ever.
#[test]
fn a_source_closes_while_a_set_adds_it() {
    explore(3, || {
        let table = Table::unwatched();
        let adder = run(&table, |table| table.add());
        table.counter.wait_queue().close();
        let added = adder.join().unwrap();
        assert!(matches!(added, Ok(()) | Err(Error::Closed)));
        assert_eq!((table.world.take(), table.world.set.len()), (None, 0));
        works_as_new(&table.world.engine, &table.world.set);
    });
}

/// Catches a watch of the next object in the memory that does not report what that begins with.
#[test]
fn a_late_addition_reports_what_the_next_object_begins_with() {
    explore(3, || {
        let table = Table::unwatched();
        table.counter.seal();
        table.counter.wait_queue().close();
        let adder = run(&table, |table| table.add());
        table.counter.unseal(1, CounterFlags::NONBLOCK);
        match adder.join().unwrap() {
            // It looks its number up again.
            Err(Error::Closed) => table.add().unwrap(),
            added => added.unwrap(),
        }
        assert_eq!(table.world.take(), Some(1));
        table.counter.wait_queue().close();
        works_as_new(&table.world.engine, &table.world.set);
    });
}

/// Catches a source and a set that both remove the watch between them.
#[test]
fn a_source_closes_while_its_set_closes() {
    explore(3, || {
        let table = Table::new();
        table.counter.write(1).unwrap();
        let closer = run(&table, |table| table.world.set.close());
        table.counter.wait_queue().close();
        closer.join().unwrap();
        table.world.set.reopen();
        assert_eq!((table.world.take(), table.world.set.len()), (None, 0));
        works_as_new(&table.world.engine, &table.world.set);
    });
}

/// Catches a wake that meets its set being cleared, and that marks or pushes the watch that the set
/// makes of the same memory next.
#[test]
fn a_late_wake_does_not_hurt_a_cleared_set() {
    explore(3, || {
        let world = World::watching(Events::IN | Events::ET);
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.clear();
        assert_eq!((world.take(), world.set.len()), (None, 0));
        world.set.add(1, &world.counter, Event::new(Events::IN | Events::ET, 2)).unwrap();
        writer.join().unwrap();
        assert_eq!((world.take(), world.take()), (Some(2), None));
        works_as_new(&world.engine, &world.set);
    });
}

/// Catches a source and a set that both remove the watch between them, where the set goes on.
#[test]
fn a_source_closes_while_its_set_is_cleared() {
    explore(3, || {
        let table = Table::new();
        table.counter.write(1).unwrap();
        let closer = run(&table, |table| table.world.set.clear());
        table.counter.wait_queue().close();
        closer.join().unwrap();
        assert_eq!((table.world.take(), table.world.set.len()), (None, 0));
        works_as_new(&table.world.engine, &table.world.set);
    });
}

/// Catches a removal and a close of the source that both remove the watch.
#[test]
fn a_source_closes_while_its_watch_is_removed() {
    explore(3, || {
        let table = Table::new();
        let remover = run(&table, |table| {
            let _ = table.world.set.remove_source(1, std::ptr::from_ref(&table.counter).cast());
        });
        table.counter.wait_queue().close();
        remover.join().unwrap();
        assert_eq!((table.world.take(), table.world.set.len()), (None, 0));
        works_as_new(&table.world.engine, &table.world.set);
    });
}

/// Catches a late push into the memory of a closed set that makes a later set report or lose
/// something, or that loses the watch for good.
#[test]
fn a_late_push_does_not_hurt_the_next_set() {
    explore(3, || {
        let engine = Engine::new();
        let counter = open(&engine);
        let set = EventPoll::new(&engine).unwrap();
        set.add(1, &counter, Event::new(Events::IN, 1)).unwrap();
        let late = counter.clone();
        let writer = thread::spawn(move || late.write(1).unwrap());
        drop(set);
        let set = EventPoll::new(&engine).unwrap();
        let next = open(&engine);
        set.add(1, &next, Event::new(Events::IN | Events::ET, 2)).unwrap();
        assert_eq!(take(&set), None);
        next.write(1).unwrap();
        assert_eq!(take(&set), Some(2));
        writer.join().unwrap();
        assert_eq!(take(&set), None);
        works_as_new(&engine, &set);
    });
}
