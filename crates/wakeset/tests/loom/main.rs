//! Loom models of the engine: every interleaving of a few threads, within a bound on preemptions,
//! and every value a load may return under the C++20 memory model.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p wakeset --test loom`; `README.md` beside this
//! file has the table of models and mutants. A model whose waiter sleeps for ever ends in loom's
//! "deadlock".
#![cfg(loom)]
#![allow(missing_docs)]

use loom::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use loom::thread;
use std::sync::Arc;
use wakeset::{
    Change, Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, OnError,
    Removal, Source, Timeout, WaitQueue, explore,
};

mod counter;
mod exclusive;
mod lease;
mod migrate;
mod nesting;
mod pipe;
mod ready_lists;
mod reclaim;
mod report;
mod ring;
mod sleep;
mod spin;
mod timer;

/// A set and a counter of one engine, both shared.
struct World {
    engine: Engine,
    set: EventPoll,
    counter: Description<Counter>,
}

impl World {
    /// A set that watches a counter at 0 for `events`, with data 1 and descriptor 1.
    fn watching(events: Events) -> Arc<Self> {
        let world = Self::new();
        world.set.add(1, &world.counter, Event::new(events, 1)).unwrap();
        world
    }

    fn new() -> Arc<Self> {
        let engine = Engine::new();
        let set = EventPoll::new(&engine).unwrap();
        let counter = open(&engine);
        Arc::new(Self { engine, set, counter })
    }

    /// A harvest without waiting, of one event: its data.
    fn take(&self) -> Option<u64> {
        take(&self.set)
    }
}

/// A source as its users write one: its state is no sequentially consistent variable. The barriers
/// of those that poll it matter, which those of a counter do not.
struct Flag {
    up: AtomicBool,
    queue: WaitQueue,
}

impl Flag {
    fn open(engine: &Engine) -> Description<Self> {
        let up = AtomicBool::new(false);
        Description::new(engine, Self { up, queue: WaitQueue::new() })
    }

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

fn open(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

fn take(set: &EventPoll) -> Option<u64> {
    wait(set, Timeout::Now)
}

fn wait(set: &EventPoll, timeout: Timeout) -> Option<u64> {
    let mut events = [Event::default()];
    (set.wait(&mut events, timeout).unwrap() == 1).then_some(events[0].data)
}

/// Runs `f` in another thread of the model on what `shared` shares.
fn run<T: Send + Sync + 'static, R: 'static>(
    shared: &Arc<T>,
    f: impl FnOnce(&T) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

/// The set, the only one of its engine, works as if nothing had happened: what it holds can be told
/// apart, and memory is used once at a time and comes back.
fn works_as_new(engine: &Engine, set: &EventPoll) {
    let counters = [open(engine), open(engine), open(engine)];
    for (i, counter) in counters.iter().enumerate() {
        set.add(10 + i as i32, counter, Event::new(Events::IN | Events::ET, 10 + i as u64))
            .unwrap();
    }
    for counter in &counters {
        counter.write(1).unwrap();
    }
    assert_eq!([take(set), take(set), take(set), take(set)], [Some(10), Some(11), Some(12), None]);
    // What a late waker has pushed is freed by the next life of the set.
    set.close();
    set.reopen();
    assert_eq!(take(set), None);
    set.close();
    assert_eq!(engine.watches_out(), 0, "a watch was lost for good");
}
