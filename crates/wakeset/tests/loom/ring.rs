//! The event ring: threads that take without the scan lock, beside refills, changes and removals.

use super::*;
use loom::sync::atomic::Ordering::Relaxed;

/// A set with a ring of `entries` slots that watches a counter at 0.
fn ringed(entries: usize, events: Events) -> Arc<World> {
    let world = World::watching(events);
    world.set.make_ring(entries).unwrap();
    world
}

/// What a taker gets: its data.
fn pop(set: &EventPoll) -> Option<u64> {
    set.ring().unwrap().pop().map(|event| event.data)
}

fn pop_waiting(set: &EventPoll) -> u64 {
    let mut event = [Event::default()];
    assert_eq!(set.ring().unwrap().wait(&mut event, Timeout::Never), Ok(1));
    event[0].data
}

/// Catches an edge between a taker's poll and its clearing of the mark.
#[test]
fn an_edge_is_not_lost_to_a_taker() {
    fn consume(world: &World) {
        if pop(&world.set).is_some() {
            let _ = world.counter.read();
        }
    }
    explore(2, || {
        let world = ringed(1, Events::IN | Events::ET);
        world.counter.write(1).unwrap();
        world.counter.read().unwrap();
        // In the ring, and not ready: the taker is about to drop it.
        let taker = run(&world, consume);
        world.counter.write(2).unwrap();
        taker.join().unwrap();
        consume(&world);
        assert_eq!(world.counter.value(), Some(0), "an edge was lost");
    });
}

/// Catches a taker, or a refill, that polls a source before all can see that its mark is gone.
fn loses_nothing(events: Events) {
    explore(2, move || {
        let world = World::new();
        world.set.make_ring(1).unwrap();
        let flag = Flag::open(&world.engine);
        world.set.add(1, &flag, Event::new(events, 1)).unwrap();
        flag.queue.wake(Events::IN);
        // Queued, and not ready: the taker is about to drop it.
        let taker = run(&world, |world| pop(&world.set));
        flag.raise();
        assert!(taker.join().unwrap().is_some() || pop(&world.set).is_some(), "it was lost");
    });
}

#[test]
fn a_taker_loses_no_change_of_a_source_without_a_total_order() {
    loses_nothing(Events::IN | Events::ET);
}

#[test]
fn a_refill_loses_no_change_of_a_source_without_a_total_order() {
    loses_nothing(Events::IN);
}

/// Catches a slot that is taken before it is written, and one taken twice.
#[test]
fn each_event_is_taken_once_and_whole() {
    explore(2, || {
        let world = ringed(1, Events::IN | Events::ET);
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(Events::OUT | Events::ET, 2)).unwrap();
        world.counter.write(1).unwrap();
        let taker = run(&world, |world| world.set.ring().unwrap().pop());
        let pop = || world.set.ring().unwrap().pop();
        let mut taken: Vec<_> = [pop(), taker.join().unwrap()].into_iter().flatten().collect();
        taken.extend(pop());
        taken.sort_by_key(|event| event.data);
        assert_eq!(taken, [Event::new(Events::IN, 1), Event::new(Events::OUT, 2)]);
    });
}

/// Catches a shot that two takers report.
#[test]
fn a_shot_is_taken_once() {
    explore(2, || {
        let world = ringed(2, Events::IN | Events::ONESHOT);
        world.counter.write(1).unwrap();
        let taker = run(&world, |world| pop(&world.set));
        world.counter.write(1).unwrap();
        let mine = pop(&world.set);
        let reports = [mine, taker.join().unwrap(), pop(&world.set)];
        assert_eq!(reports.into_iter().flatten().count(), 1);
    });
}

