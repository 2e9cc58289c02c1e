//! `make`: what it costs to make objects that nobody uses, and to close them. Each round of each
//! side is a process of its own, plain or under `wakeset run`, which knows nothing of Wakeset.

pub mod program;

use super::child;
use crate::bench::measure::point::params;
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::{Report, Row};
use crate::bench::measure::spread::Spread;
use crate::bench::options::{Order, Timed};
use crate::failure::Failure;
use program::Kind;

/// What `wakeset bench make` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Kinds of objects, with commas between
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::ALL)]
    kind: Vec<Kind>,
    #[command(flatten)]
    timed: Timed,
}

/// How many objects are made before the first of them is closed.
const AT_A_TIME: [usize; 2] = [1, 100];

/// Measures, prints the table and writes the JSON.
pub fn make(options: &Options) -> Result<(), Failure> {
    let points: Vec<_> =
        options.kind.iter().flat_map(|kind| AT_A_TIME.map(|open| (*kind, open))).collect();
    let params =
        |(kind, open): (Kind, usize)| params([("kind", kind.name().into()), ("open", open.into())]);
    let mut report = Report::new("make", options.timed.common.json.as_deref())?;
    report.begin(points.iter().copied().map(params), "objects/s");
    let rounds = options.timed.common.rounds;
    let progress = progress_bar(points.len() as u64 * u64::from(rounds));
    let seconds = options.timed.secs / f64::from(2 * rounds);
    for point in points {
        let mut sides = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            // Each goes first in every other round.
            let mut order = [(0, None), (1, Some(Order::Fifo))];
            order.rotate_left(round as usize % 2);
            for (side, preload) in order {
                let rate = child::run(&program::arguments(point.0, point.1, seconds), preload);
                sides[side].push(rate.inspect_err(|_| progress.finish_and_clear())?);
            }
            progress.inc(1);
        }
        let [kernel, wakeset] = sides.map(Spread::of);
        let row = Row::new("make", params(point), "objects/s", kernel, wakeset);
        progress.suspend(|| report.add(row));
    }
    progress.finish_and_clear();
    report.finish()
}
