extern crate std;
use super::credit::{MOST_CREDIT, PART};
use super::machine::SLOW;
use super::*;
use crate::{Counter, CounterFlags, Pipe, PipeCapacity};
use core::cell::Cell;
use std::vec::Vec;

mod bounds;
mod disturbed;

/// A machine on which threads answer each other in turn.
struct Chain {
    threads: u32,
    next: Cell<u32>,
    now: Cell<u64>,
    times: Vec<Cell<u64>>,
    /// What a wait takes, in time and in processor time, apart and together (ns).
    apart: Cell<(u64, u64)>,
    together: Cell<(u64, u64)>,
    /// Whether spins find something, if they are tried.
    finds: Cell<bool>,
    processors: u32,
    joint_limit: u64,
    /// What has been done: waits, and those that spun.
    waits: Cell<u64>,
    spun: Cell<u64>,
}

impl Machine for Chain {
    fn thread(&self) -> u32 {
        1 + self.next.get()
    }

    fn now(&self) -> u64 {
        self.now.get()
    }

    fn time_of(&self, thread: u32) -> Option<u64> {
        Some(self.times.get(thread as usize - 1)?.get())
    }

    fn process_time(&self) -> Option<u64> {
        Some(self.times.iter().map(Cell::get).sum())
    }

    fn has_processors(&self) -> bool {
        self.processors > 1
    }

    fn joint_limit(&self) -> u64 {
        self.joint_limit
    }
}

impl Chain {
    fn new(apart: (u64, u64), together: (u64, u64)) -> Self {
        Self {
            threads: 3,
            next: Cell::new(0),
            now: Cell::new(1),
            times: (0..3).map(|_| Cell::new(0)).collect(),
            apart: Cell::new(apart),
            together: Cell::new(together),
            finds: Cell::new(true),
            processors: 2,
            joint_limit: 100_000,
            waits: Cell::new(0),
            spun: Cell::new(0),
        }
    }

    /// One wait of the thread whose turn it is; whether it spun.
    fn wait(&self, joint: &Joint) -> bool {
        let spins = joint.waits(Alone::Sleeps, self);
        let (elapsed, cost) = if spins { self.together.get() } else { self.apart.get() };
        if spins {
            let count = if self.finds.get() { &joint.found } else { &joint.vain };
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.now.set(self.now.get() + elapsed);
        let time = &self.times[self.next.get() as usize];
        time.set(time.get() + cost);
        self.next.set((self.next.get() + 1) % self.threads);
        self.waits.set(self.waits.get() + 1);
        self.spun.set(self.spun.get() + u64::from(spins));
        spins
    }

    /// How many of so many waits spin.
    fn run(&self, joint: &Joint, waits: u64) -> u64 {
        let before = self.spun.get();
        (0..waits).for_each(|_| _ = self.wait(joint));
        self.spun.get() - before
    }

    fn time(&self) -> u64 {
        self.process_time().unwrap()
    }
}

const LONG: u64 = 1 << 18;
/// A chain as ZeroMQ's: it takes 20 µs a wait and 15 µs of processor time, or half of that.
const PAYS: [(u64, u64); 2] = [(20_000, 15_000), (10_000, 12_000)];
const COSTS: [(u64, u64); 2] = [(20_000, 15_000), (15_000, 30_000)];

#[test]
fn what_pays_is_kept() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, 1 << 14);
    let spun = chain.run(&joint, LONG);
    assert!(spun > LONG * 15 / 16, "{spun} of {LONG}");
    assert!(spun < LONG, "it is compared again");
}

/// Their processor time is bounded, however much more spins cost, and trials become rare.
#[test]
fn what_costs_is_given_up() {
    for cost in [16_000, 30_000, 60_000] {
        let (joint, chain) = (Joint::new(), Chain::new(COSTS[0], (10_000, cost)));
        let first = chain.run(&joint, LONG);
        let (excess, plain) = (first * (cost - COSTS[0].1), chain.waits.get() * COSTS[0].1);
        assert!(first > 0, "it is tried");
        assert!(excess * PART <= plain + 2 * PART * u64::from(WAITS) * cost, "{excess} of {plain}");
        let later = chain.run(&joint, LONG);
        assert!(later <= 2 * u64::from(WAITS), "{later} after {first}");
    }
}