/// Catches a taker that spends the next shot on what it saw of the last.
#[test]
fn a_shot_armed_anew_is_not_spent_by_who_saw_the_last() {
    explore(2, || {
        let world = ringed(1, Events::IN | Events::ONESHOT);
        world.counter.write(1).unwrap();
        world.counter.read().unwrap();
        // In the ring, and not ready.
        let taker = run(&world, |world| pop(&world.set));
        let writer = run(&world, |world| world.counter.write(1).unwrap());
        world.set.modify(1, &world.counter, Event::new(Events::IN | Events::ONESHOT, 2)).unwrap();
        writer.join().unwrap();
        let reports = [taker.join().unwrap(), pop(&world.set), pop(&world.set)];
        assert_eq!(
            reports.into_iter().filter(|report| *report == Some(2)).count(),
            1,
            "{reports:?}"
        );
    });
}

/// Catches a change of interest that does not reach a watch in the ring, or hides it.
#[test]
fn a_change_of_interest_is_seen_in_the_ring() {
    explore(2, || {
        let world = ringed(1, Events::IN | Events::ET);
        world.counter.write(1).unwrap();
        let taker = run(&world, |world| pop(&world.set));
        world.set.modify(1, &world.counter, Event::new(Events::IN | Events::ET, 2)).unwrap();
        let mine = pop(&world.set);
        assert_ne!(mine, Some(1), "the old interest after the change");
        let reports = [taker.join().unwrap(), mine, pop(&world.set)];
        assert_eq!(
            reports.into_iter().filter(|report| *report == Some(2)).count(),
            1,
            "{reports:?}"
        );
    });
}

/// Catches an event that goes back in line while a taker has it.
#[test]
fn what_goes_back_in_line_is_not_taken_as_well() {
    explore(3, || {
        let world = ringed(2, Events::IN | Events::ET);
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(Events::OUT | Events::ET, 2)).unwrap();
        world.counter.write(1).unwrap();
        // The other one is in the ring now.
        assert_eq!(pop(&world.set), Some(2));
        let taker = run(&world, |world| pop(&world.set));
        let waited = world.take();
        assert_eq!([waited, taker.join().unwrap()].into_iter().flatten().collect::<Vec<_>>(), [1]);
        assert_eq!((pop(&world.set), world.take()), (None, None));
        world.set.remove(2, &other).unwrap();
        world.set.remove(1, &world.counter).unwrap();
        works_as_new(&world.engine, &world.set);
    });
}

/// A source of which a poll after its end is noticed.
struct Mortal {
    alive: AtomicBool,
    queue: WaitQueue,
}

impl Source for Mortal {
    fn poll(&self) -> Events {
        assert!(self.alive.load(Relaxed), "polled after its end");
        Events::IN
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// Catches a removal that returns while a taker is about to poll the source, or a taker that does
/// not see it.
fn removed_while_taken(flags: Events) {
    explore(3, move || {
        let world = World::new();
        world.set.make_ring(1).unwrap();
        let source = Arc::new(Mortal { alive: AtomicBool::new(true), queue: WaitQueue::new() });
        // SAFETY: the source outlives the set.
        unsafe { world.set.add_source(1, &*source, Event::new(Events::IN | flags, 1)) }.unwrap();
        let shared = Arc::new((world, source));
        let taker = run(&shared, |(world, _)| pop(&world.set));
        let (world, source) = &*shared;
        world.set.remove_source(1, Arc::as_ptr(source).cast()).unwrap();
        source.alive.store(false, Relaxed);
        assert_eq!(pop(&world.set), None, "taken after its removal");
        taker.join().unwrap();
        works_as_new(&world.engine, &world.set);
    });
}

#[test]
fn no_level_is_polled_once_removed() {
    removed_while_taken(Events::empty());
}

#[test]
fn no_edge_is_polled_once_removed() {
    removed_while_taken(Events::ET);
}

/// Catches a watch that is lost with its place in the ring.
#[test]
fn a_watch_removed_in_the_ring_is_free_again() {
    explore(2, || {
        let world = ringed(2, Events::IN | Events::ET);
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(Events::OUT | Events::ET, 2)).unwrap();
        world.counter.write(1).unwrap();
        assert_eq!(pop(&world.set), Some(2));
        let taker = run(&world, |world| pop(&world.set));
        world.set.remove(1, &world.counter).unwrap();
        assert_eq!(pop(&world.set), None);
        taker.join().unwrap();
        world.set.remove(2, &other).unwrap();
        works_as_new(&world.engine, &world.set);
    });
}

/// Catches a taker that sleeps though something has come.
#[test]
fn a_sleeping_taker_is_woken() {
    explore(3, || {
        let world = ringed(1, Events::IN | Events::ET);
        let taker = run(&world, |world| pop_waiting(&world.set));
        world.counter.write(1).unwrap();
        assert_eq!(taker.join().unwrap(), 1);
    });
}

/// Catches a level that one taker has in its hands and that looks like nothing to another.
#[test]
fn a_level_shows_while_another_takes_it() {
    explore(2, || {
        let world = ringed(1, Events::IN);
        world.counter.write(1).unwrap();
        let other = run(&world, |world| pop(&world.set));
        assert_eq!(pop(&world.set), Some(1));
        assert_eq!(other.join().unwrap(), Some(1));
    });
}

/// The ring in shared memory: the writer on one thread, the reader on another.
mod shared {
    use super::*;
    use wakeset::{RingReader, RingWriter, Woken};

