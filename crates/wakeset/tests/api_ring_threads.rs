//! The event ring under many threads at once: nothing is lost, doubled or polled after its removal.

#![cfg(not(any(loom, shuttle)))]
#![allow(missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Source, Timeout,
    WaitQueue,
};

fn open(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

/// A set and counters 0.. that it watches under their number for `events`.
fn watching(n: usize, events: Events) -> (EventPoll, Vec<Description<Counter>>) {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counters: Vec<_> = (0..n).map(|_| open(&engine)).collect();
    for (i, counter) in counters.iter().enumerate() {
        set.add(i as i32, counter, Event::new(events, i as u64)).unwrap();
    }
    (set, counters)
}

/// Several threads take and wait while others write; every unit written is read, of levels, edges
/// and shots.
#[test]
fn nothing_is_lost_between_many_threads() {
    const EACH: u64 = 20_000;
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, counters) = watching(9, Events::IN | flags);
        let ring = set.make_ring(4).unwrap();
        let read = AtomicU64::new(0);
        let stop = open(set.engine());
        set.add(99, &stop, Event::new(Events::IN, 99)).unwrap();
        thread::scope(|threads| {
            for producer in 0..3 {
                let counters = &counters;
                threads.spawn(move || {
                    for i in 0..EACH {
                        counters[(producer * 3 + i as usize % 3) % 9].write(1).unwrap();
                    }
                });
            }
            for room in [1, 3, 16] {
                let (set, counters, stop, read) = (&set, &counters, &stop, &read);
                threads.spawn(move || {
                    let mut events = vec![Event::default(); room];
                    loop {
                        let n = ring.wait(&mut events, Timeout::Never).unwrap();
                        for event in &events[..n] {
                            if event.data == 99 {
                                return;
                            }
                            let i = event.data as usize;
                            let all = 3 * EACH;
                            let got = counters[i].read().unwrap_or(0);
                            if flags == Events::ONESHOT {
                                set.modify(
                                    i as i32,
                                    &counters[i],
                                    Event::new(Events::IN | flags, event.data),
                                )
                                .unwrap();
                            }
                            if read.fetch_add(got, Ordering::SeqCst) + got == all {
                                stop.write(1).unwrap();
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(read.load(Ordering::SeqCst), 3 * EACH, "{flags:?}");
    }
}

/// A taker that came for the lock while another took all there was found nothing.
#[test]
fn a_level_never_looks_like_nothing() {
    for (watches, room, others) in [(1, 1, 1), (2, 1, 1), (2, 1, 2), (2, 4, 2)] {
        let (set, _open) = watching(watches, Events::OUT);
        let ring = set.make_ring(16).unwrap();
        let look = || {
            for turn in 0..300_000 {
                let taken = ring.take(&mut [Event::default(); 4][..room]);
                assert!(
                    taken > 0,
                    "{watches} watches, room for {room}, {others} others, turn {turn}"
                );
            }
        };
        thread::scope(|threads| {
            for _ in 0..others {
                threads.spawn(look);
            }
            look();
        });
    }
}

/// Each arming of a shot is reported to one thread only, with that arming's data.
#[test]
fn a_shot_is_one_threads() {
    let shot = Events::IN | Events::ONESHOT;
    let (set, counters) = watching(1, shot);
    let ring = set.make_ring(2).unwrap();
    let (reports, done) = (AtomicU64::new(0), AtomicBool::new(false));
    counters[0].write(1).unwrap();
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Some(event) = ring.pop() {
                        let turn = reports.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(event.data, turn, "reported twice, or late");
                        if turn == 50_000 {
                            done.store(true, Ordering::Relaxed);
                            return;
                        }
                        set.modify(0, &counters[0], Event::new(shot, turn + 1)).unwrap();
                    }
                }
            });
        }
    });
}

/// A source of which a poll after its end would be noticed.
struct Mortal {
    alive: AtomicBool,
    queue: WaitQueue,
}

impl Source for Mortal {
    fn poll(&self) -> Events {
        for _ in 0..20 {
            assert!(self.alive.load(Ordering::SeqCst), "polled after its end");
            std::hint::spin_loop();
        }
        Events::IN
    }
    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// The memory of these stays, so that a late poll is noticed and does no harm.
#[test]
fn no_source_is_polled_once_its_watch_is_removed_or_it_is_closed() {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let ring = set.make_ring(4).unwrap();
    let sources: Vec<_> =
        (0..3).map(|_| Mortal { alive: AtomicBool::new(false), queue: WaitQueue::new() }).collect();
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    ring.take(&mut [Event::default(); 2]);
                }
            });
        }
        for turn in 0..30_000 {
            let source = &sources[turn % 3];
            source.alive.store(true, Ordering::SeqCst);
            let flags = [Events::empty(), Events::ET, Events::ONESHOT][turn / 3 % 3];
            // SAFETY: the source stays, and its watch is removed.
            unsafe { set.add_source(1, source, Event::new(Events::IN | flags, 1)) }.unwrap();
            set.remove_source(1, std::ptr::from_ref(source).cast()).unwrap();
            source.alive.store(false, Ordering::SeqCst);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(ring.pop(), None);
}

/// Numbers and memory are used again all the time; no event comes out under a number whose removal
/// had returned.
#[test]
fn no_event_of_a_removed_watch_comes_out() {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let ring = set.make_ring(4).unwrap();
    let removed = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let before = removed.load(Ordering::SeqCst);
                    if let Some(event) = ring.pop() {
                        assert!(event.data > before, "{} after {before} had gone", event.data);
                    }
                }
            });
        }
        for life in 1..20_000 {
            let counter = open(&engine);
            counter.write(1).unwrap();
            let flags = [Events::empty(), Events::ET, Events::ONESHOT][life as usize % 3];
            set.add(7, &counter, Event::new(Events::IN | flags, life)).unwrap();
            match life % 2 {
                0 => set.remove(7, &counter).unwrap(),
                _ => drop(counter),
            }
            removed.store(life, Ordering::SeqCst);
        }
        done.store(true, Ordering::Relaxed);
    });
}