#[test]
fn what_is_no_faster_is_given_up() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], (PAYS[0].0, PAYS[1].1)));
    let spun = chain.run(&joint, LONG);
    assert!(spun <= 10 * u64::from(WAITS), "{spun}");
}

#[test]
fn spins_in_vain_end_early() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.finds.set(false);
    let spun = chain.run(&joint, LONG);
    assert!((1..=10 * u64::from(EARLY)).contains(&spun), "{spun}");
}

#[test]
fn another_pattern_is_tried_soon() {
    let (joint, chain) = (Joint::new(), Chain::new(COSTS[0], COSTS[1]));
    chain.run(&joint, LONG);
    chain.apart.set((50_000, 15_000));
    chain.together.set((10_000, 12_000));
    chain.run(&joint, u64::from(WAITS * (2 * CHANGED + 8)));
    assert_eq!(chain.run(&joint, 2 * u64::from(WAITS)), 2 * u64::from(WAITS), "it pays now");
}

/// And the processor time that this has cost is paid for first.
#[test]
fn a_pattern_that_always_changes_is_not_always_tried() {
    let (joint, chain) = (Joint::new(), Chain::new(COSTS[0], (10_000, 100_000)));
    for i in 0..1 << 10 {
        chain.apart.set((if i % 2 == 0 { 8_000 } else { 40_000 }, COSTS[0].1));
        chain.run(&joint, u64::from(WAITS * (CHANGED + 1)));
    }
    let excess = chain.spun.get() * (100_000 - COSTS[0].1);
    let most = chain.time() / PART + u64::from(WAITS) * 100_000;
    assert!(chain.spun.get() > 4 * u64::from(WAITS) && excess < most, "{excess} of {most}");
}

/// A phase in which spins cost more ends, and is charged.
#[test]
fn what_no_longer_pays_is_given_up() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    chain.together.set((40_000, 60_000));
    let spun = chain.run(&joint, LONG);
    // Another rate is noticed at once.
    assert!(spun <= u64::from(WAITS) * 16, "{spun}");
    assert!(joint.credit.left() < MOST_CREDIT);
}

/// Nothing spins while nothing happens.
#[test]
fn rare_waits_are_not_tried() {
    let (joint, chain) = (Joint::new(), Chain::new((2 * SLOW, 15_000), (1_000, 1_000)));
    assert_eq!(chain.run(&joint, LONG), 0);
}

#[test]
fn a_kept_spin_ends_with_the_work() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    chain.apart.set((1_000_000_000, 15_000));
    chain.together.set((1_000_000_000, 60_000));
    let spun = chain.run(&joint, LONG);
    assert!(spun <= 4, "{spun}");
}

#[test]
fn one_processor_is_not_tried() {
    let (joint, mut chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.processors = 1;
    assert_eq!(chain.run(&joint, LONG), 0);
}

/// Whose wakers run on the same processor would not spin.
#[test]
fn waits_that_cannot_spin_are_not_tried() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    for _ in 0..LONG {
        assert!(!joint.waits(Alone::OnlySleeps, &chain));
        chain.now.set(chain.now.get() + PAYS[0].0);
    }
}

/// Not with the windows that are to be kept, nor when their rate tells.
#[test]
fn a_kept_spin_in_vain_ends_early() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.run(&joint, LONG);
    while joint.windows.load(Ordering::Relaxed) != KEPT << MOST_SUCCESSES {
        chain.wait(&joint);
    }
    chain.finds.set(false);
    chain.apart.set((20_000, 15_000));
    chain.together.set((19_000, 60_000));
    let spun = chain.run(&joint, 1 << 12);
    assert!(spun <= 2 * u64::from(WAITS), "{spun}");
    // What was kept is forgotten after the second trial in vain.
    chain.run(&joint, LONG);
    assert_eq!(joint.kept.load(Ordering::Relaxed), 0);
}

