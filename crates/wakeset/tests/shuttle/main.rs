//! Shuttle scenarios of the whole engine: random schedules of more threads and steps than loom can exhaust.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p wakeset --test shuttle`. Each scenario ends only when every
//! change has been consumed, so a lost event or wake-up is a deadlock, which shuttle reports with a schedule to replay.
#![cfg(shuttle)]
#![allow(missing_docs)]

use shuttle::thread;
use std::sync::{Arc, Mutex};
// Bookkeeping of the scenarios, not of the engine: shuttle runs one thread at a time, and these are no points to switch at.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use wakeset::{
    Change, Counter, CounterFlags, Deadline, Description, Engine, Error, Event, EventPoll, Events, OnError, Piece,
    Pipe, Room, Source, Timeout, Timer, TimerFlags, Told, explore, set_model_clock,
};

/// Reported when the scenario is over, to every waiter: level-triggered and never read.
const STOP: u64 = u64::MAX;
const STOP_FD: i32 = 99;

fn open(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

/// A set, the counter that ends the scenario, and how much of what is written has been read.
struct World {
    engine: Engine,
    set: EventPoll,
    stop: Description<Counter>,
    read: AtomicU64,
    expected: u64,
}

impl World {
    fn new(expected: u64) -> Self {
        let engine = Engine::new();
        let (set, stop) = (EventPoll::new(&engine).unwrap(), open(&engine));
        set.add(STOP_FD, &stop, Event::new(Events::IN, STOP)).unwrap();
        Self { engine, set, stop, read: AtomicU64::new(0), expected }
    }

    /// Reads what is there, and ends the scenario with the last of it.
    fn consume(&self, counter: &Counter) {
        let read = counter.read().unwrap_or(0);
        if read != 0 && self.read.fetch_add(read, SeqCst) + read == self.expected {
            self.stop.write(1).unwrap();
        }
    }

    /// Waits for events, `room` at a time, and handles them until the scenario is over. `before` runs before each wait
    /// and what it says goes to each `handle` of that wait.
    fn serve<T: Copy>(&self, room: usize, before: impl Fn() -> T, mut handle: impl FnMut(Event, T)) {
        loop {
            let known = before();
            let mut events = vec![Event::default(); room];
            let n = self.set.wait(&mut events, Timeout::Never).unwrap();
            for event in &events[..n] {
                if event.data == STOP {
                    return;
                }
                handle(*event, known);
            }
        }
    }
}

fn run<T: Send + Sync + 'static>(shared: &Arc<T>, f: impl FnOnce(&T) + Send + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Two producers, each with a counter of its own and one in common, and two waiters; both modes of triggering.
#[test]
fn producers_and_waiters() {
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

/// While two producers write, another thread changes the interest and removes and adds the watch. Each addition has a
/// number of its own as data, so a report of a watch whose removal had returned before the wait began is noticed.
#[test]
fn changes_and_removals() {
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
                world.set.modify(1, counter, Event::new(Events::IN | modes[number as usize % 2], number)).unwrap();
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
#[test]
fn batches() {
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
                let mut away =
                    [Change::modify(0, first, event(number)), Change::remove(0, first), Change::remove(1, second)];
                assert_eq!(world.set.apply(&mut away, OnError::Stop), 3);
                removed.store(number, SeqCst);
                let mut back = [Change::add(1, second, event(number + 1)), Change::add(0, first, event(number + 1))];
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

/// Watches are removed and what they stand for is freed while others have their events in hand: nothing is used after it was freed.
#[test]
fn hands() {
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
                match world.set.remove_telling(1, counter).unwrap() {
                    Told::Free => {}
                    Told::InHand(holders) => assert!(holders.wait(Timeout::Never)),
                    told => panic!("{told:?}"),
                }
                freed.store(number, SeqCst);
                let mode = [Events::empty(), Events::ONESHOT, Events::ET][number as usize % 3];
                world.set.add(1, counter, Event::new(Events::IN | mode, number + 1)).unwrap();
            }
        });
        let waiters = [1, 2].map(|room| {
            run(&shared, move |Shared { world, counter, freed }| {
                let mut hand = world.set.hand().unwrap();
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
                        let armed = hand.modify(1, counter, Event::new(Events::IN | Events::ONESHOT, event.data));
                        assert!(armed.is_ok() || armed == Err(Error::NotWatched));
                    }
                }
            })
        });
        join([producer, changer].into_iter().chain(waiters));
    });
}

/// A ONESHOT watch that its handler arms again: one report for each time it was armed, and none missing.
#[test]
fn oneshot() {
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
        let shared = Shared { world, counter, armed: AtomicU64::new(1), reported: AtomicU64::new(0) };
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
                        world.set.modify(1, counter, Event::new(Events::IN | Events::ONESHOT, number)).unwrap();
                    },
                );
            })
        });
        join(producers.into_iter().chain(waiters));
    });
}

