//! Everything at once on real threads, for ThreadSanitizer (`ci/sanitizers`): each access of one
//! thread to what another has written must be ordered by the engine's own locks and atomics.
//! Threads are joined one by one and share nothing but the engine: channels, scopes and `Arc` of a
//! standard library that was not built for the sanitizer look like races to it.
//!
//! Without the sanitizer these tests still check that each event arrives.

#![cfg(not(any(loom, shuttle)))]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, ReadyList, Timeout,
};

const WRITES: u64 = 2_000;

/// What outlives all threads of a test. It is known here to the end, so it is no leak to
/// LeakSanitizer.
fn forever<T>(value: T) -> &'static T {
    static KEPT: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let value = Box::leak(Box::new(value));
    KEPT[NEXT.fetch_add(1, Ordering::SeqCst)]
        .store(std::ptr::from_ref(value).expose_provenance(), Ordering::SeqCst);
    // What is only ever written to, an optimiser may leave out.
    std::hint::black_box(&KEPT);
    value
}

fn counter(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

/// Takes what the sources hold until there are `all` units.
fn take_all(
    set: &'static EventPoll,
    sources: &'static [Description<Counter>],
    taken: &'static AtomicU64,
    all: u64,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut events = [Event::default(); 2];
        while taken.load(Ordering::SeqCst) < all {
            let n =
                set.wait(&mut events, Timeout::After(Duration::from_millis(20))).expect("a wait");
            for event in &events[..n] {
                while let Ok(units) = sources[event.data as usize].read() {
                    taken.fetch_add(units, Ordering::SeqCst);
                }
            }
        }
    })
}

fn write_all(source: &'static Description<Counter>) -> JoinHandle<()> {
    thread::spawn(move || (0..WRITES).for_each(|_| source.write(1).expect("room")))
}

fn producers_and_waiters(list: ReadyList) {
    let engine = Engine::new().leak();
    let set = forever(EventPoll::with_ready_list(&engine, list).expect("memory"));
    let sources: &[_] = forever([counter(&engine), counter(&engine), counter(&engine)]);
    for (i, source) in (0..).zip(sources) {
        let how = [Events::IN, Events::IN | Events::ET, Events::IN][i as usize];
        set.add(i, source, Event::new(how, i as u64)).expect("an add");
    }
    let taken = forever(AtomicU64::new(0));
    let mut threads: Vec<_> = sources.iter().map(write_all).collect();
    threads.push(write_all(&sources[0]));
    threads.extend((0..2).map(|_| take_all(set, sources, taken, 4 * WRITES)));
    join(threads);
    assert_eq!(taken.load(Ordering::SeqCst), 4 * WRITES);
}

#[test]
fn producers_and_waiters_lock_free() {
    producers_and_waiters(ReadyList::LockFree);
}

#[test]
fn producers_and_waiters_spin_lock() {
    producers_and_waiters(ReadyList::Spinlock);
}

#[test]
fn producers_and_waiters_rw_lock() {
    producers_and_waiters(ReadyList::Rwlock);
}

/// The interest list changes under producers and waiters.
#[test]
fn changes_under_load() {
    let engine = Engine::new().leak();
    let set = forever(EventPoll::new(&engine).expect("memory"));
    let sources: &[_] = forever([counter(&engine), counter(&engine), counter(&engine)]);
    for (i, source) in (0..).zip(sources) {
        set.add(i, source, Event::new(Events::IN, i as u64)).expect("an add");
    }
    let taken = forever(AtomicU64::new(0));
    let changer = thread::spawn(move || {
        for round in 0..WRITES {
            let i = (round % 3) as i32;
            let (source, event) = (&sources[i as usize], Event::new(Events::IN, i as u64));
            match round % 4 {
                0 => set.modify(i, source, event).expect("a change"),
                1 => {
                    set.remove(i, source).expect("a removal");
                    set.add(i, source, event).expect("an add");
                }
                2 => {
                    set.modify(i, source, Event::new(Events::IN | Events::ONESHOT, i as u64))
                        .expect("a change");
                    set.modify(i, source, event).expect("a change");
                }
                _ => {
                    // Under more and more numbers: the wait queue grows, and the table of watches.
                    set.add(100 + round as i32, source, event).expect("an add");
                }
            }
        }
    });
    let mut threads: Vec<_> = sources.iter().map(write_all).collect();
    threads.extend((0..2).map(|_| take_all(set, sources, taken, 3 * WRITES)));
    threads.push(changer);
    join(threads);
    assert_eq!(taken.load(Ordering::SeqCst), 3 * WRITES);
}

