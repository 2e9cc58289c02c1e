//! `ctl`: threads that each add, modify and remove all watches of a set of their own, again and
//! again. The rates are calls per second over all threads, for each of the three.

use std::io;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::bench::measure::joined::joined;
use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::options::count;
use crate::bench::sides::backend::{Backend, ET, IN};
use crate::failure::Failure;

const WATCHES: [usize; 5] = [64, 1_000, 10_000, 30_000, 100_000];

/// What `wakeset bench ctl` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads to measure, as in 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count,
        default_values_t = [1])]
    threads: Vec<usize>,
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn ctl(options: &Options) -> Result<(), Failure> {
    measure("ctl", &points(&options.threads), &options.compared)
}

fn points(threads: &[usize]) -> Vec<Ctl> {
    let sizes = |&threads| WATCHES.map(|watches| Ctl { threads, watches });
    threads.iter().flat_map(sizes).collect()
}

/// One number of watches, in each thread's set.
pub struct Ctl {
    threads: usize,
    watches: usize,
}

impl Point for Ctl {
    fn rows(&self) -> Vec<Params> {
        let row = |call: &str| {
            params([
                ("call", call.into()),
                ("threads", self.threads.into()),
                ("watches", self.watches.into()),
            ])
        };
        ["add", "modify", "remove"].map(row).to_vec()
    }

    fn unit(&self) -> &'static str {
        "calls/s"
    }

    fn descriptors(&self) -> usize {
        self.threads * (self.watches + 1) + 64
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let start = Barrier::new(self.threads);
        let rates = std::thread::scope(|scope| {
            let work = || {
                let prepared = self.prepare(backend);
                start.wait();
                let (set, counters) = prepared?;
                go_over(backend, &set, &counters, time)
            };
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(joined).collect::<io::Result<Vec<_>>>()
        })?;
        let total = |call: usize| rates.iter().map(|rates| rates[call]).sum();
        Ok((0..3).map(total).collect())
    }
}

impl Ctl {
    fn prepare<B: Backend>(&self, backend: &B) -> io::Result<(B::Set, Vec<B::Counter>)> {
        let set = backend.create_set()?;
        let counters = (0..self.watches).map(|_| backend.create_counter());
        Ok((set, counters.collect::<io::Result<_>>()?))
    }
}

/// Adds, modifies and removes all, until the time is over; the calls per second of each.
fn go_over<B: Backend>(
    backend: &B,
    set: &B::Set,
    counters: &[B::Counter],
    time: Duration,
) -> io::Result<[f64; 3]> {
    let mut spent = [Duration::ZERO; 3];
    let mut passes = 0;
    let begin = Instant::now();
    while passes == 0 || begin.elapsed() < time {
        let first = Instant::now();
        for (data, counter) in counters.iter().enumerate() {
            backend.add(set, counter, IN, data as u64)?;
        }
        let second = Instant::now();
        for (data, counter) in counters.iter().enumerate() {
            backend.modify(set, counter, IN | ET, data as u64)?;
        }
        let third = Instant::now();
        for counter in counters {
            backend.remove(set, counter)?;
        }
        spent[0] += second - first;
        spent[1] += third - second;
        spent[2] += third.elapsed();
        passes += 1;
    }
    let calls = (passes * counters.len()) as f64;
    Ok(spent.map(|spent| calls / spent.as_secs_f64()))
}
