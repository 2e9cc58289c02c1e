//! What is printed of each side, and the row of the JSON.

use std::fmt;

use serde::Serialize;

use super::latencies::Latencies;
use super::side::{Contended, Side};
use super::stage::STUCK;
use crate::bench::measure::point::{Params, params};
use crate::format;

/// What one side came to in all rounds. Times are microseconds.
#[derive(Serialize)]
pub struct Row {
    workload: &'static str,
    params: Params,
    unit: &'static str,
    calls: u64,
    median: f64,
    p99: f64,
    p999: f64,
    worst: f64,
    late: u64,
    stuck: u64,
    #[serde(skip)]
    contended: Contended,
    #[serde(skip)]
    low: usize,
    #[serde(skip)]
    side: &'static str,
}

impl Row {
    pub fn new(contended: Contended, low: usize, side: &Side, measured: &Latencies) -> Self {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let at = |quantile| microseconds(measured.times.value_at_quantile(quantile));
        let params = params([
            ("contended", contended.to_string().into()),
            ("low", low.into()),
            ("side", side.name.into()),
        ]);
        Row {
            workload: "inversion",
            params,
            unit: "us",
            calls: measured.times.len(),
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: microseconds(measured.times.max()),
            late: measured.late,
            stuck: measured.stuck,
            contended,
            low,
            side: side.name,
        }
    }

    pub fn headings(contended: Contended) -> String {
        Self::line(
            &contended.to_string(),
            "",
            ["calls", "50%", "99%", "99.9%", "worst", "late", "stuck"].map(String::from),
        )
    }

    fn line(
        low: &str,
        side: &str,
        [calls, median, p99, p999, worst, late, stuck]: [String; 7],
    ) -> String {
        format!(
            "{low:<25}{side:<12}{calls:>8}{median:>10}{p99:>10}{p999:>10}\
             {worst:>11}{late:>7}{stuck:>7}"
        )
    }

    /// Of a stuck call only the time until the watchdog ended it is known.
    fn worst_text(&self) -> String {
        match self.stuck {
            0 => format::number(self.worst),
            _ => format!(">{}", format::number(STUCK.as_secs_f64() * 1e6)),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [self.calls, self.late, self.stuck].map(|count| count.to_string());
        let [median, p99, p999] = [self.median, self.p99, self.p999].map(format::number);
        let [calls, late, stuck] = counts;
        let cells = [calls, median, p99, p999, self.worst_text(), late, stuck];
        f.write_str(&Self::line(&low_threads(self.low), self.side, cells))
    }
}

/// Prints the worst of each side: what must not grow with the number of low-priority threads.
pub fn print_worst(contended: Contended, sides: &[Side], rows: &[Row]) {
    let mut cells = vec![vec![format!("{contended}, worst")]];
    cells[0].extend(sides.iter().map(|side| side.name.to_string()));
    for chunk in
        rows.iter().filter(|row| row.contended == contended).collect::<Vec<_>>().chunks(sides.len())
    {
        let mut line = vec![low_threads(chunk[0].low)];
        line.extend(chunk.iter().map(|row| row.worst_text()));
        cells.push(line);
    }
    print!("\n{}", format::table(cells));
}

fn low_threads(low: usize) -> String {
    match low {
        0 => "no low-priority thread".to_string(),
        1 => "1 low-priority thread".to_string(),
        n => format!("{n} low-priority threads"),
    }
}
