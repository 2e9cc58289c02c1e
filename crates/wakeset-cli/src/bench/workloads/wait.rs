//! `wait`: threads that wait for one event at a time and read its counter, while one thread writes
//! to all counters in turn. The rate is events per second over all threads.
//!
//! The writer leaves out a counter that has not been read since its last write: each write is an
//! event, and a writer that runs ahead gives way instead of burning the readers' time.
//!
//! The threads share one set or have one each; the watches are level-triggered, edge-triggered or
//! one-shot (armed again after each event); and the set may be in a chain of `nested` other sets:
//! then a thread waits on the outermost and goes down level by level.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bench::measure::joined::joined;
use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::options::count;
use crate::bench::sides::backend::{Backend, ET, IN, LOST, ONESHOT, lost};
use crate::failure::Failure;

/// Counters of each thread.
const COUNTERS: usize = 64;
/// How long a waiting thread sleeps until it checks whether the run is over.
const CHECK: Duration = Duration::from_millis(20);

/// Where the threads wait.
#[derive(Clone, Copy, PartialEq)]
enum Queue {
    Each,
    Shared,
}

/// How the counters are watched: a name, and the bits beside IN.
type Mode = (&'static str, u32);

const MODES: [Mode; 3] = [("level", 0), ("edge", ET), ("oneshot", ONESHOT)];

/// What `wakeset bench wait` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of waiting threads to measure, as in 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count,
        default_values_t = [1, 2])]
    threads: Vec<usize>,
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn wait(options: &Options) -> Result<(), Failure> {
    measure("wait", &points(&options.threads), &options.compared)
}

fn points(threads: &[usize]) -> Vec<Wait> {
    let mut points = Vec::new();
    for &threads in threads {
        for queue in [Queue::Each, Queue::Shared] {
            if queue == Queue::Shared && threads == 1 {
                continue;
            }
            for mode in MODES {
                points.push(Wait { threads, queue, mode, nested: 0 });
            }
        }
        for nested in 1..=3 {
            points.push(Wait { threads, queue: Queue::Each, mode: MODES[0], nested });
        }
    }
    points
}

/// One set that this many threads wait on, level-triggered: what `perf bench epoll wait` measures
/// unless told otherwise.
pub fn single_queue(threads: usize) -> Wait {
    Wait { threads, queue: Queue::Shared, mode: MODES[0], nested: 0 }
}

/// One combination.
pub struct Wait {
    threads: usize,
    queue: Queue,
    mode: Mode,
    nested: usize,
}

impl Point for Wait {
    fn rows(&self) -> Vec<Params> {
        let queue = match self.queue {
            Queue::Each => "each",
            Queue::Shared => "shared",
        };
        vec![params([
            ("threads", self.threads.into()),
            ("counters", (self.threads * COUNTERS).into()),
            ("queue", queue.into()),
            ("mode", self.mode.0.into()),
            ("nested", self.nested.into()),
        ])]
    }

    fn unit(&self) -> &'static str {
        "events/s"
    }

    fn descriptors(&self) -> usize {
        self.threads * (COUNTERS + 1 + self.nested) + 64
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let queues = match self.queue {
            Queue::Each => self.threads,
            Queue::Shared => 1,
        };
        let each = self.threads * COUNTERS / queues;
        let queues: Vec<_> = (0..queues)
            .map(|_| Watched::new(backend, each, IN | self.mode.1, self.nested))
            .collect::<io::Result<_>>()?;
        let over = AtomicBool::new(false);
        let events = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let mut threads = vec![scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if !write_round(backend, &queues)? {
                        std::thread::yield_now();
                    }
                }
                Ok(())
            })];
            let rearm = (self.mode.1 == ONESHOT).then_some(IN | ONESHOT);
            for i in 0..self.threads {
                let queue = &queues[i % queues.len()];
                let (over, events) = (&over, &events);
                threads.push(scope.spawn(move || -> io::Result<()> {
                    let mut own = 0;
                    while !over.load(Ordering::Relaxed) {
                        own += u64::from(queue.take_one(backend, rearm, CHECK)?);
                    }
                    events.fetch_add(own, Ordering::Relaxed);
                    Ok(())
                }));
            }
            let begin = Instant::now();
            // A thread that fails ends early, and then the run is over.
            while begin.elapsed() < time && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(CHECK.min(time.saturating_sub(begin.elapsed())));
            }
            over.store(true, Ordering::Relaxed);
            let elapsed = begin.elapsed();
            threads.into_iter().try_for_each(joined)?;
            for queue in &queues {
                queue.drain(backend, rearm)?;
            }
            let events = events.load(Ordering::Relaxed) as f64;
            Ok(vec![events / elapsed.as_secs_f64()])
        })
    }
}

/// Writes to every counter that has been read; whether there was one.
fn write_round<B: Backend>(backend: &B, queues: &[Watched<B>]) -> io::Result<bool> {
    let mut wrote = false;
    for slot in queues.iter().flat_map(|queue| &queue.slots) {
        if !slot.written.load(Ordering::Acquire) {
            slot.written.store(true, Ordering::Relaxed);
            backend.write(&slot.counter, 1)?;
            wrote = true;
        }
    }
    Ok(wrote)
}

/// A counter, on cache lines of its own.
#[repr(align(128))]
struct Slot<B: Backend> {
    counter: B::Counter,
    /// Written and not yet read. The writer sets it before the write, a reader clears it after
    /// the read (release, to the writer's acquire).
    written: AtomicBool,
}

/// Sets one in the other, the innermost with counters.
struct Watched<B: Backend> {
    /// From the outermost to the innermost.
    sets: Vec<B::Set>,
    slots: Vec<Slot<B>>,
}

impl<B: Backend> Watched<B> {
    fn new(backend: &B, counters: usize, bits: u32, nested: usize) -> io::Result<Self> {
        let sets = backend.create_chain(nested + 1)?;
        let mut slots = Vec::with_capacity(counters);
        for i in 0..counters {
            let counter = backend.create_counter()?;
            backend.add(&sets[nested], &counter, bits, i as u64)?;
            slots.push(Slot { counter, written: AtomicBool::new(false) });
        }
        Ok(Watched { sets, slots })
    }

    /// Waits for an event and reads its counter; whether there was something to read.
    fn take_one(&self, backend: &B, rearm: Option<u32>, mut timeout: Duration) -> io::Result<bool> {
        let mut event = [B::NO_EVENT; 1];
        for set in &self.sets {
            if backend.wait(set, &mut event, timeout)? == 0 {
                return Ok(false);
            }
            timeout = Duration::ZERO;
        }
        let data = B::data(&event[0]);
        let slot = &self.slots[data as usize];
        let found = backend.read(&slot.counter)?.is_some();
        if found {
            slot.written.store(false, Ordering::Release);
        }
        if let Some(bits) = rearm {
            backend.modify(&self.sets[self.sets.len() - 1], &slot.counter, bits, data)?;
        }
        Ok(found)
    }

    /// Takes what was written and not read when all threads have ended. Every write is owed an
    /// event.
    fn drain(&self, backend: &B, rearm: Option<u32>) -> io::Result<()> {
        let owed = |slot: &&Slot<B>| slot.written.load(Ordering::Relaxed);
        while self.slots.iter().any(|slot| owed(&slot)) {
            if !self.take_one(backend, rearm, LOST)? {
                let count = self.slots.iter().filter(owed).count();
                return Err(lost(&format!("{count} events were lost")));
            }
        }
        Ok(())
    }
}