/// Sources and sets come and go while they are woken, their memory goes from one to the next, and
/// so does that of an engine that ends.
#[test]
fn lives_and_deaths() {
    static STOP: AtomicBool = AtomicBool::new(false);
    for _ in 0..20 {
        let engine = Engine::new();
        let set = Description::new(&engine, EventPoll::new(&engine).expect("memory"));
        STOP.store(false, Ordering::SeqCst);
        let waited_for = set.clone();
        let waiter = thread::spawn(move || {
            while !STOP.load(Ordering::SeqCst) {
                let _ = waited_for
                    .wait(&mut [Event::default(); 3], Timeout::After(Duration::from_millis(5)));
            }
        });
        let threads: Vec<_> = (0..3)
            .map(|first| {
                let (engine, set) = (engine.clone(), set.clone());
                thread::spawn(move || {
                    for round in 0..60 {
                        let source = counter(&engine);
                        let own = EventPoll::new(&engine).expect("memory");
                        set.add(first * 1000 + round, &source, Event::new(Events::IN, 1))
                            .expect("an add");
                        own.add(1, &source, Event::new(Events::IN | Events::ET, 1))
                            .expect("an add");
                        let twin = source.clone();
                        let writer = thread::spawn(move || twin.write(1).expect("room"));
                        source.write(1).expect("room");
                        drop(source);
                        let _ = own.wait(&mut [Event::default(); 1], Timeout::Now);
                        drop(own);
                        writer.join().expect("no thread panics");
                    }
                })
            })
            .collect();
        join(threads);
        STOP.store(true, Ordering::SeqCst);
        join(vec![waiter]);
        assert!(set.is_empty());
    }
}

/// Sets in sets, the outer one waited for, the inner one harvested by another.
#[test]
fn nested_sets() {
    let engine = Engine::new().leak();
    let outer = forever(EventPoll::new(&engine).expect("memory"));
    let inner = forever(Description::new(&engine, EventPoll::new(&engine).expect("memory")));
    let sources: &[_] = forever([counter(&engine), counter(&engine)]);
    for (i, source) in (0..).zip(sources) {
        inner.add(i, source, Event::new(Events::IN, i as u64)).expect("an add");
    }
    outer.add(9, inner, Event::new(Events::IN, 0)).expect("an add");
    let taken = forever(AtomicU64::new(0));
    let mut threads: Vec<_> = sources.iter().map(write_all).collect();
    threads.extend((0..2).map(|_| {
        thread::spawn(move || {
            while taken.load(Ordering::SeqCst) < 2 * WRITES {
                let mut events = [Event::default(); 2];
                outer.wait(&mut events, Timeout::After(Duration::from_millis(20))).expect("a wait");
                let n = inner.wait(&mut events, Timeout::Now).expect("a wait");
                for event in &events[..n] {
                    taken.fetch_add(
                        sources[event.data as usize].read().unwrap_or(0),
                        Ordering::SeqCst,
                    );
                }
            }
        })
    }));
    join(threads);
    assert_eq!(taken.load(Ordering::SeqCst), 2 * WRITES);
}

/// Blocking reads and writes, and a seal that ends them.
#[test]
fn blocking_counters() {
    let counter = forever(Counter::new(0, CounterFlags::empty()));
    let taken = forever(AtomicU64::new(0));
    let mut threads: Vec<_> = (0..2)
        .map(|_| thread::spawn(move || (0..WRITES).for_each(|_| counter.write(1).expect("room"))))
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                while let Ok(units) = counter.read() {
                    taken.fetch_add(units, Ordering::SeqCst);
                }
            })
        })
        .collect();
    join(std::mem::take(&mut threads));
    let left = counter.seal().unwrap_or(0);
    join(readers);
    assert_eq!(taken.load(Ordering::SeqCst) + left, 2 * WRITES);
}