/// A thread whose wakers do not wait for it takes what they have made piece by piece.
#[test]
fn one_thread_is_no_chain() {
    let (joint, mut chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    chain.threads = 1;
    assert_eq!(chain.run(&joint, LONG), 0);
}

/// Four wait for an answer each, and one gives it: apart to all four at once, together to each of
/// them. A wait takes less then, and an answer more.
#[test]
fn work_is_not_counted_in_waits() {
    let (joint, chain) = (Joint::new(), Chain::new((20_000, 15_000), (12_000, 13_000)));
    let one = |thread| {
        chain.next.set(thread);
        chain.wait(&joint)
    };
    let mut spun = 0;
    for turn in 0..LONG / 8 {
        let spins = one(0);
        spun += u64::from(spins);
        // Thread 1 stands for the four, and thread 2 for the one.
        let others = if spins { [1, 2, 1, 2] } else { [1, 1, 1, 1] };
        others.into_iter().for_each(|thread| _ = one(thread));
        if turn % 2 == 0 {
            one(2);
        }
    }
    assert!(spun < LONG / 64, "{spun}");
}

/// The one that was to say what comes next has ended, or has jumped out of it.
#[test]
fn a_window_without_an_end_ends() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    joint.window.0.store(Window(0).next(Phase::Turning).0, Ordering::Relaxed);
    chain.run(&joint, 1 << 15);
    assert!(chain.run(&joint, LONG) > LONG / 2);
}

/// One that comes later has not been judged.
#[test]
fn only_threads_that_took_part_spin() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    while joint.window().phase() != Phase::Kept {
        chain.wait(&joint);
    }
    assert!(chain.wait(&joint));
    chain.next.set(0);
    let other = Other(&chain);
    assert!(!joint.waits(Alone::Sleeps, &other));
    assert!(chain.wait(&joint));
}

/// A thread of the same machine with another number.
struct Other<'a>(&'a Chain);

impl Machine for Other<'_> {
    fn thread(&self) -> u32 {
        self.0.thread() + THREADS as u32
    }

    fn now(&self) -> u64 {
        self.0.now()
    }

    fn time_of(&self, thread: u32) -> Option<u64> {
        self.0.time_of(thread)
    }

    fn process_time(&self) -> Option<u64> {
        self.0.process_time()
    }

    fn has_processors(&self) -> bool {
        true
    }

    fn joint_limit(&self) -> u64 {
        self.0.joint_limit
    }
}

/// Each wake takes 45 µs there, and each wait as long as two of them.
#[test]
fn a_chain_on_a_machine_that_wakes_slowly_is_kept() {
    let (joint, mut chain) = (Joint::new(), Chain::new((110_000, 45_000), (20_000, 28_000)));
    chain.joint_limit = 180_000;
    chain.run(&joint, 1 << 14);
    let spun = chain.run(&joint, LONG);
    assert!(spun > LONG * 15 / 16, "{spun} of {LONG}");
}

