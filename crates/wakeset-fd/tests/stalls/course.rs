//! One course: a scenario, stopped at one step, and one operation beside it.

use crate::operations::Operation;
use crate::patience::Patience;
use crate::scenarios::Scenario;
use crate::trap::{Beside, LIMIT, Place, Progress, Thread, both};
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A scenario under way.
struct Course {
    world: Arc<World>,
    thread: Thread,
}

impl Course {
    fn start(scenario: &Scenario, kind: u32, place: Option<Place>) -> Self {
        let world = World::new(kind);
        (scenario.prepare)(&world);
        let (act, acting) = (scenario.act, Arc::clone(&world));
        let thread = Thread::start(place, move || act(&acting));
        Self { world, thread }
    }

    /// Returns when the thread is stopped or at its end, having woken it if need be.
    fn until_stopped(&self, scenario: &Scenario) -> Progress {
        let mut ends = Patience::of(LIMIT);
        if let Some(nudge) = scenario.nudge {
            // In a set that has moved it sleeps in a plain system call, and comes to no step
            // before.
            let patience = Duration::from_millis(20);
            while !matches!(
                self.thread.at_rest_within(patience),
                Progress::Stopped | Progress::Ended
            ) && !ends.is_over()
            {
                nudge(&self.world);
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        self.thread.until_stopped()
    }
}

/// The steps a scenario's thread comes to, with how often.
pub fn record(scenario: &Scenario, kind: u32) -> BTreeMap<&'static str, usize> {
    let course = Course::start(scenario, kind, None);
    assert_eq!(course.until_stopped(scenario), Progress::Ended, "{}", scenario.name);
    let mut counts = BTreeMap::new();
    for step in course.thread.log() {
        *counts.entry(step).or_default() += 1;
    }
    course.thread.join().unwrap();
    course
        .world
        .check()
        .unwrap_or_else(|error| panic!("{}, without a stop: {error}", scenario.name));
    counts
}

/// Whether the operation waited for the stopped thread; `None` if that did not come to the place.
pub fn attempt(
    scenario: &Scenario,
    kind: u32,
    place: Place,
    operation: &Operation,
) -> Option<Result<bool, String>> {
    let course = Course::start(scenario, kind, Some(place));
    match course.until_stopped(scenario) {
        Progress::Stopped => {}
        Progress::Ended => return None,
        progress => return Some(Err(format!("did not come there: {progress:?}"))),
    }
    let (run, other) = (operation.run, Arc::clone(&course.world));
    let beside = course.thread.beside(move || run(&other).unwrap());
    course.thread.release();
    if course.until_stopped(scenario) == Progress::Stuck {
        return Some(Err("the stopped thread does not go on".into()));
    }
    let gone_on = course.thread.join().map_err(|error| format!("the stopped thread: {error}"));
    let (waited, done) = match beside {
        Beside::Ended(done) => (false, done),
        Beside::Waits(late) => (true, late.join()),
    };
    if waited && (scenario.wakes || operation.of_counter && !scenario.moves) {
        return Some(Err("waits for the stopped thread".into()));
    }
    Some(both(done, gone_on).and_then(|()| course.world.check()).map(|()| waited))
}