/// A source is closed while a producer writes to it, and its memory's watch goes to another source; a second set that
/// watches the same sources is closed and opened again.
#[test]
fn closes() {
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
        unsafe { shared.world.set.add_source(7, source, Event::new(Events::IN | Events::ET, CLOSING)) }.unwrap();
        shared.world.set.add(0, &shared.counters[0], Event::new(Events::IN | Events::ET, 0)).unwrap();
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
            shared.world.set.add(1, &shared.counters[1], Event::new(Events::IN | Events::ET, 1)).unwrap();
        });
        let opener = run(&shared, |shared| {
            for _ in 0..2 {
                let set = EventPoll::new(&shared.world.engine).unwrap();
                for (i, counter) in shared.counters.iter().enumerate() {
                    set.add(i as i32, counter, Event::new(Events::IN, i as u64)).unwrap();
                }
                let mut events = [Event::default(); 4];
                let n = set.wait(&mut events, Timeout::Now).unwrap();
                assert!(n <= 2 && events[..n].iter().all(|event| event.data < 2), "reports of an earlier set");
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

/// A set in a set, edge-triggered outside and level-triggered inside, with waiters on both; and an inner set that is
/// taken out and put in again.
#[test]
fn nesting() {
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
        // Takes one event of the inner set behind the outer one's back, as another thread of a program might.
        let thief = run(&shared, |shared| {
            let mut events = [Event::default()];
            let _ = shared.inner.wait(&mut events, Timeout::Now).unwrap();
        });
        let waiters =
            [1, 2].map(|room| run(&shared, move |shared| shared.world.serve(room, || (), |_, ()| shared.drain())));
        join(producers.into_iter().chain(waiters).chain([changer, thief]));
    });
}

/// Three sets watch one source exclusively, and nobody waits in the first: each change wakes somebody, and none is lost.
#[test]
fn exclusive() {
    explore(|| {
        let world = World::new(2 * 3);
        let other = EventPoll::new(&world.engine).unwrap();
        other.add(STOP_FD, &world.stop, Event::new(Events::IN, STOP)).unwrap();
        let idle = EventPoll::new(&world.engine).unwrap();
        let counter = open(&world.engine);
        for set in [&idle, &world.set, &other] {
            set.add(1, &counter, Event::new(Events::IN | Events::ET | Events::EXCLUSIVE, 1)).unwrap();
        }
        let shared = Arc::new((world, other, counter, idle));
        let producers = [0, 1].map(|_| {
            run(&shared, |(_, _, counter, idle)| {
                for _ in 0..3 {
                    counter.write(1).unwrap();
                    // So that the next change finds the idle set's watch off its list, and the set might take it.
                    let _ = idle.wait(&mut [Event::default()], Timeout::Now).unwrap();
                }
            })
        });
        let waiter = run(&shared, |(world, _, counter, _)| world.serve(1, || (), |_, ()| world.consume(counter)));
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

/// Blocking reads and writes of a semaphore, while it is sealed in the end: nobody stays asleep, nothing is lost.
#[test]
fn blocking_counter() {
    explore(|| {
        let shared =
            Arc::new((Counter::new(u64::MAX - 2, CounterFlags::SEMAPHORE), AtomicU64::new(0), AtomicU64::new(0)));
        let writers = [1, 2].map(|n| {
            run(&shared, move |(counter, written, _)| {
                while counter.write(n).is_ok() {
                    written.fetch_add(n, SeqCst);
                }
            })
        });
        let readers = [0, 1].map(|_| {
            run(&shared, |(counter, _, read)| {
                for _ in 0..3 {
                    if counter.read().is_ok() {
                        read.fetch_add(1, SeqCst);
                    }
                }
            })
        });
        join(readers);
        let sealed = shared.0.seal().unwrap();
        join(writers);
        assert_eq!(u64::MAX - 2 + shared.1.load(SeqCst), shared.2.load(SeqCst) + sealed);
    });
}

/// Timers are set, to earlier and later times, while three waiters sleep of whom one minds the time: each comes up once, not before its
/// time, and not when nobody sleeps to it any more.
#[test]
fn timers() {
    const FAR: u64 = 1 << 40;
    const LAST: [u64; 3] = [10, 20, 40];
    explore(|| {
        set_model_clock(1);
        let world = World::new(LAST.len() as u64);
        let timers = [0, 1, 2, 3].map(|i| {
            let timer = Description::new(&world.engine, Timer::new(TimerFlags::NONBLOCK));
            world.set.add(i, &timer, Event::new(Events::IN | Events::ET, i as u64)).unwrap();
            timer
        });
        let set = |timer: &Timer, at| timer.set_at(std::time::Duration::from_nanos(at), Default::default()).unwrap();
        // So late that it never comes, and somebody sleeps to it.
        set(&timers[3], FAR);
        let shared = Arc::new((world, timers));
        let waiters = [1, 2, 1].map(|room| {
            run(&shared, move |(world, timers)| {
                world.serve(
                    room,
                    || (),
                    |event, ()| {
                        let which = event.data as usize;
                        if timers[which].read().is_ok() {
                            assert!(Deadline::now().since_boot().as_nanos() as u64 >= LAST[which], "early");
                            if world.read.fetch_add(1, SeqCst) + 1 == world.expected {
                                world.stop.write(1).unwrap();
                            }
                        }
                    },
                );
            })
        });
        let setter = run(&shared, move |(_, timers)| {
            set(&timers[1], FAR);
            set(&timers[0], LAST[0]);
            set(&timers[2], FAR + 1);
            set(&timers[1], LAST[1]);
            set(&timers[2], LAST[2]);
        });
        join(waiters.into_iter().chain([setter]));
    });
}

/// Two writers, of single bytes and of several, two blocked readers, and a seal: nobody stays blocked, no byte is lost or doubled.
#[test]
fn blocking_pipe() {
    struct Shared {
        pipe: Pipe,
        life: u32,
        written: Mutex<Vec<u8>>,
        read: Mutex<Vec<u8>>,
    }
    explore(|| {
        let pipe = Pipe::new();
        let life = pipe.next_life();
        pipe.unseal(life, Room::Pages);
        let shared = Arc::new(Shared { pipe, life, written: Mutex::default(), read: Mutex::default() });
        let writers = [0x10, 0x20].map(|who| {
            run(&shared, move |shared| {
                for i in 0..4 {
                    let bytes = if i % 2 == 0 { &[who + i, who + i, who + i][..] } else { &[who, who + i] };
                    // There are three nodes; who finds none tries again.
                    let done = loop {
                        match shared.pipe.try_write(shared.life, bytes) {
                            Err(Error::Unfit) => thread::yield_now(),
                            done => break done,
                        }
                    };
                    match done {
                        Ok(()) => shared.written.lock().unwrap().extend_from_slice(bytes),
                        Err(error) => return assert_eq!(error, Error::Sealed),
                    }
                }
            })
        });
        let readers = [0, 1].map(|_| {
            run(&shared, |shared| {
                let take = || {
                    shared.pipe.try_read(shared.life, 2, |part| {
                        shared.read.lock().unwrap().extend_from_slice(part);
                        true
                    })
                };
                loop {
                    if let Err(error) = shared.pipe.block_reader(take) {
                        return assert_eq!(error, Error::Sealed);
                    }
                }
            })
        });
        let mut sealed = Vec::new();
        thread::yield_now();
        assert!(shared.pipe.seal(life, |piece| match piece {
            Piece::Run(byte, n) => sealed.extend((0..n).map(|_| byte)),
            Piece::Bytes { bytes, .. } => sealed.extend_from_slice(bytes),
        }));
        shared.pipe.wake_sealed();
        join(readers);
        join(writers);
        let mut all = std::mem::take(&mut *shared.read.lock().unwrap());
        all.extend(sealed);
        let mut written = std::mem::take(&mut *shared.written.lock().unwrap());
        all.sort_unstable();
        written.sort_unstable();
        assert_eq!(all, written);
    });
}

/// Two takers of the event ring and a waiter of the set, two producers, and one who changes the interest and removes and adds a watch; a level, an
/// edge and a shot that is armed again.
#[test]
fn event_ring() {
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
                    world.set.modify(2, &counters[2], Event::new(Events::IN | Events::ONESHOT, number)).unwrap();
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
        let interests = [(Events::IN, LEVEL), (Events::IN | Events::ET, 1), (Events::IN | Events::ONESHOT, SHOT + 1)];
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
                world.set.add(1, &counters[1], Event::new(Events::IN | Events::ET, number + 1)).unwrap();
            }
        });
        let takers = [1, 2].map(|room| {
            run(&shared, move |shared| {
                let mut events = vec![Event::default(); room];
                loop {
                    let removed = shared.removed.load(SeqCst);
                    let n = shared.world.set.ring().unwrap().wait(&mut events, Timeout::Never).unwrap();
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
            shared.world.serve(1, || shared.removed.load(SeqCst), |event, removed| shared.handle(event, removed));
        });
        join(producers.into_iter().chain(takers).chain([changer, waiter]));
    });
}
