//! A thread stopped at any step of the wake path stops no other, and when it goes on nothing is
//! lost.
//!
//! `RUSTFLAGS="--cfg wakeset_steps" cargo test -p wakeset --test stalls`, or `ci/stalls`. In that
//! build the engine reaches named steps (`src/steps.rs`). Each scenario runs once to see which
//! steps its thread comes to. Then, for each arrival at each step, with each kind of watch and for
//! each operation of the list, a fresh world: the thread is stopped there, another thread performs
//! the operation, which must end; the first goes on, and what was written must have been reported,
//! once for each edge at most.
//!
//! A thread that is stopped while it holds a lock keeps those waiting who take it. That happens off
//! the wake path only. The test follows who holds and who waits for which lock: an operation that
//! does not end has to wait for one that the stopped thread holds (or that somebody holds who waits
//! so), and it must be one of those that the operation is known to take.
#![cfg(wakeset_steps)]
#![allow(missing_docs)]

mod check;
mod operations;
mod patience;
mod pipes;
mod scenarios;
mod trap;
mod world;

use operations::{Operation, operations};
use patience::Patience;
use scenarios::{Scenario, changes, locks, spins, takes, wakes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use trap::{Beside, LIMIT, Place, Progress, Thread, both, failures_wanted};
use wakeset::{Events, ReadyList, Timeout};
use world::World;

const LEVEL: Events = Events::IN;
const EDGE: Events = Events::IN.union(Events::ET);
const BOTH_EDGES: Events = Events::IN.union(Events::OUT).union(Events::ET);
const ONCE: Events = Events::IN.union(Events::ONESHOT);
const EXCLUSIVE_EDGE: Events = Events::IN.union(Events::EXCLUSIVE).union(Events::ET);
const KINDS: [Events; 5] = [LEVEL, EDGE, BOTH_EDGES, ONCE, EXCLUSIVE_EDGE];

/// Of many arrivals at one step these are tried, and the last.
const ARRIVALS: usize = 3;

/// Scenarios at a time.
const SIDE_BY_SIDE: usize = 4;

/// How long waiters spin that are to (µs).
const SPIN: u32 = 200;

/// A scenario under way: its thread has been started.
struct Course {
    world: Arc<World>,
    thread: Thread,
}

impl Course {
    fn start(scenario: &Scenario, kind: Events, place: Option<Place>) -> Self {
        Self::start_on(ReadyList::LockFree, scenario, kind, place)
    }

    fn start_on(list: ReadyList, scenario: &Scenario, kind: Events, place: Option<Place>) -> Self {
        let world = World::new(list, kind);
        (scenario.prepare)(&world);
        let (act, acting) = (scenario.act, Arc::clone(&world));
        let thread = Thread::start(place, move || act(&acting));
        Self { world, thread }
    }

    /// Returns when the thread is stopped or at its end, having woken it if need be.
    fn until_stopped(&self, scenario: &Scenario) -> Progress {
        let mut patience = Patience::of(LIMIT);
        if let Some(nudge) = scenario.nudge {
            while self.thread.until_at_rest() == Progress::Asleep && !patience.is_over() {
                // What it is nudged with others may take.
                if !nudge(&self.world) {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
        self.thread.until_stopped()
    }

    /// Lets the thread go on to its end.
    fn finish(self, scenario: &Scenario) -> Result<Arc<World>, String> {
        self.thread.release();
        self.until_stopped(scenario);
        self.thread.join().map_err(|error| format!("the stopped thread: {error}"))?;
        Ok(self.world)
    }
}

/// The steps a scenario's thread comes to, with how often.
fn record(scenario: &Scenario, kind: Events) -> BTreeMap<&'static str, usize> {
    let course = Course::start(scenario, kind, None);
    assert_eq!(course.until_stopped(scenario), Progress::Ended, "{}", scenario.name);
    let mut counts = BTreeMap::new();
    for step in course.thread.log() {
        *counts.entry(step).or_default() += 1;
    }
    let world = course.finish(scenario).unwrap();
    world.check().unwrap_or_else(|error| panic!("{}, without a stop: {error}", scenario.name));
    counts
}

fn places(counts: &BTreeMap<&'static str, usize>) -> Vec<Place> {
    let arrivals = |n: usize| (1..=n.min(ARRIVALS)).chain((n > ARRIVALS).then_some(n));
    counts
        .iter()
        .flat_map(|(&step, &n)| arrivals(n).map(move |arrival| Place { step, arrival }))
        .collect()
}

/// What came of one operation beside one stopped thread.
enum Outcome {
    /// The thread did not come to the place this time.
    Missed,
    /// The thread holds a lock that the operation takes.
    Waits,
    Passed,
    Failed(String),
}

fn attempt(scenario: &Scenario, kind: Events, place: Place, operation: &Operation) -> Outcome {
    let course = Course::start(scenario, kind, Some(place));
    match course.until_stopped(scenario) {
        Progress::Stopped => {}
        Progress::Ended => return Outcome::Missed,
        progress => return Outcome::Failed(format!("did not come there: {progress:?}")),
    }
    course.world.let_holder_go();
    let held = course.thread.held();
    let locks = (operation.locks)(&course.world, &held);
    let may_wait = held.iter().any(|held| locks.iter().any(|lock| lock.contains(held)));
    let other = Arc::clone(&course.world);
    let run = operation.run;
    let beside = course.thread.beside(move || run(&other).unwrap());
    let finished = course.finish(scenario);
    let (waits, done) = match beside {
        Beside::Ended(done) => (false, done),
        Beside::Waits(late) => (true, late.join()),
    };
    match both(done, finished).and_then(|world| world.check()) {
        Ok(()) if waits && !may_wait => {
            Outcome::Failed("waits for a lock that it does not take".into())
        }
        Ok(()) if waits => Outcome::Waits,
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(error),
    }
}

/// What came of all courses of some scenarios.
#[derive(Default)]
struct Findings {
    courses: usize,
    stopped_at: BTreeSet<&'static str>,
    failures: Vec<String>,
    /// By operation, where it waits for the stopped thread.
    waiting: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

/// Every operation beside every stop of one scenario.
fn explore(scenario: &Scenario, kinds: &[Events], found: &Mutex<Findings>) {
    let operations = operations();
    for (i, &kind) in kinds.iter().enumerate() {
        if scenario.large && i > 0 {
            continue;
        }
        for place in places(&record(scenario, kind)) {
            for operation in
                operations.iter().filter(|operation| !(operation.closes_set && scenario.waits))
            {
                let outcome = attempt(scenario, kind, place, operation);
                if matches!(outcome, Outcome::Missed) {
                    continue;
                }
                let mut found = found.lock().unwrap();
                found.stopped_at.insert(place.step);
                found.courses += 1;
                match outcome {
                    Outcome::Missed | Outcome::Passed => {}
                    Outcome::Waits => {
                        found.waiting.entry(operation.name).or_default().insert(place.step);
                    }
                    Outcome::Failed(error) => {
                        let failure = format!(
                            "{}, {kind:?}, stopped at {} ({}): {}: {error}",
                            scenario.name, place.step, place.arrival, operation.name
                        );
                        println!("{failure}");
                        found.failures.push(failure);
                    }
                }
                if found.failures.len() >= failures_wanted() {
                    return;
                }
            }
        }
    }
}

fn explore_all(scenarios: &[Scenario], kinds: &[Events]) -> Findings {
    let found = Mutex::default();
    // Most of the time goes by while one thread wakes another.
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, SeqCst)) {
                    explore(scenario, kinds, &found);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    println!("{} courses, stopped at {} steps", found.courses, found.stopped_at.len());
    for (operation, places) in &found.waiting {
        println!("{operation} waits at {} of them", places.len());
    }
    assert!(
        found.failures.is_empty(),
        "of {} courses:\n{}",
        found.courses,
        found.failures.join("\n")
    );
    found
}

#[test]
fn a_thread_stopped_at_any_step_stops_no_other_and_loses_nothing() {
    trap::prepare();
    wakeset::set_spin_limit(Some(SPIN));
    let spins = explore_all(&spins(), &KINDS);
    wakeset::set_spin_limit(Some(0));
    let wakes = explore_all(&wakes(), &KINDS);
    assert!(
        wakes.waiting.is_empty(),
        "a thread stopped in a wake stops others: {:?}",
        wakes.waiting
    );
    let changes = explore_all(&changes(), &[EDGE, LEVEL]);
    let takes = explore_all(&takes(), &[EDGE, LEVEL, ONCE]);
    let turnstile = explore_all(&locks(), &[EDGE, LEVEL]);
    wakeset::set_real_time(true);
    let in_kernel = explore_all(&locks(), &[EDGE, LEVEL]);
    wakeset::set_real_time(false);
    let mut stopped_at = pipes::explore();
    for found in [wakes, changes, takes, turnstile, in_kernel, spins] {
        stopped_at.extend(found.stopped_at);
    }
    let unreached: Vec<_> = wakeset::steps::ALL
        .iter()
        .filter(|step| !stopped_at.contains(*step) && !step.starts_with("locked_"))
        .collect();
    assert!(unreached.is_empty(), "unreached steps: {unreached:?}");
}

/// The two lists that are there to be measured, built as Linux built its own, do what the lock-free
/// one is there to avoid: a thread stopped with the list's lock in its hands stops every other that
/// comes to the same set. (And so this shows that the test above can fail.)
fn a_stopped_writer_stops_a_harvest(list: ReadyList, step: &'static str) -> bool {
    let scenario = wakes().swap_remove(0);
    let course = Course::start_on(list, &scenario, EDGE, Some(Place { step, arrival: 1 }));
    assert_eq!(course.thread.until_stopped(), Progress::Stopped, "{step}");
    course.world.b.write(1).ok();
    let world = Arc::clone(&course.world);
    let harvest = Thread::start(None, move || {
        world.wait(&world.set(), Timeout::Now);
    });
    let ended = harvest.ends_within(Duration::from_millis(300));
    let world = course.finish(&scenario).unwrap();
    harvest.join().unwrap();
    world.check().unwrap();
    !ended
}

fn a_stopped_writer_stops_a_writer(list: ReadyList, step: &'static str) -> bool {
    let scenario = wakes().swap_remove(0);
    let course = Course::start_on(list, &scenario, EDGE, Some(Place { step, arrival: 1 }));
    assert_eq!(course.thread.until_stopped(), Progress::Stopped, "{step}");
    let world = Arc::clone(&course.world);
    let writer = Thread::start(None, move || world.b.write(1).unwrap());
    let ended = writer.ends_within(Duration::from_millis(300));
    let world = course.finish(&scenario).unwrap();
    writer.join().unwrap();
    world.check().unwrap();
    !ended
}

#[test]
fn the_spin_lock_stops_writers_and_harvests() {
    for step in ["locked_before_mark", "locked_marked", "locked_pushed"] {
        assert!(a_stopped_writer_stops_a_writer(ReadyList::Spinlock, step), "{step}");
    }
}

#[test]
fn the_read_write_lock_stops_harvests() {
    for step in ["locked_before_mark", "locked_marked", "locked_pushed"] {
        assert!(a_stopped_writer_stops_a_harvest(ReadyList::Rwlock, step), "{step}");
        assert!(
            !a_stopped_writer_stops_a_writer(ReadyList::Rwlock, step),
            "wakers share it: {step}"
        );
    }
}

#[test]
fn the_lock_free_list_stops_nobody() {
    for step in ["marked", "push_linked", "pushed"] {
        assert!(!a_stopped_writer_stops_a_harvest(ReadyList::LockFree, step), "{step}");
        assert!(!a_stopped_writer_stops_a_writer(ReadyList::LockFree, step), "{step}");
    }
}
