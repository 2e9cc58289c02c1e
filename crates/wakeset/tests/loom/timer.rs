//! Timers: setting one against sleeping, planning and leaving. The clock stands still until
//! somebody sleeps to a deadline before `FAR`, which then is the time.

use super::*;
use std::time::Duration;
use wakeset::{Deadline, Timer, TimerFlags, set_model_clock};

/// A time that never comes.
const FAR: u64 = 1 << 40;

struct Timers {
    set: EventPoll,
    timers: [Description<Timer>; 2],
}

impl Timers {
    /// A set that watches two timers for `events`, with data 0 and 1, at time 1.
    fn watching(events: Events) -> Arc<Self> {
        set_model_clock(1);
        let engine = Engine::new();
        let set = EventPoll::new(&engine).unwrap();
        let timers = [0, 1].map(|data| {
            let timer = Description::new(&engine, Timer::new(TimerFlags::NONBLOCK));
            set.add(data, &timer, Event::new(events, data as u64)).unwrap();
            timer
        });
        Arc::new(Self { set, timers })
    }

    fn set(&self, timer: usize, at: u64) {
        self.timers[timer].set_at(Duration::from_nanos(at), Duration::ZERO).unwrap();
    }
}

/// A set in a set, and a timer for the inner one.
struct Nested {
    outer: EventPoll,
    inner: Description<EventPoll>,
    timer: Description<Timer>,
}

impl Nested {
    /// At time 1; the timer is not set, and no set watches anything yet.
    fn new(engine: &Engine) -> Self {
        set_model_clock(1);
        Self {
            outer: EventPoll::new(engine).unwrap(),
            inner: Description::new(engine, EventPoll::new(engine).unwrap()),
            timer: Description::new(engine, Timer::new(TimerFlags::NONBLOCK)),
        }
    }

    /// Watches the inner set's edges from the outer one.
    fn nest(&self) {
        self.outer.add(1, &self.inner, Event::new(Events::IN | Events::ET, 1)).unwrap();
    }

    /// Watches the timer from the inner set.
    fn watch(&self) {
        self.inner.add(2, &self.timer, Event::new(Events::IN, 2)).unwrap();
    }

    fn set(&self, at: u64) {
        self.timer.set_at(Duration::from_nanos(at), Duration::ZERO).unwrap();
    }
}

fn now() -> u64 {
    Deadline::now().since_boot().as_nanos() as u64
}

/// Catches a waiter that has looked for its deadline before a timer is set and is not told of it.
#[test]
fn a_sleeper_hears_of_a_timer() {
    explore(3, || {
        let world = Timers::watching(Events::IN);
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        world.set(0, 10);
        assert_eq!(waiter.join().unwrap(), Some(0));
    });
}

/// Catches the same where it sleeps to a later deadline, and one that is told and sleeps on to
/// that.
#[test]
fn a_sleeper_hears_of_an_earlier_time() {
    explore(3, || {
        let world = Timers::watching(Events::IN);
        world.set(1, FAR);
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        world.set(0, 10);
        assert_eq!(waiter.join().unwrap(), Some(0));
    });
}

/// Catches a plan made from a time that is not the timer's any more: whoever set it has relied on
/// the plan before.
#[test]
fn a_plan_is_not_later_than_its_timer() {
    explore(3, || {
        let world = Timers::watching(Events::IN);
        world.set(0, 20);
        assert_eq!(take(&world.set), None);
        // Later than planned: nobody is told.
        world.set(0, 30);
        let planner = run(&world, |world| {
            world.set.modify(0, &world.timers[0], Event::new(Events::IN, 0)).unwrap();
        });
        world.set(0, 25);
        planner.join().unwrap();
        assert_eq!(wait(&world.set, Timeout::Never), Some(0));
        assert_eq!(now(), 25);
    });
}

/// Catches a waiter that sleeps without a deadline of its own because another minds it, and sleeps
/// on when that one is gone.
#[test]
fn who_leaves_hands_the_time_over() {
    explore(2, || {
        let world = Timers::watching(Events::IN | Events::ONESHOT);
        world.set(0, 10);
        world.set(1, 20);
        let waiters =
            [0, 1].map(|_| run(&world, |world| wait(&world.set, Timeout::Never).unwrap()));
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()).into_iter().sum::<u64>(), 1);
    });
}

