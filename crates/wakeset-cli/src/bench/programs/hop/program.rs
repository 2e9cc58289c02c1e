//! The program that `bench hop` measures: `wakeset __hop …`. It uses nothing but libc, so that it
//! is the same plain and under the interposer.

use std::io;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::pair::{Means, Pair};
use crate::bench::programs::child::checked;
use crate::failure::Failure;

/// What `wakeset __hop` takes.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    means: Means,
    /// For how long
    seconds: f64,
}

/// The command line for that.
pub fn arguments(means: Means, seconds: f64) -> Vec<String> {
    let name = means.to_possible_value().map_or(String::new(), |value| value.get_name().into());
    vec!["__hop".into(), name, seconds.to_string()]
}

/// What a run came to. Every program of `bench hop` prints one, of the last four fifths of its
/// time.
#[derive(Serialize, Deserialize)]
pub struct Sample {
    pub trips: u64,
    pub seconds: f64,
    /// Processor time of all threads, user and system.
    pub processor_seconds: f64,
    /// Context switches of all threads, voluntary or not.
    pub switches: u64,
}

impl Sample {
    pub fn microseconds(&self) -> f64 {
        self.seconds * 1e6 / self.trips as f64
    }

    pub fn processor_microseconds(&self) -> f64 {
        self.processor_seconds * 1e6 / self.trips as f64
    }

    pub fn switches_per_trip(&self) -> f64 {
        self.switches as f64 / self.trips as f64
    }
}

/// Runs it and prints a [`Sample`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let sample = Pair::new(options.means)
        .and_then(|pair| pair.run(|pair| measure(pair, options.seconds)))
        .map_err(|e| Failure::own(format!("round trips: {e}")))?;
    println!("{}", serde_json::to_string(&sample).unwrap_or_default());
    Ok(())
}

fn measure(pair: &Pair, seconds: f64) -> io::Result<Sample> {
    let time = Duration::from_secs_f64(seconds);
    pair.go_on(time / 5)?;
    let ((processor_before, switches_before), begin) = (used()?, Instant::now());
    let trips = pair.go_on(time * 4 / 5)?;
    let (seconds, (processor, switches)) = (begin.elapsed().as_secs_f64(), used()?);
    Ok(Sample {
        trips,
        seconds,
        processor_seconds: processor - processor_before,
        switches: switches - switches_before,
    })
}

/// Seconds of processor time and context switches of this process so far.
fn used() -> io::Result<(f64, u64)> {
    // SAFETY: a structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    checked(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }.into())?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let switches = usage.ru_nvcsw + usage.ru_nivcsw;
    Ok((seconds(usage.ru_utime) + seconds(usage.ru_stime), switches as u64))
}
