//! Producers and those who wait: by wait, by ring, one-shot, exclusive, nested.

use super::*;

/// Two producers, each with a counter of its own and one in common, and two waiters; both modes of
/// triggering.
pub fn producers_and_waiters() {
    explore(|| {
        let world = World::new(2 * 2 * 2);
        let counters = [0, 1, 2].map(|_| open(&world.engine));
        for (i, counter) in counters.iter().enumerate() {
            let mode = if i == 1 { Events::empty() } else { Events::ET };
            world.set.add(i as i32, counter, Event::new(Events::IN | mode, i as u64)).unwrap();
        }
        let shared = Arc::new((world, counters));
        let producers = [0, 1].map(|i| {
            run(&shared, move |(_, counters)| {
                for _ in 0..2 {
                    counters[i].write(1).unwrap();
                    counters[2].write(1).unwrap();
                }
            })
        });
        let waiters = [1, 2].map(|room| {
            run(&shared, move |(world, counters)| {
                world.serve(room, || (), |event, ()| world.consume(&counters[event.data as usize]));
            })
        });
        join(producers.into_iter().chain(waiters));
    });
}

/// A ONESHOT watch that its handler arms again: one report for each time it was armed, and none
/// missing.
pub fn oneshot() {
    struct Shared {
        world: World,
        counter: Description<Counter>,
        armed: AtomicU64,
        reported: AtomicU64,
    }
    explore(|| {
        let world = World::new(2 * 3);
        let counter = open(&world.engine);
        world.set.add(1, &counter, Event::new(Events::IN | Events::ONESHOT, 1)).unwrap();
        let shared =
            Shared { world, counter, armed: AtomicU64::new(1), reported: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        let producers = [0, 1].map(|_| {
            run(&shared, |shared| {
                for _ in 0..3 {
                    shared.counter.write(1).unwrap();
                }
            })
        });
        let waiters = [1, 1].map(|room| {
            run(&shared, move |Shared { world, counter, armed, reported }| {
                world.serve(
                    room,
                    || (),
                    |event, ()| {
                        let nth = reported.fetch_add(1, SeqCst) + 1;
                        assert!(nth <= armed.load(SeqCst), "reported twice for one arming");
                        assert_eq!(event.data, nth, "the data of an earlier arming");
                        world.consume(counter);
                        let number = armed.fetch_add(1, SeqCst) + 1;
                        world
                            .set
                            .modify(1, counter, Event::new(Events::IN | Events::ONESHOT, number))
                            .unwrap();
                    },
                );
            })
        });
        join(producers.into_iter().chain(waiters));
    });
}

/// Three sets watch one source exclusively, and nobody waits in the first: each change wakes
/// somebody, and none is lost.
pub fn exclusive() {
    explore(|| {
        let world = World::new(2 * 3);
        let other = EventPoll::new(&world.engine).unwrap();
        other.add(STOP_FD, &world.stop, Event::new(Events::IN, STOP)).unwrap();
        let idle = EventPoll::new(&world.engine).unwrap();
        let counter = open(&world.engine);
        for set in [&idle, &world.set, &other] {
            set.add(1, &counter, Event::new(Events::IN | Events::ET | Events::EXCLUSIVE, 1))
                .unwrap();
        }
        let shared = Arc::new((world, other, counter, idle));
        let producers = [0, 1].map(|_| {
            run(&shared, |(_, _, counter, idle)| {
                for _ in 0..3 {
                    counter.write(1).unwrap();
                    // So that the next change finds the idle set's watch off its list, and the set
                    // might take it.
                    let _ = idle.wait(&mut [Event::default()], Timeout::Now).unwrap();
                }
            })
        });
        let waiter = run(&shared, |(world, _, counter, _)| {
            world.serve(1, || (), |_, ()| world.consume(counter))
        });
        let other = run(&shared, |(world, other, counter, _)| {
            let mut event = [Event::default()];
            while event[0].data != STOP {
                other.wait(&mut event, Timeout::Never).unwrap();
                world.consume(counter);
            }
        });
        join(producers.into_iter().chain([waiter, other]));
    });
}

/// A set in a set, edge-triggered outside and level-triggered inside, with waiters on both; and an
/// inner set that is taken out and put in again.
pub fn nesting() {
    struct Shared {
        world: World,
        inner: Description<EventPoll>,
        counters: [Description<Counter>; 2],
    }
    impl Shared {
        /// What an edge-triggered consumer must do: take all there is.
        fn drain(&self) {
            let mut events = [Event::default()];
            while self.inner.wait(&mut events, Timeout::Now).unwrap() == 1 {
                self.world.consume(&self.counters[events[0].data as usize]);
            }
        }
    }
    explore(|| {
        let world = World::new(2 * 2 + 2);
        let inner = Description::new(&world.engine, EventPoll::new(&world.engine).unwrap());
        let counters = [0, 1].map(|_| open(&world.engine));
        for (i, counter) in counters.iter().enumerate() {
            inner.add(i as i32, counter, Event::new(Events::IN, i as u64)).unwrap();
        }
        let outer = Event::new(Events::IN | Events::ET, 9);
        world.set.add(9, &inner, outer).unwrap();
        let shared = Arc::new(Shared { world, inner, counters });
        let producers = [0, 1].map(|i| {
            run(&shared, move |shared| {
                for _ in 0..2 {
                    shared.counters[i].write(1).unwrap();
                }
            })
        });
        let changer = run(&shared, move |shared| {
            shared.world.set.remove(9, &shared.inner).unwrap();
            shared.counters[0].write(2).unwrap();
            shared.world.set.add(9, &shared.inner, outer).unwrap();
        });
        // Takes one event of the inner set behind the outer one's back, as another thread of a
        // program might.
        let thief = run(&shared, |shared| {
            let mut events = [Event::default()];
            let _ = shared.inner.wait(&mut events, Timeout::Now).unwrap();
        });
        let waiters = [1, 2].map(|room| {
            run(&shared, move |shared| shared.world.serve(room, || (), |_, ()| shared.drain()))
        });
        join(producers.into_iter().chain(waiters).chain([changer, thief]));
    });
}

/// Two takers of the event ring and a waiter of the set, two producers, and one who changes the
/// interest and removes and adds a watch; a level, an edge and a shot that is armed again.
pub fn event_ring() {
    struct Shared {
        world: World,
        counters: [Description<Counter>; 3],
        /// Numbers of the edge's watch up to this one are removed for good.
        removed: AtomicU64,
        armed: AtomicU64,
        reported: AtomicU64,
    }
    const SHOT: u64 = 1 << 32;
    const LEVEL: u64 = 1 << 33;
    impl Shared {
        fn handle(&self, event: Event, removed: u64) {
            let Self { world, counters, armed, reported, .. } = self;
            match event.data {
                LEVEL => world.consume(&counters[0]),
                shot if shot >= SHOT => {
                    let nth = reported.fetch_add(1, SeqCst) + 1;
                    assert!(nth <= armed.load(SeqCst), "reported twice for one arming");
                    assert_eq!(shot - SHOT, nth, "the data of an earlier arming");
                    world.consume(&counters[2]);
                    let number = SHOT + armed.fetch_add(1, SeqCst) + 1;
                    world
                        .set
                        .modify(2, &counters[2], Event::new(Events::IN | Events::ONESHOT, number))
                        .unwrap();
                }
                edge => {
                    assert!(edge > removed, "reported after its removal");
                    world.consume(&counters[1]);
                }
            }
        }
    }
    explore(|| {
        let world = World::new(2 * 3 * 2);
        let counters = [0, 1, 2].map(|_| open(&world.engine));
        let interests = [
            (Events::IN, LEVEL),
            (Events::IN | Events::ET, 1),
            (Events::IN | Events::ONESHOT, SHOT + 1),
        ];
        for (i, (events, data)) in interests.into_iter().enumerate() {
            world.set.add(i as i32, &counters[i], Event::new(events, data)).unwrap();
        }
        world.set.make_ring(2).unwrap();
        let (removed, armed, reported) = (AtomicU64::new(0), AtomicU64::new(1), AtomicU64::new(0));
        let shared = Arc::new(Shared { world, counters, removed, armed, reported });
        let producers = [0, 1].map(|_| {
            run(&shared, |shared| {
                for counter in shared.counters.iter().chain(&shared.counters) {
                    counter.write(1).unwrap();
                }
            })
        });
        let changer = run(&shared, |Shared { world, counters, removed, .. }| {
            for number in 1..3 {
                let modes = [Events::ET, Events::empty()];
                let event = Event::new(Events::IN | modes[number as usize % 2], number);
                world.set.modify(1, &counters[1], event).unwrap();
                world.set.remove(1, &counters[1]).unwrap();
                removed.store(number, SeqCst);
                world
                    .set
                    .add(1, &counters[1], Event::new(Events::IN | Events::ET, number + 1))
                    .unwrap();
            }
        });
        let takers = [1, 2].map(|room| {
            run(&shared, move |shared| {
                let mut events = vec![Event::default(); room];
                loop {
                    let removed = shared.removed.load(SeqCst);
                    let n =
                        shared.world.set.ring().unwrap().wait(&mut events, Timeout::Never).unwrap();
                    for event in &events[..n] {
                        if event.data == STOP {
                            return;
                        }
                        shared.handle(*event, removed);
                    }
                }
            })
        });
        let waiter = run(&shared, |shared| {
            shared.world.serve(
                1,
                || shared.removed.load(SeqCst),
                |event, removed| shared.handle(event, removed),
            );
        });
        join(producers.into_iter().chain(takers).chain([changer, waiter]));
    });
}
