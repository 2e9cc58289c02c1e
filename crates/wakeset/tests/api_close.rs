//! Removal, close and everything else of one set or source take no lock wider than that set: a
//! thread that holds one set's scan lock stops nobody who has no business with that set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, Source, Timeout,
    Timer, TimerFlags, WaitQueue,
};

/// A source whose poll, once armed, does not return before it is told to: whoever harvests its set
/// holds the scan lock that long.
struct Stopper {
    armed: AtomicBool,
    entered: Mutex<Sender<()>>,
    leave: Mutex<Receiver<()>>,
    watches: WaitQueue,
}

impl Source for Stopper {
    fn poll(&self) -> Events {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.entered.lock().unwrap().send(()).unwrap();
            // An error is the test's end.
            let _ = self.leave.lock().unwrap().recv();
        }
        Events::IN
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.watches
    }
}

fn counter(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

const READABLE: Event = Event::new(Events::IN, 7);

fn ready(set: &EventPoll) -> Vec<Event> {
    let mut events = [Event::default(); 16];
    let n = set.wait(&mut events, Timeout::Now).unwrap();
    events[..n].to_vec()
}

/// A set with a counter in it whose scan lock a harvest holds, and what lets the harvest go on.
struct Stopped {
    engine: Engine,
    set: Arc<EventPoll>,
    counter: Description<Counter>,
    go_on: Sender<()>,
    harvester: thread::JoinHandle<usize>,
}

fn stop_a_harvest() -> Stopped {
    let engine = Engine::new();
    let set = Arc::new(EventPoll::new(&engine).unwrap());
    let counter = counter(&engine);
    set.add(1, &counter, READABLE).unwrap();
    let (entered, has_entered) = channel();
    let (go_on, leave) = channel();
    let stopper = Description::new(
        &engine,
        Stopper {
            armed: AtomicBool::new(false),
            entered: Mutex::new(entered),
            leave: Mutex::new(leave),
            watches: WaitQueue::new(),
        },
    );
    set.add(2, &stopper, READABLE).unwrap();
    stopper.armed.store(true, Ordering::SeqCst);
    let theirs = set.clone();
    let harvester = thread::spawn(move || {
        let _open = &stopper;
        theirs.wait(&mut [Event::default(); 4], Timeout::Never).unwrap()
    });
    has_entered.recv().unwrap();
    Stopped { engine, set, counter, go_on, harvester }
}

/// Runs `f` on a thread of its own; panics if it does not come back.
#[track_caller]
fn is_not_stopped<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, done) = channel();
    thread::spawn(move || tell.send(f()));
    done.recv_timeout(Duration::from_secs(30)).expect("stopped, or panicked")
}

impl Stopped {
    /// Ends the harvest; what it reported.
    fn go_on(self) -> usize {
        self.go_on.send(()).unwrap();
        self.harvester.join().unwrap()
    }
}

#[test]
fn other_sets_work() {
    let stopped = stop_a_harvest();
    let engine = stopped.engine.clone();
    is_not_stopped(move || {
        for _ in 0..100 {
            let (set, one, other) =
                (EventPoll::new(&engine).unwrap(), counter(&engine), counter(&engine));
            set.add(1, &one, READABLE).unwrap();
            set.add(2, &other, READABLE).unwrap();
            one.write(1).unwrap();
            assert_eq!(ready(&set), [READABLE]);
            set.modify(2, &other, Event::new(Events::OUT, 8)).unwrap();
            assert_eq!(ready(&set).len(), 2);
            set.remove(1, &one).unwrap();
            drop(other);
            assert!(ready(&set).is_empty());
            one.write(1).unwrap();
            set.add(1, &one, READABLE).unwrap();
            // The set goes with a ready watch in it.
        }
    });
    assert_eq!(stopped.go_on(), 1);
}

