//! A set in a set.

use super::*;

struct Nest {
    inner: Description<EventPoll>,
    outer: EventPoll,
    counter: Description<Counter>,
}

impl Nest {
    /// An outer set that watches, for `outer`, an inner one that watches a counter, for `inner`.
    fn new(outer: Events, inner: Events) -> Arc<Self> {
        let nest = Self::apart(inner);
        nest.outer.add(1, &nest.inner, Event::new(outer, 1)).unwrap();
        nest
    }

    /// The same without the outer watch.
    fn apart(inner: Events) -> Arc<Self> {
        let engine = Engine::new();
        let nest = Self {
            inner: Description::new(&engine, EventPoll::new(&engine).unwrap()),
            outer: EventPoll::new(&engine).unwrap(),
            counter: open(&engine),
        };
        nest.inner.add(2, &nest.counter, Event::new(inner, 2)).unwrap();
        Arc::new(nest)
    }
}

/// Catches a wake that ends at the inner set.
#[test]
fn a_wake_reaches_a_sleeper_on_the_outer_set() {
    explore(3, || {
        let nest = Nest::new(Events::IN, Events::IN);
        let waiter = run(&nest, |nest| wait(&nest.outer, Timeout::Never));
        nest.counter.write(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
}

/// Catches an outer edge lost because another thread has the inner set's ready watch in its hands.
#[test]
fn an_outer_edge_is_not_lost_to_an_inner_harvest() {
    explore(3, || {
        let nest = Nest::new(Events::IN | Events::ET, Events::IN);
        nest.counter.write(1).unwrap();
        let harvester = run(&nest, |nest| take(&nest.inner));
        assert_eq!(take(&nest.outer), Some(1));
        assert_eq!(harvester.join().unwrap(), Some(2));
    });
}

/// Catches a poll of the inner set from outside that polls a source before all can see that its
/// mark is gone.
#[test]
fn a_poll_from_outside_loses_no_change_of_a_source_without_a_total_order() {
    explore(3, || {
        let engine = Engine::new();
        let outer = EventPoll::new(&engine).unwrap();
        let inner = Description::new(&engine, EventPoll::new(&engine).unwrap());
        let flag = Flag::open(&engine);
        inner.add(2, &flag, Event::new(Events::IN, 2)).unwrap();
        outer.add(1, &inner, Event::new(Events::IN, 1)).unwrap();
        flag.queue.wake(Events::IN);
        // Queued inside, and not ready: the poll is about to drop it.
        let world = Arc::new((outer, inner));
        let poller = run(&world, |(outer, _)| take(outer));
        flag.raise();
        poller.join().unwrap();
        assert_eq!(take(&world.1), Some(2));
    });
}

/// Catches a wake that meets the inner watch queued and does not tell the outer set, whose edge is
/// used up.
#[test]
fn each_inner_change_is_an_outer_edge() {
    explore(3, || {
        let nest = Nest::new(Events::IN | Events::ET, Events::IN);
        nest.counter.write(1).unwrap();
        let writer = run(&nest, |nest| nest.counter.write(1).unwrap());
        let first = take(&nest.outer);
        writer.join().unwrap();
        assert_eq!(first, Some(1));
        nest.counter.write(1).unwrap();
        assert_eq!(take(&nest.outer), Some(1));
    });
}

/// Catches a set that becomes ready just while it is put into another.
#[test]
fn a_nested_add_sees_a_wake_or_is_seen() {
    explore(3, || {
        let nest = Nest::apart(Events::IN);
        let writer = run(&nest, |nest| nest.counter.write(1).unwrap());
        nest.outer.add(1, &nest.inner, Event::new(Events::IN | Events::ET, 1)).unwrap();
        writer.join().unwrap();
        assert_eq!(take(&nest.outer), Some(1));
    });
}

/// Catches an inner set that forgets the set around it: its memory begins as the next set between
/// the add's checks and its place in the wait queue.
#[test]
fn a_late_addition_is_noted_by_the_next_set() {
    explore(3, || {
        let engine = Engine::new();
        let sets = (EventPoll::new(&engine).unwrap(), EventPoll::new(&engine).unwrap());
        let sets = Arc::new(sets);
        let add = |(outer, inner): &(EventPoll, EventPoll)| {
            // SAFETY: the inner set closes its queue before it goes.
            unsafe { outer.add_source(1, inner, Event::new(Events::IN | Events::ET, 1)) }
        };
        let adder = run(&sets, add);
        sets.1.close();
        sets.1.reopen();
        match adder.join().unwrap() {
            // It looks its number up again.
            Err(Error::Closed) => add(&sets).unwrap(),
            added => added.unwrap(),
        }
        let (outer, inner) = &*sets;
        if outer.is_empty() {
            // It was added before the close.
            add(&sets).unwrap();
        }
        let counter = open(&engine);
        inner.add(2, &counter, Event::new(Events::IN, 2)).unwrap();
        for _ in 0..2 {
            counter.write(1).unwrap();
            assert_eq!(take(outer), Some(1));
        }
        inner.close();
    });
}
