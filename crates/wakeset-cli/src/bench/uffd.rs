//! `uffd`: threads that serve a userfaultfd, while others touch memory that is not there.
//!
//! | side | service threads |
//! |---|---|
//! | kernel | read(2) or poll(2), as any program does it |
//! | wakeset run | the same program under `wakeset run` |
//! | pool | [`wakeset_group::fault::Pool`] |
//!
//! Each round of each side is a process of its own (`uffd/program.rs`), whose end ends its service threads. Milliseconds are from the first touch to the
//! last. *Sleeps* are the service threads' voluntary context switches per fault, which the kernel counts. *Spurious* are those that
//! ended with nothing to do: reads that found no message after a poll that promised one, or, where there are more, sleeps beyond one for
//! each message and, with Wakeset, one for each time the turn went to another thread.

pub mod program;

use std::fmt;

use serde::Serialize;

use super::child;
use super::report::{Json, Spread, machine};
use super::{Options, Order, Params, params, progress_bar};
use crate::{Failure, table};
use program::Sample;

/// Threads that touch memory, if not told otherwise.
const WORKERS: [usize; 3] = [8, 16, 32];
const HANDLERS: usize = 40;
const MEGABYTES: usize = 512;

/// How the service threads wait.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Wait {
    /// A userfaultfd without O_NONBLOCK, read
    Read,
    /// One with O_NONBLOCK, polled and read
    Poll,
}

impl Wait {
    const ALL: [Wait; 2] = [Wait::Read, Wait::Poll];

    fn name(self) -> &'static str {
        match self {
            Wait::Read => "read",
            Wait::Poll => "poll",
        }
    }
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Side {
    Kernel,
    Run,
    Pool,
}

impl Side {
    const ALL: [Side; 3] = [Side::Kernel, Side::Run, Side::Pool];

    fn name(self) -> &'static str {
        match self {
            Side::Kernel => "kernel",
            Side::Run => "wakeset run",
            Side::Pool => "pool",
        }
    }
}

/// Measures, prints the table and writes the JSON.
pub fn uffd(options: &Options) -> Result<(), Failure> {
    let group = &options.group;
    let workers = options.threads.as_deref().unwrap_or(&WORKERS);
    let handlers = group.handlers.unwrap_or(HANDLERS);
    let megabytes = group.size.unwrap_or(MEGABYTES);
    let orders = group.orders();
    let order = match *orders {
        [order] => order,
        _ => return Err(Failure::own("bench uffd takes one --order")),
    };
    program::is_permitted().map_err(|e| Failure::own(format!("bench uffd needs userfaultfd(2): {e}")))?;
    let json = Json::create(options.json.as_deref())?;
    let rounds = group.rounds();
    let progress = progress_bar((workers.len() * Wait::ALL.len()) as u64 * rounds as u64);

    println!("{}", machine());
    println!("{handlers} service threads, {megabytes} MB, order {}; medians of {rounds} rounds", order.name());
    println!("a ratio is the kernel's time by this side's\n");
    println!("{}", Row::HEADINGS);
    let mut rows = Vec::new();
    for &workers in workers {
        for wait in Wait::ALL {
            let mut samples: [Vec<Sample>; 3] = Default::default();
            for _ in 0..rounds {
                for (side, samples) in Side::ALL.into_iter().zip(&mut samples) {
                    progress.set_message(format!("{} workers={workers} {}", wait.name(), side.name()));
                    let arguments = program::arguments(side, wait, order, handlers, workers, megabytes);
                    let preload = (side == Side::Run).then_some(order);
                    let measured = child::run(&arguments, preload).inspect_err(|_| progress.finish_and_clear())?;
                    samples.push(measured);
                }
                progress.inc(1);
            }
            let kernel = median(samples[0].iter().map(|sample| sample.milliseconds));
            for (side, samples) in Side::ALL.into_iter().zip(&samples) {
                let row = Row::new(wait, workers, handlers, megabytes, order, side, samples, kernel);
                progress.suspend(|| println!("{row}"));
                rows.push(row);
            }
        }
    }
    progress.finish_and_clear();
    json.write(&rows)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values.collect()).map_or(0.0, |spread| spread.median)
}

/// One side of one point.
#[derive(Serialize)]
struct Row {
    workload: &'static str,
    params: Params,
    unit: &'static str,
    milliseconds: Option<Spread>,
    /// How many times faster than the kernel's median.
    ratio: f64,
    faults: u64,
    sleeps_per_fault: f64,
    spurious: f64,
    spurious_per_fault: f64,
    busiest: f64,
    least_busy: f64,
    #[serde(skip)]
    label: String,
    #[serde(skip)]
    side: Side,
}

impl Row {
    const HEADINGS: &str = "                      side                milliseconds   ratio  sleeps/fault  spurious/fault   busiest/least thread";

    #[allow(clippy::too_many_arguments, reason = "they are the point's coordinates")]
    fn new(
        wait: Wait,
        workers: usize,
        handlers: usize,
        megabytes: usize,
        order: Order,
        side: Side,
        samples: &[Sample],
        kernel: f64,
    ) -> Self {
        let each = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
        let milliseconds = Spread::of(samples.iter().map(|sample| sample.milliseconds).collect());
        let spurious = median(samples.iter().map(|sample| sample.spurious(side) as f64));
        let faults = samples.first().map_or(0, |sample| sample.messages);
        Row {
            workload: "uffd",
            params: params([
                ("wait", wait.name().into()),
                ("workers", workers.into()),
                ("handlers", handlers.into()),
                ("megabytes", megabytes.into()),
                ("order", order.name().into()),
                ("side", side.name().into()),
            ]),
            unit: "ms",
            ratio: kernel / milliseconds.as_ref().map_or(f64::NAN, |spread| spread.median),
            milliseconds,
            faults,
            sleeps_per_fault: each(|sample| sample.sleeps as f64 / sample.messages as f64),
            spurious,
            spurious_per_fault: spurious / faults as f64,
            busiest: each(|sample| sample.busiest as f64),
            least_busy: each(|sample| sample.least_busy as f64),
            label: format!("workers={workers},{}", wait.name()),
            side,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.milliseconds.as_ref().map_or(String::new(), Spread::to_string);
        let [ratio, sleeps, spurious] = [self.ratio, self.sleeps_per_fault, self.spurious_per_fault].map(table::number);
        let spread = format!("{} / {}", table::number(self.busiest), table::number(self.least_busy));
        let label = if self.side == Side::Kernel { &self.label } else { "" };
        let side = self.side.name();
        write!(f, "{label:<22}{side:<12}{milliseconds:>20}{ratio:>8}{sleeps:>14}{spurious:>16}{spread:>24}")
    }
}