#[test]
fn wakes_work_even_into_the_stopped_set() {
    let stopped = stop_a_harvest();
    let (engine, counter) = (stopped.engine.clone(), stopped.counter.clone());
    is_not_stopped(move || {
        let other = EventPoll::new(&engine).unwrap();
        other.add(1, &counter, Event::new(Events::IN | Events::ET, 9)).unwrap();
        for n in 1..100 {
            counter.write(1).unwrap();
            assert_eq!(ready(&other), [Event::new(Events::IN, 9)]);
            assert_eq!(counter.value(), Some(n));
            if n == 50 {
                other.remove(1, &counter).unwrap();
                other.add(1, &counter, Event::new(Events::IN | Events::ET, 9)).unwrap();
                assert_eq!(ready(&other), [Event::new(Events::IN, 9)]);
            }
        }
    });
    let set = stopped.set.clone();
    let _open = stopped.counter.clone();
    stopped.go_on();
    // What came in while the lock was held was kept.
    assert_eq!(ready(&set), [READABLE]);
}

#[test]
fn a_waiter_elsewhere_is_woken() {
    let stopped = stop_a_harvest();
    let (engine, shared) = (stopped.engine.clone(), stopped.counter.clone());
    is_not_stopped(move || {
        let set = EventPoll::new(&engine).unwrap();
        set.add(1, &shared, READABLE).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| set.wait(&mut [Event::default(); 4], Timeout::Never));
            thread::sleep(Duration::from_millis(5));
            shared.write(1).unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(1));
        });
    });
    stopped.go_on();
}

#[test]
fn nesting_elsewhere_works() {
    let stopped = stop_a_harvest();
    let (engine, shared) = (stopped.engine.clone(), stopped.counter.clone());
    is_not_stopped(move || {
        let outer = EventPoll::new(&engine).unwrap();
        let inner = Description::new(&engine, EventPoll::new(&engine).unwrap());
        let own = counter(&engine);
        outer.add(1, &inner, READABLE).unwrap();
        inner.add(2, &own, READABLE).unwrap();
        // Even with a source that the stopped set watches too: its paths lead there, its lock is
        // not needed for that.
        inner.add(3, &shared, READABLE).unwrap();
        own.write(1).unwrap();
        assert_eq!(ready(&outer), [READABLE]);
        drop(inner);
        assert!(ready(&outer).is_empty());
    });
    stopped.go_on();
}

/// While one thread holds the lock of an outer set, the inner one is free.
#[test]
fn an_inner_set_works() {
    let stopped = stop_a_harvest();
    let engine = stopped.engine.clone();
    let inner = Description::new(&engine, EventPoll::new(&engine).unwrap());
    let set = stopped.set.clone();
    stopped.go_on.send(()).unwrap();
    stopped.harvester.join().unwrap();
    set.add(3, &inner, READABLE).unwrap();

    let (entered, has_entered) = channel();
    let (go_on, leave) = channel();
    let watches = WaitQueue::new();
    let armed = AtomicBool::new(true);
    let stopper =
        Stopper { armed, entered: Mutex::new(entered), leave: Mutex::new(leave), watches };
    let stopper = Description::new(&engine, stopper);
    let harvester = thread::spawn(move || {
        // The add polls, and so holds the lock already.
        set.add(4, &stopper, READABLE).unwrap();
        stopper
    });
    has_entered.recv().unwrap();
    let theirs = inner.clone();
    is_not_stopped(move || {
        let own = counter(&engine);
        theirs.add(1, &own, READABLE).unwrap();
        own.write(1).unwrap();
        assert_eq!(ready(&theirs), [READABLE]);
        theirs.remove(1, &own).unwrap();
    });
    go_on.send(()).unwrap();
    drop(harvester.join().unwrap());
}

#[test]
fn closing_what_the_stopped_set_watches_waits_for_it_alone() {
    let stopped = stop_a_harvest();
    let closing = counter(&stopped.engine);
    let elsewhere = EventPoll::new(&stopped.engine).unwrap();
    elsewhere.add(1, &closing, READABLE).unwrap();
    drop(closing);
    assert!(elsewhere.is_empty());
    let Stopped { set, counter, go_on, harvester, .. } = stopped;
    let closer = thread::spawn(move || drop(counter));
    go_on.send(()).unwrap();
    harvester.join().unwrap();
    closer.join().unwrap();
    // The stopper was the harvester's and has gone with it.
    assert_eq!(set.len(), 0);
}