    /// Takes what there is, waiting for it; the data.
    fn take_waiting(reader: &mut RingReader) -> u64 {
        let mut event = [Event::default()];
        assert_eq!(reader.wait(&mut event, Timeout::Never), Ok(1));
        event[0].data
    }

    /// Writes all that is ready, sleeping while the ring is full.
    fn pump(writer: &mut RingWriter<'_>, mut left: usize) {
        while left > 0 {
            match writer.pump().unwrap() {
                0 => assert_eq!(writer.sleep_for_reader(None), Woken::Kicked),
                written => left -= written,
            }
        }
    }

    fn with_two(events: Events) -> (Arc<World>, Description<Counter>) {
        let world = World::watching(events);
        let other = open(&world.engine);
        world.set.add(2, &other, Event::new(events, 2)).unwrap();
        world.counter.write(1).unwrap();
        other.write(1).unwrap();
        (world, other)
    }

    /// Two events through a ring of so many slots.
    fn two_events_come(slots: u32) {
        explore(3, move || {
            let (world, _other) = with_two(Events::IN | Events::ET);
            let mut writer = RingWriter::new(&world.set, slots).unwrap();
            let mut reader = writer.reader();
            let taken =
                thread::spawn(move || [take_waiting(&mut reader), take_waiting(&mut reader)]);
            pump(&mut writer, 2);
            assert_eq!(taken.join().unwrap(), [1, 2]);
        });
    }

    /// Catches a slot that is read before it is written, and one side that sleeps though the other
    /// has moved on.
    #[test]
    fn each_event_comes_once_and_whole() {
        two_events_come(2);
    }

    /// The same with a single slot: catches one that is written again before it has been read.
    #[test]
    fn a_full_ring_waits_for_its_reader() {
        two_events_come(1);
    }

    /// Catches a level that is written again before it has been taken, and one that is not
    /// afterwards.
    #[test]
    fn a_level_comes_again_once_it_has_been_taken() {
        explore(3, || {
            let world = World::watching(Events::IN);
            world.counter.write(1).unwrap();
            let mut writer = RingWriter::new(&world.set, 2).unwrap();
            let mut reader = writer.reader();
            assert_eq!(writer.pump(), Ok(1));
            let taker = thread::spawn(move || {
                let mut events = [Event::default(); 2];
                assert_eq!(reader.wait(&mut events, Timeout::Never), Ok(1));
                reader
            });
            let early = writer.pump().unwrap();
            let mut reader = taker.join().unwrap();
            let mut events = [Event::default(); 2];
            assert_eq!(reader.take(&mut events), Ok(early), "not taken yet, or written once");
            assert_eq!(writer.pump(), Ok(1), "it still holds");
            world.counter.read().unwrap();
            assert_eq!((reader.take(&mut events), writer.pump()), (Ok(1), Ok(0)));
        });
    }
}