/// Catches a timer set to a later time while one waiter harvests what is due: that is not yet the
/// deadline, and afterwards there is none.
#[test]
fn a_timer_set_beside_a_harvest_is_heard() {
    explore(2, || {
        let world = Timers::watching(Events::IN | Events::ET);
        world.set(0, 10);
        assert_eq!(take(&world.set), None);
        // One waiter leads, as if it slept in a kernel call.
        world.set.enter_remote();
        let led = world.set.lead();
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        let leader = run(&world, move |world| {
            set_model_clock(10);
            world.set.stop_leading(led);
            world.set.leave_remote();
            let taken = take(&world.set);
            world.set.mind_deadline();
            taken
        });
        world.set(1, 20);
        let taken = [waiter.join().unwrap(), leader.join().unwrap()];
        assert!(matches!(taken, [Some(1), Some(0)] | [Some(0), None]), "{taken:?}");
    });
}

/// Catches a waiter whose own time is up and that leaves with the deadline.
#[test]
fn who_runs_out_of_time_hands_it_over() {
    explore(2, || {
        let world = Timers::watching(Events::IN);
        world.set(0, 10);
        let limit = Timeout::After(Duration::from_nanos(3));
        let leaver = run(&world, move |world| wait(&world.set, limit));
        assert_eq!(wait(&world.set, Timeout::Never), Some(0));
        leaver.join().unwrap();
    });
}

/// Catches a deadline found by somebody who does not sleep, and that nobody who sleeps hears of.
#[test]
fn a_deadline_is_minded_whoever_finds_it() {
    explore(2, || {
        let world = Timers::watching(Events::IN);
        world.set(1, FAR);
        let waiter = run(&world, |world| wait(&world.set, Timeout::Never));
        let passer = run(&world, |world| assert!(matches!(take(&world.set), None | Some(0))));
        world.set(0, 10);
        passer.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Some(0));
    });
}

/// Catches a setting that is in neither home: it says that it was made, and the state that moves
/// does not have it.
#[test]
fn what_is_set_is_sealed() {
    explore(3, || {
        let world = Timers::watching(Events::IN);
        let setter = run(&world, |world| {
            let at = Duration::from_nanos(10);
            world.timers[0].set_at(at, Duration::ZERO).is_ok()
        });
        let sealed = world.timers[0].seal().unwrap();
        assert_eq!(setter.join().unwrap(), sealed.is_armed());
    });
}

/// Catches a time in an inner set that a waiter outside does not hear of.
#[test]
fn a_sleeper_outside_hears_of_a_timer_inside() {
    explore(2, || {
        let world = Nested::new(&Engine::new());
        world.nest();
        world.watch();
        let world = Arc::new(world);
        let waiter = run(&world, |world| wait(&world.outer, Timeout::Never));
        world.set(10);
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
}

/// Catches a change of an inner set that makes its deadline earlier and does not plan it outside.
#[test]
fn a_sleeper_outside_hears_of_a_timer_added_inside() {
    explore(2, || {
        let world = Nested::new(&Engine::new());
        world.set(10);
        world.nest();
        let world = Arc::new(world);
        let waiter = run(&world, |world| wait(&world.outer, Timeout::Never));
        world.watch();
        assert_eq!(waiter.join().unwrap(), Some(1));
        assert_eq!(now(), 10);
    });
}

/// Catches a timer that is set while it is on the inner set's list, and is not planned because
/// something else there holds.
#[test]
fn a_sleeper_outside_hears_of_a_timer_set_again() {
    explore(2, || {
        let engine = Engine::new();
        let world = Nested::new(&engine);
        let counter = open(&engine);
        counter.write(1).unwrap();
        world.inner.add(1, &counter, Event::new(Events::IN, 1)).unwrap();
        world.set(1);
        world.watch();
        world.nest();
        assert_eq!([take(&world.outer), take(&world.outer)], [Some(1), None]);
        let world = Arc::new(world);
        let waiter = run(&world, |world| {
            // A change inside is an edge outside, and so is the time when it comes.
            [(); 2].map(|()| wait(&world.outer, Timeout::Never))
        });
        world.set(10);
        assert_eq!(waiter.join().unwrap(), [Some(1), Some(1)]);
        assert_eq!(now(), 10);
    });
}
