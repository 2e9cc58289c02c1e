//! Memory that runs out: each call is made again and again, with no allocation granted, then one,
//! then two, until it needs no more. What is refused says ENOMEM and changes nothing; it works once
//! there is memory; nothing leaks. What gives things back, reports or wakes needs no memory at all.

#![cfg(not(any(loom, shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, Timeout,
};

/// The system's allocator, which can be told to refuse one thread. Counts what that thread has out.
struct Rationed;

#[global_allocator]
static HEAP: Rationed = Rationed;

thread_local! {
    /// How many allocations this thread may still make.
    static RATION: Cell<usize> = const { Cell::new(usize::MAX) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator, or refuses it.
unsafe impl GlobalAlloc for Rationed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let ration = RATION.get();
        if ration == 0 {
            REFUSED.set(REFUSED.get() + 1);
            return std::ptr::null_mut();
        }
        RATION.set(if ration == usize::MAX { ration } else { ration - 1 });
        LIVE.set(LIVE.get() + layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `f` with memory for `n` allocations, and how many it was refused.
fn rationed<T>(n: usize, f: impl FnOnce() -> T) -> (T, usize) {
    REFUSED.set(0);
    RATION.set(n);
    let result = f();
    RATION.set(usize::MAX);
    (result, REFUSED.get())
}

/// Runs `f`, which must not ask for memory.
#[track_caller]
fn without_memory<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let (result, refused) = rationed(0, f);
    assert_eq!(refused, 0, "{what} asked for memory");
    result
}

/// Runs `f`, after which as much memory is out as before.
#[track_caller]
fn without_leak(what: &str, f: impl FnOnce()) {
    let before = LIVE.get();
    f();
    assert_eq!(LIVE.get(), before, "{what} leaks");
}

/// Makes `call` in a fresh world with memory for 0, 1, 2… allocations until it needs no more.
/// `unchanged` looks at the world after each refusal; then the same call has to succeed, and `done`
/// looks.
#[track_caller]
fn exhaust<W>(
    what: &str,
    world: impl Fn() -> W,
    call: impl Fn(&W) -> Result<(), Error>,
    unchanged: impl Fn(&W),
    done: impl Fn(&W),
) -> usize {
    for n in 0..100 {
        let mut enough = false;
        without_leak(what, || {
            let world = world();
            let (result, refused) = rationed(n, || call(&world));
            if result.is_err() {
                assert_eq!(result, Err(Error::NoMemory), "{what} with {n} allocations");
                assert!(refused > 0, "{what} with {n} allocations");
                unchanged(&world);
                assert_eq!(call(&world), Ok(()), "{what}, again, after {n} allocations");
            }
            done(&world);
            enough = refused == 0;
        });
        if enough {
            return n;
        }
    }
    panic!("{what} never has enough");
}

fn counter(engine: &Engine, value: u64) -> Description<Counter> {
    Description::new(engine, Counter::new(value, CounterFlags::NONBLOCK))
}

/// A set with `n` watches on counters, every third of which is ready.
struct Watched {
    engine: Engine,
    set: EventPoll,
    counters: Vec<Description<Counter>>,
}

impl Watched {
    fn new(n: usize) -> Self {
        let engine = Engine::new();
        let set = EventPoll::new(&engine).unwrap();
        let counters: Vec<_> = (0..n).map(|i| counter(&engine, u64::from(i % 3 == 0))).collect();
        for (i, counter) in counters.iter().enumerate() {
            set.add(i as i32, counter, Event::new(Events::IN, i as u64)).unwrap();
        }
        Self { engine, set, counters }
    }

    fn reported(&self) -> Vec<u64> {
        let mut events = vec![Event::default(); self.counters.len() + 8];
        let (n, refused) = rationed(0, || self.set.wait(&mut events, Timeout::Now).unwrap());
        assert_eq!(refused, 0, "a wait asked for memory");
        let mut data: Vec<_> = events[..n].iter().map(|event| event.data).collect();
        data.sort_unstable();
        data
    }

    /// The ready ones, and `more`.
    #[track_caller]
    fn expect(&self, watches: usize, more: Option<u64>) {
        assert_eq!(self.set.len(), watches);
        let ready = (0..self.counters.len() as u64).step_by(3).chain(more).collect::<Vec<_>>();
        assert_eq!(self.reported(), ready);
        assert_eq!(self.reported(), ready, "level-triggered");
    }
}

#[test]
fn an_engine() {
    let needs =
        exhaust("Engine::try_new", || (), |()| Engine::try_new().map(drop), |()| {}, |()| {});
    assert_eq!(needs, 1);
    assert_eq!(rationed(0, || Engine::try_with_watch_limit(5).err()).0, Some(Error::NoMemory));
}

#[test]
fn a_description() {
    let needs = exhaust(
        "Description::try_new",
        Engine::new,
        |engine| Description::try_new(engine, Counter::new(0, CounterFlags::empty())).map(drop),
        |_| {},
        |_| {},
    );
    assert_eq!(needs, 1);
    let open = counter(&Engine::new(), 1);
    without_memory("a clone", || drop(open.clone()));
}

#[test]
fn a_set() {
    let needs = exhaust(
        "EventPoll::new",
        Engine::new,
        |engine| EventPoll::new(engine).map(drop),
        |_| {},
        |_| {},
    );
    assert!(needs > 0);
}

/// The table of watches and the pool they come from grow at different sizes.
#[test]
fn an_add() {
    let mut most = 0;
    for watches in (0..70).chain([111, 112, 113, 224, 447, 448, 449]) {
        let world = || (Watched::new(watches), Cell::new(None));
        let needs = exhaust(
            "add",
            world,
            |(world, new)| {
                // The source is there before the call; the call is the add alone.
                let ration = RATION.replace(usize::MAX);
                let source = new.take().unwrap_or_else(|| counter(&world.engine, 1));
                RATION.set(ration);
                let result = world.set.add(1000, &source, Event::new(Events::IN, 1000));
                new.set(Some(source));
                result
            },
            |(world, new)| {
                world.expect(watches, None);
                let source = new.take().unwrap();
                source.write(1).unwrap();
                world.expect(watches, None);
                assert_eq!(world.set.remove(1000, &source), Err(Error::NotWatched));
                new.set(Some(source));
            },
            |(world, _)| world.expect(watches + 1, Some(1000)),
        );
        most = most.max(needs);
    }
    assert!(most >= 2, "the pool and the table grow in one call at times");
}

/// A source's wait queue grows with the sets that watch it.
#[test]
fn an_add_to_a_source_with_many_watches() {
    let mut grows = 0;
    for watchers in 0..40 {
        let world = || {
            let world = Watched::new(4);
            let sets: Vec<_> =
                (0..watchers).map(|_| EventPoll::new(&world.engine).unwrap()).collect();
            for (i, set) in sets.iter().enumerate() {
                set.add(7, &world.counters[1], Event::new(Events::IN | Events::ET, i as u64))
                    .unwrap();
            }
            // So that the watch itself needs no memory.
            world.set.add(50, &world.counters[2], Event::new(Events::IN, 0)).unwrap();
            world.set.remove(50, &world.counters[2]).unwrap();
            (world, sets)
        };
        let needs = exhaust(
            "add to a watched source",
            world,
            |(world, _)| world.set.add(9, &world.counters[1], Event::new(Events::IN, 9)),
            |(world, sets)| {
                world.expect(4, None);
                world.counters[1].write(1).unwrap();
                for (i, set) in sets.iter().enumerate() {
                    let mut events = [Event::default(); 2];
                    assert_eq!(
                        set.wait(&mut events, Timeout::Now),
                        Ok(1),
                        "a watch that was there is lost"
                    );
                    assert_eq!(events[0].data, i as u64);
                }
                // Not by the watch that was refused.
                assert_eq!(world.reported(), [0, 1, 3]);
                assert_eq!(world.counters[1].read(), Ok(1));
            },
            |(world, _)| {
                world.counters[1].write(1).unwrap();
                assert_eq!(world.reported(), [0, 1, 3, 9]);
            },
        );
        grows += needs;
    }
    assert!(grows >= 3, "the queue grew {grows} times");
}

/// Sets above and below, so that both checks have something to count.
struct Nested {
    engine: Engine,
    top: [EventPoll; 3],
    outer: Description<EventPoll>,
    inner: Description<EventPoll>,
    _bottom: [Description<EventPoll>; 3],
    leaf: Description<Counter>,
}

impl Nested {
    fn new() -> Self {
        let engine = Engine::new();
        let set = || EventPoll::new(&engine).unwrap();
        let open = || Description::new(&engine, set());
        let (top, outer, inner, bottom) =
            ([set(), set(), set()], open(), open(), [open(), open(), open()]);
        let leaf = counter(&engine, 0);
        for set in &top {
            set.add(1, &outer, Event::new(Events::IN, 1)).unwrap();
        }
        for (fd, set) in (2..).zip(&bottom) {
            set.add(1, &leaf, Event::new(Events::IN, 7)).unwrap();
            inner.add(fd, set, Event::new(Events::IN, fd as u64)).unwrap();
        }
        Self { engine, top, outer, inner, _bottom: bottom, leaf }
    }

    #[track_caller]
    fn reaches_the_top(&self, reaches: bool) {
        self.leaf.write(1).unwrap();
        for set in &self.top {
            assert_eq!(
                set.wait(&mut [Event::default(); 4], Timeout::Now),
                Ok(usize::from(reaches))
            );
        }
        assert_eq!(self.inner.wait(&mut [Event::default(); 4], Timeout::Now), Ok(3));
        assert_eq!(self.leaf.read(), Ok(1));
        for set in &self.top {
            assert_eq!(set.wait(&mut [Event::default(); 4], Timeout::Now), Ok(0));
        }
    }
}

#[test]
fn a_set_in_a_set() {
    let needs = exhaust(
        "add of a set",
        Nested::new,
        |world| world.outer.add(5, &world.inner, Event::new(Events::IN, 5)),
        |world| {
            assert_eq!((world.outer.len(), world.inner.len()), (0, 3));
            world.reaches_the_top(false);
        },
        |world| world.reaches_the_top(true),
    );
    assert!(needs >= 4, "both checks and the watch ask for memory");
}

#[test]
fn a_source_in_a_watched_set() {
    let world = || {
        let world = Nested::new();
        let source = counter(&world.engine, 1);
        (world, source)
    };
    let needs = exhaust(
        "add to a watched set",
        world,
        |(world, source)| world.outer.add(5, source, Event::new(Events::IN, 5)),
        |(world, _)| world.reaches_the_top(false),
        |(world, _)| {
            for set in &world.top {
                assert_eq!(set.wait(&mut [Event::default(); 4], Timeout::Now), Ok(1));
            }
        },
    );
    assert!(needs >= 2);
}

/// Whoever gives something back must not be told that there is no memory for it.
#[test]
fn what_needs_no_memory() {
    without_leak("all of it", || {
        let world = Watched::new(200);
        let sets: Vec<_> = (0..50).map(|_| EventPoll::new(&world.engine).unwrap()).collect();
        for set in &sets {
            set.add(0, &world.counters[0], Event::new(Events::IN, 0)).unwrap();
        }
        let Watched { set, mut counters, .. } = world;
        let mut events = vec![Event::default(); 300];
        without_memory("modify", || {
            set.modify(5, &counters[5], Event::new(Events::IN | Events::ET, 5)).unwrap()
        });
        without_memory("write", || counters.iter().for_each(|counter| counter.write(1).unwrap()));
        assert_eq!(without_memory("wait", || set.wait(&mut events, Timeout::Now)), Ok(200));
        without_memory("read", || assert!(counters.iter().all(|counter| counter.read().is_ok())));
        without_memory("remove", || set.remove(5, &counters[5]).unwrap());
        without_memory("remove and add", || {
            set.remove(6, &counters[6]).unwrap();
            set.add(6, &counters[6], Event::new(Events::IN, 6)).unwrap();
        });
        let watched_by_many = counters.swap_remove(0);
        without_memory("close of a source", || drop(watched_by_many));
        assert_eq!(set.len(), 198);
        assert!(sets.iter().all(EventPoll::is_empty));
        without_memory("close of a set", || drop(set));
        without_memory("the end", || drop((sets, counters)));
    });
}
