//! The watch limit: what `/proc/sys/fs/epoll/max_user_watches` is to Linux, per engine.

use wakeset::{Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events};

const READABLE: Event = Event::new(Events::IN, 0);

fn counter(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

/// How many more watches fit.
fn room(engine: &Engine) -> usize {
    let (set, counter) = (EventPoll::new(engine).unwrap(), counter(engine));
    (0..).take_while(|fd| set.add(*fd, &counter, READABLE).is_ok()).count()
}

#[test]
fn enospc_at_the_limit() {
    let engine = Engine::with_watch_limit(3);
    let (set, counter) = (EventPoll::new(&engine).unwrap(), counter(&engine));
    for fd in 0..3 {
        set.add(fd, &counter, READABLE).unwrap();
    }
    let error = set.add(3, &counter, READABLE).unwrap_err();
    assert_eq!((error, error.errno()), (Error::WatchLimit, 28));
    assert_eq!(set.len(), 3);
    // What is there is not affected.
    set.modify(0, &counter, Event::new(Events::OUT, 5)).unwrap();
    let mut events = [Event::default(); 8];
    assert_eq!(set.wait(&mut events, wakeset::Timeout::Now), Ok(1));
    assert_eq!(events[0], Event::new(Events::OUT, 5));
}

#[test]
fn a_limit_of_none() {
    assert_eq!(room(&Engine::with_watch_limit(0)), 0);
}

#[test]
fn all_sets_count_together() {
    let engine = Engine::with_watch_limit(10);
    let counter = counter(&engine);
    let sets: Vec<_> = (0..10).map(|_| EventPoll::new(&engine).unwrap()).collect();
    for set in &sets {
        set.add(0, &counter, READABLE).unwrap();
    }
    assert_eq!(room(&engine), 0);
    // Another engine has a limit of its own.
    assert_eq!(room(&Engine::with_watch_limit(4)), 4);
}

#[test]
fn removal_and_close_make_room() {
    let engine = Engine::with_watch_limit(8);
    let (set, kept, closed) =
        (EventPoll::new(&engine).unwrap(), counter(&engine), counter(&engine));
    set.add(0, &kept, READABLE).unwrap();
    set.add(1, &closed, READABLE).unwrap();
    set.add(2, &closed, READABLE).unwrap();
    assert_eq!(room(&engine), 5);
    drop(closed);
    assert_eq!(room(&engine), 7);
    set.remove(0, &kept).unwrap();
    assert_eq!(room(&engine), 8);
    set.add(0, &kept, READABLE).unwrap();
    kept.write(1).unwrap();
    drop(set);
    assert_eq!(room(&engine), 8);
}

#[test]
fn a_refused_watch_does_not_count() {
    let engine = Engine::with_watch_limit(8);
    let set = Description::new(&engine, EventPoll::new(&engine).unwrap());
    let inner = Description::new(&engine, EventPoll::new(&engine).unwrap());
    let counter = counter(&engine);
    set.add(0, &counter, READABLE).unwrap();
    set.add(1, &inner, READABLE).unwrap();
    for _ in 0..20 {
        assert_eq!(set.add(0, &counter, READABLE), Err(Error::AlreadyWatched));
        assert_eq!(set.add(2, &set, READABLE), Err(Error::Invalid));
        assert_eq!(inner.add(2, &set, READABLE), Err(Error::Loop));
        let exclusive = Event::new(Events::EXCLUSIVE | Events::ONESHOT, 0);
        assert_eq!(set.add(3, &counter, exclusive), Err(Error::Invalid));
    }
    assert_eq!(room(&engine), 6);
}

/// Beyond the path limits a watch is made and taken back; that must not be counted either.
#[test]
fn a_watch_beyond_the_path_limits_does_not_count() {
    let engine = Engine::with_watch_limit(100);
    let chain: Vec<_> =
        (0..4).map(|_| Description::new(&engine, EventPoll::new(&engine).unwrap())).collect();
    for pair in chain.windows(2) {
        pair[0].add(0, &pair[1], READABLE).unwrap();
    }
    let source = counter(&engine);
    chain[3].add(0, &source, READABLE).unwrap();
    let outer: Vec<_> = (0..10).map(|_| EventPoll::new(&engine).unwrap()).collect();
    for set in &outer {
        set.add(0, &chain[0], READABLE).unwrap();
    }
    let one_more = EventPoll::new(&engine).unwrap();
    for _ in 0..20 {
        assert_eq!(one_more.add(0, &chain[0], READABLE), Err(Error::Invalid));
        assert!(one_more.is_empty());
    }
    assert_eq!(room(&engine), 100 - 4 - 10);
}

/// Many threads at the limit: never more than it allows, and afterwards all of it is free again.
#[test]
fn the_limit_holds_under_contention() {
    const LIMIT: usize = 16;
    let engine = Engine::with_watch_limit(LIMIT);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (set, counter) = (EventPoll::new(&engine).unwrap(), counter(&engine));
                for _ in 0..2_000 {
                    let added =
                        (0..).take_while(|fd| set.add(*fd, &counter, READABLE).is_ok()).count();
                    assert!(added <= LIMIT);
                    (0..added as i32).for_each(|fd| set.remove(fd, &counter).unwrap());
                }
            });
        }
    });
    assert_eq!(room(&engine), LIMIT);
}
