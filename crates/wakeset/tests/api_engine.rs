//! Engines, descriptions and errors: what the Rust door has and epoll has not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, Source, Timeout,
    WaitQueue,
};

const READABLE: Event = Event::new(Events::IN, 7);

fn ready(set: &EventPoll) -> Vec<Event> {
    let mut events = [Event::default(); 16];
    let n = set.wait(&mut events, Timeout::Now).unwrap();
    events[..n].to_vec()
}

fn counter(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

#[test]
fn engines_do_not_mix() {
    let (one, other) = (Engine::new(), Engine::default());
    assert!(one.is(&one.clone()) && !one.is(&other));
    let set = EventPoll::new(&one).unwrap();
    let stranger = counter(&other);
    let error = set.add(1, &stranger, READABLE).unwrap_err();
    assert_eq!((error, error.errno()), (Error::Closed, 9));
    assert_eq!(set.remove(1, &stranger), Err(Error::NotWatched));
    assert_eq!(set.modify(1, &stranger, READABLE), Err(Error::NotWatched));
    let strange_set = Description::new(&other, EventPoll::new(&other).unwrap());
    assert_eq!(set.add(1, &strange_set, READABLE), Err(Error::Closed));
    assert!(set.engine().is(&one) && stranger.engine().is(&other));
}

#[test]
fn the_handle_of_an_engine_may_go_first() {
    let engine = Engine::new();
    let (set, counter) = (EventPoll::new(&engine).unwrap(), counter(&engine));
    drop(engine);
    set.add(1, &counter, READABLE).unwrap();
    counter.write(1).unwrap();
    assert_eq!(ready(&set), [READABLE]);
    drop(set);
    // Nobody is left to tell, and the engine is still there to not tell them.
    counter.write(1).unwrap();
}

/// Counts how many of it are alive.
struct Counted(Arc<AtomicUsize>, WaitQueue);

impl Counted {
    fn open(engine: &Engine, alive: &Arc<AtomicUsize>) -> Description<Self> {
        alive.fetch_add(1, Ordering::SeqCst);
        Description::new(engine, Self(alive.clone(), WaitQueue::new()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Source for Counted {
    fn poll(&self) -> Events {
        Events::IN
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.1
    }
}

#[test]
fn the_last_clone_closes_the_source() {
    let (engine, alive) = (Engine::new(), Arc::default());
    let set = EventPoll::new(&engine).unwrap();
    let source = Counted::open(&engine, &alive);
    let clone = source.clone();
    set.add(1, &source, READABLE).unwrap();
    drop(source);
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    assert_eq!(ready(&set), [READABLE]);
    drop(clone);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(set.is_empty());
    assert!(ready(&set).is_empty());
}

#[test]
fn clones_are_one_description() {
    let engine = Engine::new();
    let (set, counter) = (EventPoll::new(&engine).unwrap(), counter(&engine));
    let clone = counter.clone();
    set.add(1, &counter, READABLE).unwrap();
    assert_eq!(set.add(1, &clone, READABLE), Err(Error::AlreadyWatched));
    set.add(2, &clone, Event::new(Events::IN, 8)).unwrap();
    assert_eq!(set.len(), 2);
    clone.write(1).unwrap();
    let mut data: Vec<_> = ready(&set).iter().map(|event| event.data).collect();
    data.sort_unstable();
    assert_eq!(data, [7, 8]);
    set.remove(2, &counter).unwrap();
    set.remove(1, &clone).unwrap();
    assert!(set.is_empty());
}

#[test]
fn two_sources_under_one_number() {
    let engine = Engine::new();
    let (set, one, other) = (EventPoll::new(&engine).unwrap(), counter(&engine), counter(&engine));
    set.add(1, &one, READABLE).unwrap();
    set.add(1, &other, Event::new(Events::IN, 8)).unwrap();
    other.write(1).unwrap();
    assert_eq!(ready(&set), [Event::new(Events::IN, 8)]);
    set.remove(1, &one).unwrap();
    assert_eq!(set.len(), 1);
}

#[test]
fn sources_come_and_go_while_they_are_harvested() {
    let (engine, alive) = (Engine::new(), Arc::default());
    let set = EventPoll::new(&engine).unwrap();
    let always = Counted::open(&engine, &alive);
    set.add(-1, &always, READABLE).unwrap();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (set, engine, alive, done) = (&set, &engine, &alive, &done);
            scope.spawn(move || {
                for turn in 0..5_000 {
                    let source = Counted::open(engine, alive);
                    set.add(thread * 10_000 + turn, &source, READABLE).unwrap();
                    source.wait_queue().wake(Events::IN);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut events = [Event::default(); 8];
        while done.load(Ordering::SeqCst) < 2 {
            assert!(set.wait(&mut events, Timeout::Now).unwrap() >= 1);
        }
    });
    assert_eq!((set.len(), alive.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn every_error_has_a_number_and_a_text() {
    let errors = [
        (Error::AlreadyWatched, 17, "EEXIST"),
        (Error::NotWatched, 2, "ENOENT"),
        (Error::Invalid, 22, "EINVAL"),
        (Error::Loop, 40, "ELOOP"),
        (Error::WatchLimit, 28, "ENOSPC"),
        (Error::NoMemory, 12, "ENOMEM"),
        (Error::WouldBlock, 11, "EAGAIN"),
        (Error::Interrupted, 4, "EINTR"),
        (Error::Closed, 9, "EBADF"),
    ];
    for (error, errno, name) in errors {
        assert_eq!(error.errno(), errno);
        assert!(error.to_string().contains(name), "{error}");
    }
    let _: &dyn std::error::Error = &Error::Sealed;
}

#[test]
fn handles_can_cross_threads_and_be_printed() {
    fn assert_sendable<T: Send + Sync + std::fmt::Debug>(_: &T) {}
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counter = counter(&engine);
    assert_sendable(&engine);
    assert_sendable(&set);
    assert_sendable(&counter);
    assert!(!format!("{engine:?} {set:?} {counter:?}").is_empty());
}
