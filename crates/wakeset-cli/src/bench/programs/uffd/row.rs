//! What is printed of each side, and the row of the JSON.

use std::fmt;

use serde::Serialize;

use super::program::{Point, Sample};
use super::side::Side;
use crate::bench::measure::point::{Params, params};
use crate::bench::measure::spread::Spread;
use crate::format;

/// One side of one point.
#[derive(Serialize)]
pub struct Row {
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
    pub const HEADINGS: &str = concat!(
        "                      side                milliseconds   ratio  sleeps/fault",
        "  spurious/fault   busiest/least thread",
    );

    /// `kernel` is the kernel's median.
    pub fn new(point: &Point, side: Side, samples: &[Sample], kernel: f64) -> Self {
        let each = |value: fn(&Sample) -> f64| Spread::median(samples.iter().map(value));
        let milliseconds = Spread::of(samples.iter().map(|sample| sample.milliseconds).collect());
        let spurious = Spread::median(samples.iter().map(|sample| sample.spurious(side) as f64));
        let faults = samples.first().map_or(0, |sample| sample.messages);
        Row {
            workload: "uffd",
            params: params([
                ("wait", point.wait.name().into()),
                ("workers", point.workers.into()),
                ("handlers", point.handlers.into()),
                ("megabytes", point.megabytes.into()),
                ("order", point.order.name().into()),
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
            label: point.to_string(),
            side,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.milliseconds.as_ref().map_or(String::new(), Spread::to_string);
        let [ratio, sleeps, spurious] =
            [self.ratio, self.sleeps_per_fault, self.spurious_per_fault].map(format::number);
        let spread =
            format!("{} / {}", format::number(self.busiest), format::number(self.least_busy));
        let label = if self.side == Side::Kernel { &self.label } else { "" };
        let side = self.side.name();
        write!(
            f,
            "{label:<22}{side:<12}{milliseconds:>20}{ratio:>8}{sleeps:>14}{spurious:>16}\
             {spread:>24}"
        )
    }
}
