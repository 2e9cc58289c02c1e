//! Changes of the interest list, closes and leases under producers and waiters.

use super::*;

/// While two producers write, another thread changes the interest and removes and adds the watch.
/// Each addition has a number of its own as data, so a report of a watch whose removal had returned
/// before the wait began is noticed.
pub fn changes_and_removals() {
    struct Shared {
        world: World,
        counter: Description<Counter>,
        /// Numbers up to this one are removed for good.
        removed: AtomicU64,
    }
    explore(|| {
        let world = World::new(2 * 3);
        let counter = open(&world.engine);
        world.set.add(1, &counter, Event::new(Events::IN, 1)).unwrap();
        let shared = Arc::new(Shared { world, counter, removed: AtomicU64::new(0) });
        let producers = [0, 1].map(|_| {
            run(&shared, |shared| {
                for _ in 0..3 {
                    shared.counter.write(1).unwrap();
                }
            })
        });
        let changer = run(&shared, |Shared { world, counter, removed }| {
            for number in 1..4 {
                let modes = [Events::ET, Events::empty()];
                world
                    .set
                    .modify(1, counter, Event::new(Events::IN | modes[number as usize % 2], number))
                    .unwrap();
                world.set.remove(1, counter).unwrap();
                removed.store(number, SeqCst);
                let event = Event::new(Events::IN | modes[(number as usize + 1) % 2], number + 1);
                world.set.add(1, counter, event).unwrap();
            }
        });
        let waiters = [1, 2].map(|room| {
            run(&shared, move |Shared { world, counter, removed }| {
                world.serve(
                    room,
                    || removed.load(SeqCst),
                    |event, removed| {
                        assert!(event.data > removed, "reported after its removal");
                        world.consume(counter);
                    },
                );
            })
        });
        join(producers.into_iter().chain(waiters).chain([changer]));
    });
}

/// Changes, removals and additions in one batch, while others write and wait: as above.
pub fn batches() {
    struct Shared {
        world: World,
        counters: [Description<Counter>; 2],
        removed: AtomicU64,
    }
    explore(|| {
        let world = World::new(2 * 3);
        let counters = [open(&world.engine), open(&world.engine)];
        for (fd, counter) in (0..).zip(&counters) {
            world.set.add(fd, counter, Event::new(Events::IN | Events::ET, 1)).unwrap();
        }
        let shared = Arc::new(Shared { world, counters, removed: AtomicU64::new(0) });
        let producers = [0, 1].map(|which| {
            run(&shared, move |shared| {
                for _ in 0..3 {
                    shared.counters[which].write(1).unwrap();
                }
            })
        });
        let changer = run(&shared, |Shared { world, counters: [first, second], removed }| {
            for number in 2..5 {
                let event = |data| Event::new(Events::IN | Events::ET, data);
                let mut away = [
                    Change::modify(0, first, event(number)),
                    Change::remove(0, first),
                    Change::remove(1, second),
                ];
                assert_eq!(world.set.apply(&mut away, OnError::Stop), 3);
                removed.store(number, SeqCst);
                let mut back = [
                    Change::add(1, second, event(number + 1)),
                    Change::add(0, first, event(number + 1)),
                ];
                assert_eq!(world.set.apply(&mut back, OnError::Stop), 2);
            }
        });
        let waiters = [1, 2].map(|room| {
            run(&shared, move |Shared { world, counters, removed }| {
                world.serve(
                    room,
                    || removed.load(SeqCst),
                    |event, removed| {
                        assert!(event.data > removed, "reported after its removal");
                        counters.iter().for_each(|counter| world.consume(counter));
                    },
                );
            })
        });
        join(producers.into_iter().chain(waiters).chain([changer]));
    });
}

