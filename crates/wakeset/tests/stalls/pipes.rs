//! The same for a pipe: who is stopped in a write or a close stops nobody; in a read of different
//! bytes, or a seal, those who read or seal.

use crate::trap::{Beside, Place, Progress, Thread, both};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use wakeset::{Engine, Event, EventPoll, Events, Piece, Source, Timeout};

#[path = "../common/pipe_ends.rs"]
mod pipe_ends;
use pipe_ends::Both;

struct World {
    set: EventPoll,
    both: Arc<Both>,
    written: Mutex<Vec<u8>>,
    read: Mutex<Vec<u8>>,
}

impl World {
    fn new() -> Arc<Self> {
        let set = EventPoll::new(&Engine::new()).unwrap();
        let both = Arc::new(Both::new());
        // SAFETY: the world closes the queue before it goes.
        unsafe { set.add_source(5, &*both as &dyn Source, Event::new(Events::IN | Events::ET, 1)) }
            .unwrap();
        Arc::new(Self { set, both, written: Mutex::default(), read: Mutex::default() })
    }

    fn write(&self, bytes: &[u8]) {
        if self.both.pipe.try_write(self.both.generation, bytes).is_ok() {
            self.written.lock().unwrap().extend_from_slice(bytes);
            self.both.queue.wake_published(Events::IN);
        }
    }

    fn read(&self) {
        let mut bytes = Vec::new();
        let _ = self.both.pipe.try_read(self.both.generation, 100, |part| {
            bytes.extend_from_slice(part);
            true
        });
        self.read.lock().unwrap().extend(bytes);
    }

    fn seal(&self) {
        let mut left = Vec::new();
        self.both.pipe.seal(self.both.generation, |piece| match piece {
            Piece::Run(byte, n) => left.extend((0..n).map(|_| byte)),
            Piece::Bytes { bytes, .. } => left.extend_from_slice(bytes),
        });
        self.both.pipe.wake_sealed();
        self.read.lock().unwrap().extend(left);
    }

    fn close_writer(&self) {
        self.both.pipe.close_writer(self.both.generation, false);
        self.closed();
    }

    fn shut(&self) {
        self.both.pipe.shut(self.both.generation);
        self.closed();
    }

    fn closed(&self) {
        self.both.pipe.wake_closed();
        self.both.queue.wake_all_published();
    }

    fn look(&self) -> usize {
        self.set.wait(&mut [Event::default(); 4], Timeout::Now).unwrap()
    }

    /// It works as if nothing had been, and no byte is missing.
    fn check(&self) -> Result<(), String> {
        while self.look() != 0 {}
        let state = self.both.pipe.state(self.both.generation);
        if state.is_some_and(|state| !state.sealed && !state.writer_closed) {
            self.write(b"z");
            if self.look() != 1 {
                return Err("one more write is not reported".into());
            }
        }
        self.seal();
        let sorted = |bytes: &Mutex<Vec<u8>>| {
            let mut bytes = bytes.lock().unwrap().clone();
            bytes.sort_unstable();
            bytes
        };
        let (written, read) = (sorted(&self.written), sorted(&self.read));
        if written == read { Ok(()) } else { Err(format!("{written:?} written, {read:?} read")) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.both.queue.close();
    }
}

type Do = fn(&World);

/// What is there, what the thread does that is stopped, and whether others may wait for it.
const SCENARIOS: [(&str, Do, Do, bool); 8] = [
    ("a write of one byte", |_| {}, |world| world.write(b"a"), false),
    ("a write of several", |world| world.write(b"a"), |world| world.write(b"abc"), false),
    (
        "a write of several to others",
        |world| world.write(b"xy"),
        |world| world.write(b"abc"),
        false,
    ),
    ("a read of a run", |world| world.write(b"aa"), World::read, false),
    ("a read of different bytes", |world| world.write(b"abc"), World::read, true),
    ("a close of the writing end", |world| world.write(b"abc"), World::close_writer, false),
    ("a shutdown", |world| world.write(b"a"), World::shut, false),
    ("a seal", |world| world.write(b"abc"), World::seal, true),
];

/// What others do, and whether it may wait.
const OPERATIONS: [(&str, Do, bool); 8] = [
    ("a write of one byte", |world| world.write(b"d"), false),
    ("a write of several", |world| world.write(b"def"), false),
    ("a read", World::read, true),
    ("a close of the writing end", World::close_writer, false),
    ("a shutdown", World::shut, false),
    ("a seal", World::seal, true),
    (
        "a wait",
        |world| {
            world.look();
        },
        false,
    ),
    (
        "a change of interest",
        |world| {
            let address = Arc::as_ptr(&world.both).cast::<()>();
            world.set.modify_source(5, address, Event::new(Events::IN | Events::ET, 2)).unwrap();
        },
        false,
    ),
];

fn attempt(scenario: usize, place: Place, operation: usize) -> Option<Result<(), String>> {
    let (_, prepare, act, may_keep) = SCENARIOS[scenario];
    let (_, run, may_wait) = OPERATIONS[operation];
    let world = World::new();
    prepare(&world);
    let acting = Arc::clone(&world);
    let thread = Thread::start(Some(place), move || act(&acting));
    match thread.until_stopped() {
        Progress::Stopped => {}
        _ => return None,
    }
    let other = Arc::clone(&world);
    let beside = thread.beside(move || run(&other));
    thread.release();
    let gone_on = thread.join();
    let (waited, done) = match beside {
        Beside::Ended(done) => (false, done),
        Beside::Waits(late) => (true, late.join()),
    };
    if waited && !(may_keep && may_wait) {
        return Some(Err("waits for the stopped thread".into()));
    }
    Some(both(done, gone_on).and_then(|()| world.check()))
}

/// Stops each scenario at each of its steps, for each operation; the steps it was stopped at.
pub fn explore() -> BTreeSet<&'static str> {
    let begin = Instant::now();
    let (mut stopped_at, mut courses) = (BTreeSet::new(), 0);
    for (i, (name, prepare, act, _)) in SCENARIOS.iter().enumerate() {
        let world = World::new();
        prepare(&world);
        let (act, acting) = (*act, Arc::clone(&world));
        let thread = Thread::start(None, move || act(&acting));
        assert_eq!(thread.until_stopped(), Progress::Ended, "{name}");
        let steps: BTreeSet<_> = thread.log().into_iter().collect();
        thread.join().unwrap();
        world.check().unwrap();
        for step in steps {
            for (j, (operation, ..)) in OPERATIONS.iter().enumerate() {
                let Some(result) = attempt(i, Place { step, arrival: 1 }, j) else { continue };
                result.unwrap_or_else(|error| {
                    panic!("{name}, stopped at {step}: {operation}: {error}")
                });
                stopped_at.insert(step);
                courses += 1;
            }
        }
    }
    println!("pipes: {courses} courses, {:.1?}", begin.elapsed());
    stopped_at
}