/// Numbers from 0 to 99 in no order.
fn chance(seed: &Cell<u64>) -> u64 {
    seed.set(seed.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    (seed.get() >> 33) % 100
}

/// How many of [`LONG`] waits spin where what they take changes by chance from window to window:
/// by a quarter in processor time, and by half in time.
fn spun_by_chance(seed: u64, cost: u64) -> u64 {
    let (joint, chain) = (Joint::new(), Chain::new((0, 0), (0, 0)));
    let (seed, mut window) = (Cell::new(seed), None);
    let changed = |(elapsed, cost)| {
        (elapsed * (50 + chance(&seed)) / 100, cost * (75 + chance(&seed) / 2) / 100)
    };
    let mut spun = 0;
    for _ in 0..LONG {
        if window.replace(joint.window()) != Some(joint.window()) {
            chain.apart.set(changed((40_000, 40_000)));
            chain.together.set(changed((15_000, cost)));
        }
        spun += u64::from(chain.wait(&joint));
    }
    spun
}

#[test]
fn what_pays_is_kept_whatever_single_comparisons_say() {
    let mut spun: Vec<_> = (0..64).map(|seed| spun_by_chance(seed, 26_000)).collect();
    spun.sort_unstable();
    assert!(spun[1] > LONG * 3 / 4 && spun[32] > LONG * 7 / 8, "{spun:?}");
}

#[test]
fn what_costs_is_given_up_whatever_single_comparisons_say() {
    let spun: Vec<_> = (0..64).map(|seed| spun_by_chance(seed, 50_000)).collect();
    let all = spun.iter().sum::<u64>();
    assert!(all < 64 * LONG / 16, "{spun:?}");
}

/// The first thread wakes the second one for four items at once, or for each, and that one answers
/// each of them. A wait takes less for each, and an item more.
#[test]
fn a_bursty_waker_is_not_taken() {
    let (joint, chain) = (Joint::new(), Chain::new((40_000, 40_000), (12_000, 13_000)));
    let mut spun = 0;
    let mut is_together = false;
    for _ in 0..LONG / 2 {
        let items = if is_together { 1 } else { 4 };
        joint.signals(1);
        chain.next.set(1);
        is_together = chain.wait(&joint);
        (0..items).for_each(|_| joint.signals(2));
        chain.next.set(0);
        spun += u64::from(is_together) + u64::from(chain.wait(&joint));
    }
    assert!(spun < LONG / 64, "{spun}");
}

/// One of the threads finds its events before it waits, if the others spin. It is as awake as they
/// are, and does as much.
#[test]
fn a_thread_need_not_wait_to_work() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    let mut spun = 0;
    for _ in 0..LONG / 3 {
        for thread in 0..3 {
            chain.next.set(thread);
            joint.signals(1 + thread);
            let waits = thread != 2 || joint.window().phase() != Phase::Together;
            spun += u64::from(waits && chain.wait(&joint));
        }
    }
    assert!(spun > LONG * 7 / 8, "{spun} of {LONG}");
}

/// While the scheduler has two of the threads on one processor, these do not spin, nor in vain.
#[test]
fn spins_that_are_not_made_are_not_in_vain() {
    let (joint, chain) = (Joint::new(), Chain::new(PAYS[0], PAYS[1]));
    while joint.window().phase() != Phase::Kept {
        chain.wait(&joint);
    }
    let kept = joint.window();
    for _ in 0..WAITS - 1 {
        joint.waits(Alone::OnlySleeps, &chain);
    }
    assert_eq!(joint.window(), kept);
}

/// Writes of the process's own threads, in a window of the process's own trial: other tests may end
/// that at any moment.
#[test]
fn writes_to_eventfds_and_pipes_are_work() {
    let (counter, pipe) = (Counter::new(0, CounterFlags::NONBLOCK), Pipe::new());
    let generation = pipe.next_generation();
    pipe.unseal(generation, PipeCapacity::Pages);
    // From then on threads know their numbers.
    let _ = thread_id::process();
    let thread = thread_id::current();
    let counts = |write: &dyn Fn()| {
        (0..1_000).any(|_| {
            let window = JOINT.window().next(Phase::Apart);
            JOINT.trial.store(window.0, Ordering::Relaxed);
            JOINT.window.0.store(window.0, Ordering::Relaxed);
            let part = JOINT.part(thread);
            part.join(window, thread);
            part.begin(0);
            write();
            let counted = part.is_in(window, thread) && part.done().signals == 1;
            JOINT.window.0.store(window.next(Phase::Resting).0, Ordering::Relaxed);
            counted
        })
    };
    assert!(!counts(&|| ()));
    assert!(counts(&|| counter.write(1).unwrap()));
    assert!(counts(&|| pipe.try_write(generation, b"a").unwrap()));
}
