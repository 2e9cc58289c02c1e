//! `timer`: one thread with timers in a set, of which it keeps so many set to times from a second
//! to a quarter of an hour ahead.
//!
//! | rate | an operation |
//! |---|---|
//! | `fire` | set one to one nanosecond from now, wait, read it, set it to a far time again |
//! | `arm` | set one to another far time; after each 64, a wait without a timeout |
//!
//! Which one, and to which time, is random, so that the order in which they are due changes all the
//! time.

use std::io;
use std::time::{Duration, Instant};

use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::sides::backend::{Backend, IN, LOST, lost};
use crate::failure::Failure;

/// Timers in the set, and far times among them.
const COUNTS: [usize; 5] = [1, 1_000, 10_000, 100_000, 1_000_000];
/// Operations between two readings of the clock.
const STRETCH: u32 = 64;

/// What `wakeset bench timer` takes.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn timer(options: &Options) -> Result<(), Failure> {
    measure("timer", &points(), &options.compared)
}

fn points() -> Vec<Timers> {
    COUNTS.into_iter().map(|timers| Timers { timers }).collect()
}

/// One number of timers.
pub struct Timers {
    timers: usize,
}

impl Point for Timers {
    fn rows(&self) -> Vec<Params> {
        ["fire", "arm"]
            .map(|operation| {
                params([("timers", self.timers.into()), ("operation", operation.into())])
            })
            .to_vec()
    }

    fn unit(&self) -> &'static str {
        "operations/s"
    }

    fn descriptors(&self) -> usize {
        self.timers + 64
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let set = backend.create_set()?;
        // The same numbers for both sides.
        let mut random = fastrand::Rng::with_seed(1);
        let mut timers = Vec::with_capacity(self.timers);
        for i in 0..self.timers {
            let timer = backend.create_timer()?;
            backend.set_timer(&timer, far(&mut random))?;
            backend.add_timer(&set, &timer, IN, i as u64)?;
            timers.push(timer);
        }
        let mut events = [B::NO_EVENT; 8];
        let half = time / 2;
        let fire = rate(half, || {
            let which = random.usize(..timers.len());
            let timer = &timers[which];
            backend.set_timer(timer, Duration::from_nanos(1))?;
            if backend.wait(&set, &mut events, LOST)? == 0 {
                return Err(lost("an expiration was lost"));
            }
            // Meanwhile another timer may have expired, a second after it was set.
            for event in &events[..1] {
                let timer = &timers[B::data(event) as usize];
                backend.read_timer(timer)?;
                backend.set_timer(timer, far(&mut random))?;
            }
            Ok(())
        })?;
        let mut armed = 0;
        let arm = rate(half, || {
            backend.set_timer(&timers[random.usize(..timers.len())], far(&mut random))?;
            armed += 1;
            if armed % STRETCH == 0 {
                for event in 0..backend.wait(&set, &mut events, Duration::ZERO)? {
                    backend
                        .set_timer(&timers[B::data(&events[event]) as usize], far(&mut random))?;
                }
            }
            Ok(())
        })?;
        Ok(vec![fire, arm])
    }
}

/// How often a second `operation` can be done.
fn rate(time: Duration, mut operation: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let begin = Instant::now();
    let mut done = 0_u64;
    while begin.elapsed() < time {
        for _ in 0..STRETCH {
            operation()?;
        }
        done += u64::from(STRETCH);
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// A time far ahead, from a second to a quarter of an hour.
fn far(random: &mut fastrand::Rng) -> Duration {
    Duration::from_millis(random.u64(1_000..901_000))
}