/// Of many watches only its own are visited: a source's close leaves the others, whatever their
/// number.
#[test]
fn a_close_removes_its_own_watches_only() {
    let engine = Engine::new();
    let sets: Vec<_> = (0..20).map(|_| EventPoll::new(&engine).unwrap()).collect();
    let counters: Vec<_> = (0..50).map(|_| counter(&engine)).collect();
    for set in &sets {
        for (fd, counter) in counters.iter().enumerate() {
            set.add(fd as i32, counter, READABLE).unwrap();
        }
    }
    let mut left = counters.len();
    for counter in counters {
        counter.write(1).unwrap();
        drop(counter);
        left -= 1;
        assert!(sets.iter().all(|set| set.len() == left));
    }
    assert!(sets.iter().all(|set| ready(set).is_empty()));
}

#[test]
fn a_closed_set_takes_nothing() {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counter = counter(&engine);
    set.add(1, &counter, READABLE).unwrap();
    set.close();
    assert!(set.is_empty());
    assert_eq!(set.add(1, &counter, READABLE), Err(Error::Closed));
    assert_eq!(set.remove(1, &counter), Err(Error::NotWatched));
    counter.write(1).unwrap();
    assert!(ready(&set).is_empty());
    set.reopen();
    set.add(1, &counter, READABLE).unwrap();
    assert_eq!(ready(&set), [READABLE]);
}

/// Of a few watches and of many, with what time makes ready among them or not.
#[test]
fn a_cleared_set_goes_on() {
    // A watch that stayed counted would be one too many soon.
    let engine = Engine::with_watch_limit(100);
    let set = EventPoll::new(&engine).unwrap();
    let timer = Description::new(&engine, Timer::new(TimerFlags::NONBLOCK));
    timer.set_at(Duration::from_nanos(1), Duration::ZERO).unwrap();
    for (watches, timed) in [(1, false), (3, true), (100, false), (2, false), (1, false)] {
        let counters: Vec<_> = (0..watches).map(|_| counter(&engine)).collect();
        for (fd, counter) in counters.iter().enumerate() {
            set.add(fd as i32, counter, READABLE).unwrap();
        }
        if timed {
            set.add(-1, &timer, READABLE).unwrap();
            assert_eq!(ready(&set), [READABLE]);
        }
        counters[0].write(1).unwrap();
        set.clear();
        assert!(set.is_empty() && !set.is_closed());
        counters.iter().for_each(|counter| counter.write(1).unwrap());
        assert!(!set.may_be_ready() && ready(&set).is_empty());
        set.add(1, &counters[0], READABLE).unwrap();
        assert_eq!(ready(&set), [READABLE]);
        set.clear();
    }
}

/// Threads open, watch, signal and close all at once, in sets of their own and in one they share.
#[test]
fn everything_at_once() {
    let engine = Engine::new();
    let shared = EventPoll::new(&engine).unwrap();
    let outer = EventPoll::new(&engine).unwrap();
    let busy = counter(&engine);
    let nested = Description::new(&engine, EventPoll::new(&engine).unwrap());
    outer.add(0, &nested, READABLE).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, shared, outer, busy, nested) = (&engine, &shared, &outer, &busy, &nested);
            scope.spawn(move || {
                for turn in 0..1_000 {
                    let own = EventPoll::new(engine).unwrap();
                    let source = counter(engine);
                    let fd = thread * 1_000_000 + turn;
                    own.add(fd, &source, READABLE).unwrap();
                    own.add(fd + 1, busy, READABLE).unwrap();
                    shared.add(fd, &source, Event::new(Events::IN | Events::ET, 1)).unwrap();
                    nested.add(fd, &source, READABLE).unwrap();
                    source.write(1).unwrap();
                    busy.write(1).unwrap();
                    assert_eq!(ready(&own).len(), 2);
                    ready(shared);
                    assert_eq!(ready(outer), [READABLE]);
                    if turn % 2 == 0 {
                        drop(source);
                        assert_eq!(own.len(), 1);
                    }
                }
            });
        }
    });
    assert!(shared.is_empty() && nested.is_empty());
    assert!(ready(&outer).is_empty());
    assert_eq!(busy.value(), Some(4_000));
}
