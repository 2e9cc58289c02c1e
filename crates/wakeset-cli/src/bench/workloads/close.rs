//! `close`: a server with one connection per request. Each thread opens a counter, adds it, signals
//! it, waits, reads, and closes it without removing the watch. The rate is requests per second.
//!
//! The threads have a set each or share one, and the set may itself be watched by another: in Linux
//! every add to such a set takes a lock that all sets in the machine share.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::measure::joined::joined;
use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::options::count;
use crate::bench::sides::backend::{Backend, IN, LOST, lost};
use crate::failure::Failure;

/// Requests between two readings of the clock.
const STRETCH: u64 = 64;

/// What `wakeset bench close` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads to measure, as in 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count,
        default_values_t = [1, 2])]
    threads: Vec<usize>,
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn close(options: &Options) -> Result<(), Failure> {
    measure("close", &points(&options.threads), &options.compared)
}

fn points(threads: &[usize]) -> Vec<Close> {
    let mut points = Vec::new();
    for &threads in threads {
        for shared in [false, true] {
            if shared && threads == 1 {
                continue;
            }
            for nested in [false, true] {
                points.push(Close { threads, shared, nested });
            }
        }
    }
    points
}

/// One combination.
pub struct Close {
    threads: usize,
    shared: bool,
    nested: bool,
}

impl Point for Close {
    fn rows(&self) -> Vec<Params> {
        vec![params([
            ("threads", self.threads.into()),
            ("set", if self.shared { "shared" } else { "each" }.into()),
            ("nested", self.nested.into()),
        ])]
    }

    fn unit(&self) -> &'static str {
        "requests/s"
    }

    fn descriptors(&self) -> usize {
        3 * self.threads + 64
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let sets = if self.shared { 1 } else { self.threads };
        let length = if self.nested { 2 } else { 1 };
        let chains: Vec<_> =
            (0..sets).map(|_| backend.create_chain(length)).collect::<io::Result<_>>()?;
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for i in 0..self.threads {
                let set = &chains[i % sets][length - 1];
                let failed = &failed;
                threads.push(scope.spawn(move || {
                    serve(backend, set, i as u64, time, failed)
                        .inspect_err(|_| failed.store(true, Ordering::Relaxed))
                }));
            }
            let mut rate = 0.0;
            for thread in threads {
                rate += joined(thread)?;
            }
            Ok(vec![rate])
        })
    }
}

/// Serves requests until the time is over; how many a second.
fn serve<B: Backend>(
    backend: &B,
    set: &B::Set,
    data: u64,
    time: Duration,
    failed: &AtomicBool,
) -> io::Result<f64> {
    let begin = Instant::now();
    let mut requests = 0;
    let mut events = [B::NO_EVENT; 1];
    while begin.elapsed() < time && !failed.load(Ordering::Relaxed) {
        for _ in 0..STRETCH {
            let counter = backend.create_counter()?;
            backend.add(set, &counter, IN, data)?;
            backend.write(&counter, 1)?;
            // On a shared set the event may be of another counter; but there is one, because
            // only this thread reads the counter.
            if backend.wait(set, &mut events, LOST)? == 0 {
                return Err(lost("an event was lost"));
            }
            backend.read(&counter)?;
        }
        requests += STRETCH;
    }
    Ok(requests as f64 / begin.elapsed().as_secs_f64())
}
