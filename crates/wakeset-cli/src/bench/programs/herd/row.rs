//! What is printed of each side, and the row of the JSON.

use std::fmt;

use serde::Serialize;

use super::point::{Point, Sample};
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
    elapsed_ms: Option<Spread>,
    cpu_ms: f64,
    clients_cpu_ms: f64,
    wakes_per_connection: f64,
    accepts_per_connection: f64,
    busiest: f64,
    least_busy: f64,
    busiest_by_least: f64,
    elapsed_by_select: f64,
    elapsed_by_exclusive: f64,
    cpu_by_select: f64,
    #[serde(skip)]
    label: String,
}

impl Row {
    pub const HEADINGS: &str = concat!(
        "                      elapsed, ms  by select  by excl.  CPU, ms  by select  clients'",
        "  wakes/conn  accepts/conn         busiest/least",
    );

    /// `kernels`: what select and EPOLLEXCLUSIVE came to in the same rounds.
    pub fn new(
        point: &Point,
        side: Side,
        connections: u64,
        samples: &[Sample],
        kernels: [&[Sample]; 2],
    ) -> Self {
        let median_of =
            |values: Vec<f64>| Spread::of(values).map_or(f64::NAN, |spread| spread.median);
        let median =
            |value: &dyn Fn(&Sample) -> f64| median_of(samples.iter().map(value).collect());
        let by = |reference: &[Sample], value: fn(&Sample) -> f64| {
            median_of(
                samples
                    .iter()
                    .zip(reference)
                    .map(|(own, other)| value(own) / value(other))
                    .collect(),
            )
        };
        let [select, exclusive] = kernels;
        let connections = connections as f64;
        let elapsed = samples.iter().map(Sample::milliseconds).collect();
        let mut params = params([
            ("socket", point.socket.name().into()),
            ("workers", point.workers.into()),
            ("clients", point.clients.into()),
            ("side", side.name().into()),
        ]);
        let mut label = side.name().to_string();
        if let Some(order) = side.order {
            params.insert("order".to_string(), order.name().into());
            label += &format!(", {}", order.name());
        }
        Row {
            workload: "herd",
            params,
            unit: "ms",
            elapsed_ms: Spread::of(elapsed),
            cpu_ms: median(&|sample| sample.sum(|worker| worker.cpu_us)) / 1e3,
            clients_cpu_ms: median(&|sample| sample.clients_cpu_us as f64) / 1e3,
            wakes_per_connection: median(&|sample| sample.sum(|worker| worker.wakes)) / connections,
            accepts_per_connection: median(&|sample| sample.sum(|worker| worker.accepts))
                / connections,
            busiest: median(&|sample| sample.most() as f64),
            least_busy: median(&|sample| sample.least() as f64),
            busiest_by_least: median(&|sample| sample.most() as f64 / sample.least() as f64),
            elapsed_by_select: by(select, Sample::milliseconds),
            elapsed_by_exclusive: by(exclusive, Sample::milliseconds),
            cpu_by_select: by(select, |sample| sample.sum(|worker| worker.cpu_us)),
            label,
        }
    }

    fn elapsed(&self) -> f64 {
        self.elapsed_ms.as_ref().map_or(f64::NAN, |spread| spread.median)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratios = [self.elapsed_by_select, self.elapsed_by_exclusive, self.cpu_by_select];
        let [by_select, by_exclusive, cpu_by_select] = ratios.map(|ratio| format!("{ratio:.2}"));
        let [wakes, accepts] =
            [self.wakes_per_connection, self.accepts_per_connection].map(|n| format!("{n:.2}"));
        let [elapsed, cpu, clients, most, least] =
            [self.elapsed(), self.cpu_ms, self.clients_cpu_ms, self.busiest, self.least_busy]
                .map(format::number);
        let spread = match self.least_busy {
            0.0 => format!("{most}/{least}"),
            _ => format!("{most}/{least} = {:.2}", self.busiest_by_least),
        };
        let label = &self.label;
        write!(
            f,
            "{label:<20}{elapsed:>13}{by_select:>11}{by_exclusive:>10}{cpu:>9}\
             {cpu_by_select:>11}{clients:>10}{wakes:>12}{accepts:>14}{spread:>22}"
        )
    }
}
