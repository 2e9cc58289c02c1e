//! The sources alone: blocked calls, timers, seals.

use super::*;

/// Blocking reads and writes of a semaphore, while it is sealed in the end: nobody stays asleep,
/// nothing is lost.
pub fn blocking_counter() {
    explore(|| {
        let shared = Arc::new((
            Counter::new(u64::MAX - 2, CounterFlags::SEMAPHORE),
            AtomicU64::new(0),
            AtomicU64::new(0),
        ));
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

/// Timers are set, to earlier and later times, while three waiters sleep of whom one minds the
/// time: each comes up once, not before its time, and not when nobody sleeps to it any more.
pub fn timers() {
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
        let set = |timer: &Timer, at| {
            timer.set_at(std::time::Duration::from_nanos(at), Default::default()).unwrap()
        };
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
                            assert!(
                                Deadline::now().since_boot().as_nanos() as u64 >= LAST[which],
                                "early"
                            );
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

/// Two writers, of single bytes and of several, two blocked readers, and a seal: nobody stays
/// blocked, no byte is lost or doubled.
pub fn blocking_pipe() {
    struct Shared {
        pipe: Pipe,
        generation: u32,
        written: Mutex<Vec<u8>>,
        read: Mutex<Vec<u8>>,
    }
    explore(|| {
        let pipe = Pipe::new();
        let generation = pipe.next_generation();
        pipe.unseal(generation, PipeCapacity::Pages);
        let shared = Arc::new(Shared {
            pipe,
            generation,
            written: Mutex::default(),
            read: Mutex::default(),
        });
        let writers = [0x10, 0x20].map(|who| {
            run(&shared, move |shared| {
                for i in 0..4 {
                    let bytes =
                        if i % 2 == 0 { &[who + i, who + i, who + i][..] } else { &[who, who + i] };
                    // There are three nodes; a writer that finds none tries again.
                    let done = loop {
                        match shared.pipe.try_write(shared.generation, bytes) {
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
                    shared.pipe.try_read(shared.generation, 2, |part| {
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
        assert!(shared.pipe.seal(shared.generation, |piece| match piece {
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
