//! `pingpong`: round trips. In one thread a round trip is write, wait, read, without sleeping;
//! between two threads each waits for the other's write: the kernel's side sleeps in most waits,
//! and Wakeset's spins.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::measure::joined::joined;
use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::sides::backend::{Backend, IN, LOST, lost};
use crate::failure::Failure;

/// Round trips between two readings of the clock, each of which costs more than a round trip.
const STRETCH: u64 = 256;

/// What `wakeset bench pingpong` takes.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn pingpong(options: &Options) -> Result<(), Failure> {
    measure("pingpong", &points(), &options.compared)
}

fn points() -> Vec<Pingpong> {
    vec![Pingpong { threads: 1 }, Pingpong { threads: 2 }]
}

/// One thread or two.
pub struct Pingpong {
    threads: usize,
}

impl Point for Pingpong {
    fn rows(&self) -> Vec<Params> {
        vec![params([("threads", self.threads.into())])]
    }

    fn unit(&self) -> &'static str {
        "roundtrips/s"
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let rate = match self.threads {
            1 => alone(backend, time),
            _ => together(backend, time),
        };
        Ok(vec![rate?])
    }
}

/// A set with one counter in it.
struct End<B: Backend> {
    set: B::Set,
    counter: B::Counter,
}

impl<B: Backend> End<B> {
    fn new(backend: &B) -> io::Result<Self> {
        let end = End { set: backend.create_set()?, counter: backend.create_counter()? };
        backend.add(&end.set, &end.counter, IN, 0)?;
        Ok(end)
    }

    /// Waits for a write and takes it; false when none came in time.
    fn receive(&self, backend: &B) -> io::Result<bool> {
        let mut events = [B::NO_EVENT; 1];
        let n = backend.wait(&self.set, &mut events, LOST)?;
        Ok(n > 0 && backend.read(&self.counter)?.is_some())
    }
}

fn alone<B: Backend>(backend: &B, time: Duration) -> io::Result<f64> {
    let end = End::new(backend)?;
    rate(time, || {
        backend.write(&end.counter, 1)?;
        end.receive(backend)
    })
}

fn together<B: Backend>(backend: &B, time: Duration) -> io::Result<f64> {
    let (here, there) = (End::new(backend)?, End::new(backend)?);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| -> io::Result<()> {
            while there.receive(backend)? && !over.load(Ordering::Acquire) {
                backend.write(&here.counter, 1)?;
            }
            Ok(())
        });
        let rate = rate(time, || {
            backend.write(&there.counter, 1)?;
            here.receive(backend)
        });
        over.store(true, Ordering::Release);
        backend.write(&there.counter, 1)?;
        joined(answering)?;
        rate
    })
}

fn rate(time: Duration, mut round_trip: impl FnMut() -> io::Result<bool>) -> io::Result<f64> {
    let begin = Instant::now();
    let mut done = 0;
    while begin.elapsed() < time {
        for _ in 0..STRETCH {
            if !round_trip()? {
                return Err(lost("a wake-up was lost"));
            }
        }
        done += STRETCH;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}