/// Watches are removed and what they stand for is freed while others have their events in hand:
/// nothing is used after it was freed.
pub fn hands() {
    struct Shared {
        world: World,
        counter: Description<Counter>,
        /// What stands for numbers up to this one is freed.
        freed: AtomicU64,
    }
    explore(|| {
        let world = World::new(3);
        let counter = open(&world.engine);
        world.set.add(1, &counter, Event::new(Events::IN, 1)).unwrap();
        let shared = Arc::new(Shared { world, counter, freed: AtomicU64::new(0) });
        let producer = run(&shared, |shared| {
            for _ in 0..3 {
                shared.counter.write(1).unwrap();
            }
        });
        let changer = run(&shared, |Shared { world, counter, freed }| {
            for number in 1..4 {
                match world.set.retire(1, counter).unwrap() {
                    Removal::Idle => {}
                    Removal::InUse(holders) => assert!(holders.wait(Timeout::Never)),
                    told => panic!("{told:?}"),
                }
                freed.store(number, SeqCst);
                let mode = [Events::empty(), Events::ONESHOT, Events::ET][number as usize % 3];
                world.set.add(1, counter, Event::new(Events::IN | mode, number + 1)).unwrap();
            }
        });
        let waiters = [1, 2].map(|room| {
            run(&shared, move |Shared { world, counter, freed }| {
                let mut hand = world.set.lease().unwrap();
                loop {
                    let mut events = vec![Event::default(); room];
                    let n = hand.wait(&mut events, Timeout::Never).unwrap();
                    for event in &events[..n] {
                        if event.data == STOP {
                            return;
                        }
                        thread::yield_now();
                        assert!(event.data > freed.load(SeqCst), "used after it was freed");
                        world.consume(counter);
                        // The next life of the watch is another one, or this one is armed again.
                        let armed = hand.modify(
                            1,
                            counter,
                            Event::new(Events::IN | Events::ONESHOT, event.data),
                        );
                        assert!(armed.is_ok() || armed == Err(Error::NotWatched));
                    }
                }
            })
        });
        join([producer, changer].into_iter().chain(waiters));
    });
}

/// A source is closed while a producer writes to it, and its memory's watch goes to another source;
/// a second set that watches the same sources is closed and opened again.
pub fn closes() {
    struct Shared {
        world: World,
        counters: [Description<Counter>; 2],
        /// Not a description: a descriptor table closes it while others may still write.
        closing: Counter,
        closed: AtomicU64,
    }
    const CLOSING: u64 = 7;
    explore(|| {
        let world = World::new(2 * 2);
        let counters = [0, 1].map(|_| open(&world.engine));
        let closing = Counter::new(0, CounterFlags::NONBLOCK);
        let shared = Arc::new(Shared { world, counters, closing, closed: AtomicU64::new(0) });
        let source: *const dyn Source = &shared.closing;
        // SAFETY: its queue is closed below, before its memory goes.
        unsafe {
            shared.world.set.add_source(7, source, Event::new(Events::IN | Events::ET, CLOSING))
        }
        .unwrap();
        shared
            .world
            .set
            .add(0, &shared.counters[0], Event::new(Events::IN | Events::ET, 0))
            .unwrap();
        let producers = [0, 1].map(|_| {
            run(&shared, |shared| {
                for counter in &shared.counters {
                    shared.closing.write(1).unwrap();
                    counter.write(1).unwrap();
                }
            })
        });
        let closer = run(&shared, |shared| {
            shared.closing.wait_queue().close();
            shared.closed.store(1, SeqCst);
            // Takes the watch's memory if no waker has it.
            shared
                .world
                .set
                .add(1, &shared.counters[1], Event::new(Events::IN | Events::ET, 1))
                .unwrap();
        });
        let opener = run(&shared, |shared| {
            for _ in 0..2 {
                let set = EventPoll::new(&shared.world.engine).unwrap();
                for (i, counter) in shared.counters.iter().enumerate() {
                    set.add(i as i32, counter, Event::new(Events::IN, i as u64)).unwrap();
                }
                let mut events = [Event::default(); 4];
                let n = set.wait(&mut events, Timeout::Now).unwrap();
                assert!(
                    n <= 2 && events[..n].iter().all(|event| event.data < 2),
                    "reports of an earlier set"
                );
            }
        });
        let waiter = run(&shared, |Shared { world, counters, closed, .. }| {
            world.serve(
                2,
                || closed.load(SeqCst),
                |event, closed| match event.data {
                    CLOSING => assert_eq!(closed, 0, "reported after its close"),
                    i => world.consume(&counters[i as usize]),
                },
            );
        });
        join(producers.into_iter().chain([closer, opener, waiter]));
        assert_eq!(shared.world.set.len(), 3);
    });
}
