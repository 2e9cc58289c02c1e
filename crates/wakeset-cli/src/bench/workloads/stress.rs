//! `stress`: N producers each add to a counter of their own, one consumer waits and drains until
//! all is counted. The rate is events per millisecond.
//!
//! Each producer adds 1,000,000 times, or as often as fits into the time. Beside the two backends
//! runs the bare minimum: the same threads on plain atomic words, which the consumer sweeps.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::options::count;
use crate::bench::sides::backend::{Backend, IN, LOST, lost};
use crate::failure::Failure;

const MOST_ADDS: f64 = 1e6;
const FEWEST_ADDS: f64 = 1e3;
/// Events the consumer takes at once.
const BATCH: usize = 128;

/// What `wakeset bench stress` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of producers to measure, as in 8,32
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count,
        default_values_t = [8, 16, 32, 64, 128])]
    threads: Vec<usize>,
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn stress(options: &Options) -> Result<(), Failure> {
    measure("stress", &points(&options.threads), &options.compared)
}

pub fn points(threads: &[usize]) -> Vec<Stress> {
    threads.iter().map(|&producers| Stress { producers }).collect()
}

/// One number of producers.
pub struct Stress {
    producers: usize,
}

impl Point for Stress {
    fn rows(&self) -> Vec<Params> {
        vec![params([("producers", self.producers.into())])]
    }

    fn unit(&self) -> &'static str {
        "events/ms"
    }

    fn descriptors(&self) -> usize {
        self.producers + 64
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let set = backend.create_set()?;
        let mut counters = Vec::with_capacity(self.producers);
        for i in 0..self.producers {
            let counter = backend.create_counter()?;
            backend.add(&set, &counter, IN, i as u64)?;
            counters.push(counter);
        }
        let mut events = [B::NO_EVENT; BATCH];
        self.race(
            self.adds(time, expected),
            |i| backend.write(&counters[i], 1),
            |all_done| {
                let timeout = if all_done { Duration::ZERO } else { LOST };
                let n = backend.wait(&set, &mut events, timeout)?;
                let mut drained = 0;
                for event in &events[..n] {
                    let counter = &counters[B::data(event) as usize];
                    drained += backend.read(counter)?.unwrap_or(0);
                }
                Ok(drained)
            },
        )
    }

    fn run_bare(&self, time: Duration, expected: Option<&Rates>) -> Option<io::Result<Rates>> {
        let words: Vec<Word> = (0..self.producers).map(|_| Word(AtomicU64::new(0))).collect();
        Some(self.race(
            self.adds(time, expected),
            |i| {
                words[i].0.fetch_add(1, Ordering::AcqRel);
                Ok(())
            },
            |_| {
                let sweep = words.iter().map(|word| word.0.swap(0, Ordering::AcqRel));
                let drained = sweep.sum();
                if drained == 0 {
                    std::thread::yield_now();
                }
                Ok(drained)
            },
        ))
    }
}

/// An atomic with a cache line (and its neighbour, which is fetched with it) to itself.
#[repr(align(128))]
struct Word(AtomicU64);

impl Stress {
    fn adds(&self, time: Duration, expected: Option<&Rates>) -> u64 {
        let rate = expected.and_then(|rates| rates.first().copied()).unwrap_or(0.0);
        let fitting = rate * time.as_secs_f64() * 1e3 / self.producers as f64;
        fitting.clamp(FEWEST_ADDS, MOST_ADDS) as u64
    }

    /// The race itself. `drain` returns what it found, after some time of nothing too; it is told
    /// when the last producer was done before the call: then it has nothing to wait for.
    fn race(
        &self,
        adds: u64,
        add: impl Fn(usize) -> io::Result<()> + Sync,
        mut drain: impl FnMut(bool) -> io::Result<u64>,
    ) -> io::Result<Rates> {
        let all = self.producers as u64 * adds;
        let start = Barrier::new(self.producers + 1);
        let running = AtomicUsize::new(self.producers);
        let given_up = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let produce = |i| {
                start.wait();
                let begin = Instant::now();
                let result = (0..adds).try_for_each(|_| match given_up.load(Ordering::Relaxed) {
                    false => add(i),
                    true => Err(io::ErrorKind::Interrupted.into()),
                });
                running.fetch_sub(1, Ordering::Release);
                result.map(|()| begin)
            };
            let threads: Vec<_> =
                (0..self.producers).map(|i| scope.spawn(move || produce(i))).collect();
            start.wait();
            let mut counted = 0;
            let consumed = loop {
                let all_done = running.load(Ordering::Acquire) == 0;
                match drain(all_done) {
                    Ok(0) if all_done => {
                        break Err(lost(&format!("{} of {all} adds were lost", all - counted)));
                    }
                    Ok(drained) => counted += drained,
                    Err(e) => break Err(e),
                }
                if counted >= all {
                    break Ok(());
                }
            };
            let end = Instant::now();
            given_up.store(consumed.is_err(), Ordering::Relaxed);
            let mut begin = end;
            for thread in threads {
                match thread.join() {
                    Ok(Ok(first)) => begin = begin.min(first),
                    Ok(Err(e)) if consumed.is_ok() => return Err(e),
                    Ok(Err(_)) => {}
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            consumed?;
            Ok(vec![all as f64 / (end - begin).as_secs_f64() / 1e3])
        })
    }
}
