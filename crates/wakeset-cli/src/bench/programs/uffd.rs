//! `uffd`: threads that serve a userfaultfd, while other threads touch memory that is not there.
//!
//! | side | service threads |
//! |---|---|
//! | kernel | read(2) or poll(2), as any program does it |
//! | wakeset run | the same program under `wakeset run` |
//! | pool | [`wakeset_group::fault::Pool`] |
//!
//! Each round of each side is a process of its own (`uffd/program.rs`), whose end ends its service
//! threads. Milliseconds are from the first touch to the last. *Sleeps* are the service threads'
//! voluntary context switches per fault, which the kernel counts. *Spurious* are those that
//! ended with nothing to do: reads that found no message after a poll that promised one, or, where
//! there are more, sleeps beyond one for each message and, with Wakeset, one for each time another
//! thread became the leader.

pub mod program;
mod row;
mod side;

use indicatif::ProgressBar;

use super::child;
use crate::bench::measure::machine::machine;
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::Json;
use crate::bench::measure::spread::Spread;
use crate::bench::options::{Common, Order, count};
use crate::failure::Failure;
use program::{Point, Sample};
use row::Row;
use side::{Side, Wait};

/// What `wakeset bench uffd` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads that touch memory, as in 8,16
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = count,
        default_values_t = [8, 16, 32]
    )]
    workers: Vec<usize>,
    /// Service threads
    #[arg(long, value_name = "N", value_parser = count, default_value_t = 40)]
    handlers: usize,
    /// Megabytes to touch
    #[arg(long, value_name = "MB", value_parser = count, default_value_t = 512)]
    size: usize,
    /// Which idle service thread Wakeset wakes
    #[arg(long, value_enum, default_value_t = Order::Fifo)]
    order: Order,
    #[command(flatten)]
    common: Common,
}

/// Measures, prints the table and writes the JSON.
pub fn uffd(options: &Options) -> Result<(), Failure> {
    program::is_permitted()
        .map_err(|e| Failure::own(format!("bench uffd needs userfaultfd(2): {e}")))?;
    let Options { handlers, size: megabytes, order, .. } = *options;
    let json = Json::create(options.common.json.as_deref())?;
    let rounds = options.common.rounds;
    let points = options.workers.len() * Wait::ALL.len();
    let progress = progress_bar(points as u64 * u64::from(rounds));

    println!("{}", machine());
    println!(
        "{handlers} service threads, {megabytes} MB, order {}; medians of {rounds} rounds",
        order.name()
    );
    println!("a ratio is the kernel's time by this side's\n");
    println!("{}", Row::HEADINGS);
    let mut rows = Vec::new();
    for &workers in &options.workers {
        for wait in Wait::ALL {
            let point = Point { wait, order, handlers, workers, megabytes };
            let samples = run_rounds(&point, rounds, &progress)
                .inspect_err(|_| progress.finish_and_clear())?;
            let kernel = Spread::median(samples[0].iter().map(|sample| sample.milliseconds));
            for (side, samples) in Side::ALL.into_iter().zip(&samples) {
                let row = Row::new(&point, side, samples, kernel);
                progress.suspend(|| println!("{row}"));
                rows.push(row);
            }
        }
    }
    progress.finish_and_clear();
    json.write(&rows)
}

/// All rounds of one point, each side in turn in each. Returns the samples of each side.
fn run_rounds(
    point: &Point,
    rounds: u32,
    progress: &ProgressBar,
) -> Result<[Vec<Sample>; 3], Failure> {
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for _ in 0..rounds {
        for (side, samples) in Side::ALL.into_iter().zip(&mut samples) {
            progress.set_message(format!("{point} {}", side.name()));
            let preload = (side == Side::Run).then_some(point.order);
            samples.push(child::run(&program::arguments(side, point), preload)?);
        }
        progress.inc(1);
    }
    Ok(samples)
}
