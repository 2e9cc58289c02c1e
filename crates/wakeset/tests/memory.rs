//! What a watch costs in memory, counted at the allocator; it prints the figures.
//!
//! One test in a program of its own: nothing else may allocate while it measures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Timeout};

/// The system's allocator, counting the bytes that are out.
struct Counting {
    live: AtomicUsize,
    peak: AtomicUsize,
}

#[global_allocator]
static HEAP: Counting = Counting { live: AtomicUsize::new(0), peak: AtomicUsize::new(0) };

impl Counting {
    fn take(&self, bytes: usize) {
        let live = self.live.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(live, Relaxed);
    }
}

// SAFETY: hands everything on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes that stay allocated by what `f` makes, and the most there were on the way; its result is
/// kept alive.
fn measure<T>(f: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = HEAP.live.load(Relaxed);
    HEAP.peak.store(before, Relaxed);
    let made = f();
    (made, HEAP.live.load(Relaxed) - before, HEAP.peak.load(Relaxed) - before)
}

fn counters(engine: &Engine, n: usize) -> Vec<Description<Counter>> {
    let flags = CounterFlags::NONBLOCK;
    (0..n).map(|_| Description::new(engine, Counter::new(0, flags))).collect()
}

fn add_all(set: &EventPoll, counters: &[Description<Counter>]) {
    for (i, counter) in counters.iter().enumerate() {
        set.add(i as i32, counter, Event::new(Events::IN, i as u64)).unwrap();
    }
}

/// What the issue allows a watch to cost, beside its source and the set.
const MOST_PER_WATCH: usize = 128;
/// What a set may cost before it watches anything.
const MOST_PER_SET: usize = 768;

#[test]
fn a_watch_costs_at_most_128_bytes() {
    one_large_set();
    many_small_sets(20_000, 1);
    many_small_sets(5_000, 4);
    many_small_sets(1_000, 64);
    churn();
    many_watches_of_one_source();
    nothing_outlives_the_engine();
}

fn one_large_set() {
    const WATCHES: usize = 100_000;
    let engine = Engine::new();
    let (counters, bytes, _) = measure(|| counters(&engine, WATCHES));
    println!("a counter: {:.1} bytes", bytes as f64 / WATCHES as f64);
    let set = EventPoll::new(&engine).unwrap();
    let ((), live, peak) = measure(|| add_all(&set, &counters));
    println!(
        "{WATCHES} counters in one set: {:.1} bytes a watch, {:.1} while the set grew",
        live as f64 / WATCHES as f64,
        peak as f64 / WATCHES as f64
    );
    assert!(live <= WATCHES * MOST_PER_WATCH, "{live} bytes");
    let ((), live, peak) = measure(|| {
        let mut events = vec![Event::default(); WATCHES];
        for _ in 0..2 {
            counters.iter().for_each(|counter| counter.write(1).unwrap());
            assert_eq!(set.wait(&mut events, Timeout::Now), Ok(WATCHES));
        }
    });
    assert_eq!(live, 0, "wakes and waits keep nothing");
    assert!(peak <= WATCHES * size_of::<Event>(), "wakes and waits allocate nothing");
}

fn many_small_sets(sets: usize, watches: usize) {
    let engine = Engine::new();
    let counters = counters(&engine, watches);
    // Each counter is watched by every set, so its wait queue grows too: that belongs to the watch.
    let (_sets, live, _) = measure(|| {
        let make = |_| {
            let set = EventPoll::new(&engine).unwrap();
            add_all(&set, &counters);
            set
        };
        (0..sets).map(make).collect::<Vec<_>>()
    });
    let per_set = live / sets;
    println!("{sets} sets of {watches}: {per_set} bytes a set with its watches");
    assert!(per_set <= MOST_PER_SET + watches * MOST_PER_WATCH);
}

/// Sets and watches that come and go leave nothing behind.
fn churn() {
    let engine = Engine::new();
    let counters = counters(&engine, 64);
    let turn = || {
        let set = EventPoll::new(&engine).unwrap();
        add_all(&set, &counters);
        for (i, counter) in counters.iter().enumerate().step_by(2) {
            counter.write(1).unwrap();
            set.remove(i as i32, counter).unwrap();
        }
    };
    turn();
    let ((), live, _) = measure(|| (0..10_000).for_each(|_| turn()));
    println!("10000 sets of 64, one after the other: {live} bytes left");
    assert_eq!(live, 0);
}

fn many_watches_of_one_source() {
    const WATCHES: usize = 10_000;
    let engine = Engine::new();
    let counter = &counters(&engine, 1)[0];
    let set = EventPoll::new(&engine).unwrap();
    let ((), live, _) = measure(|| {
        for fd in 0..WATCHES as i32 {
            set.add(fd, counter, Event::new(Events::IN, 0)).unwrap();
        }
    });
    println!("{WATCHES} watches of one counter: {:.1} bytes a watch", live as f64 / WATCHES as f64);
    assert!(live <= WATCHES * MOST_PER_WATCH);
}

fn nothing_outlives_the_engine() {
    let ((), live, _) = measure(|| {
        let engine = Engine::new();
        let counters = counters(&engine, 300);
        let sets: Vec<_> = (0..10).map(|_| EventPoll::new(&engine).unwrap()).collect();
        sets.iter().for_each(|set| add_all(set, &counters));
        counters.iter().for_each(|counter| counter.write(1).unwrap());
        sets[0].wait(&mut [Event::default(); 8], Timeout::Now).unwrap();
    });
    assert_eq!(live, 0);
}
