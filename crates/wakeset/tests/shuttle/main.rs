//! Shuttle scenarios of the whole engine: random schedules of more threads and steps than loom can
//! exhaust.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p wakeset --test shuttle`. Each scenario ends
//! only when every change has been consumed, so a lost event or wake-up is a deadlock, which
//! shuttle reports with a schedule to replay.
#![cfg(shuttle)]
#![allow(missing_docs)]

mod changes;
mod sources;
mod waits;

use shuttle::thread;
use std::sync::{Arc, Mutex};
// Bookkeeping of the scenarios, not of the engine: shuttle runs one thread at a time, and these are
// no points to switch at.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use wakeset::{
    Change, Counter, CounterFlags, Deadline, Description, Engine, Error, Event, EventPoll, Events,
    OnError, Piece, Pipe, PipeCapacity, Removal, Source, Timeout, Timer, TimerFlags, explore,
    set_model_clock,
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

    /// Waits for events, `room` at a time, and handles them until the scenario is over. `before`
    /// runs before each wait and what it says goes to each `handle` of that wait.
    fn serve<T: Copy>(
        &self,
        room: usize,
        before: impl Fn() -> T,
        mut handle: impl FnMut(Event, T),
    ) {
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

fn run<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    f: impl FnOnce(&T) + Send + 'static,
) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The scenarios by the names that `tests/README.md` has.
macro_rules! scenarios {
    ($($room:ident::$name:ident),+ $(,)?) => {
        $(#[test] fn $name() { $room::$name(); })+
    };
}

scenarios!(
    waits::producers_and_waiters,
    waits::oneshot,
    waits::exclusive,
    waits::nesting,
    waits::event_ring,
    changes::changes_and_removals,
    changes::batches,
    changes::hands,
    changes::closes,
    sources::blocking_counter,
    sources::timers,
    sources::blocking_pipe,
);
