//! All rounds of a workload on the kernel and on Wakeset.

use std::io;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;

use super::point::{Point, Rates, Run};
use super::progress::progress_bar;
use super::report::{Report, Row, label};
use super::spread::Spread;
use crate::bench::options::Timed;
use crate::bench::sides::engine::{Engines, List};
use crate::bench::sides::kernel::{Kernel, raise_descriptor_limit};
use crate::failure::Failure;

/// The first run of each side, which is not counted, takes this part of a counted one.
pub const WARM_UP: u32 = 4;

/// The flags of a workload that runs on the kernel and on one of Wakeset's ready lists.
#[derive(clap::Args)]
pub struct Compared {
    #[command(flatten)]
    pub timed: Timed,
    /// The ready list of Wakeset's sets; the locked ones exist for this comparison alone
    #[arg(long, value_enum, default_value_t)]
    ready_list: List,
}

impl Compared {
    /// The file for the rows.
    pub fn json(&self) -> Option<&Path> {
        self.timed.common.json.as_deref()
    }
}

/// Measures a workload, prints the table and writes the JSON.
pub fn measure<P: Point>(name: &str, points: &[P], options: &Compared) -> Result<(), Failure> {
    let mut report = Report::new(name, options.json())?;
    measure_into(&mut report, name, points, options)?;
    report.finish()
}

/// Measures a workload into a report that has more to come.
pub fn measure_into<P: Point>(
    report: &mut Report,
    name: &str,
    points: &[P],
    options: &Compared,
) -> Result<(), Failure> {
    options.ready_list.check_available()?;
    let need = points.iter().map(Point::descriptors).max().unwrap_or(0);
    let limit = raise_descriptor_limit(need);
    report.begin(points.iter().flat_map(Point::rows), points.first().map_or("", Point::unit));
    let rounds = options.timed.common.rounds;
    let progress = progress_bar(points.len() as u64 * u64::from(rounds + 1));
    for point in points {
        let runner = Runner {
            point,
            engines: Engines::new(),
            list: options.ready_list,
            rounds,
            time: options.timed.time(),
            on_kernel: point.descriptors() <= limit,
            progress: &progress,
        };
        let measured = runner.measure().inspect_err(|_| progress.finish_and_clear());
        let measured = measured.map_err(|e| {
            Failure::own(format!("{name} failed at {}: {e}", label(&point.rows()[0])))
        })?;
        for row in measured.rows(name, point, options.ready_list) {
            progress.suspend(|| report.add(row));
        }
        if !runner.on_kernel {
            report.note(format!(
                "The kernel's side needs {} descriptors for {}, and {limit} are allowed \
                 (ulimit -n): not run.",
                point.descriptors(),
                label(&point.rows()[0]),
            ));
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// All rounds of one point.
struct Runner<'a, P> {
    point: &'a P,
    engines: Engines,
    list: List,
    rounds: u32,
    /// For everything together.
    time: Duration,
    on_kernel: bool,
    progress: &'a ProgressBar,
}

impl<P: Point> Runner<'_, P> {
    fn measure(&self) -> io::Result<Measured> {
        let mut sides = 1 + u32::from(self.on_kernel);
        self.progress.set_message(label(&self.point.rows()[0]));
        let (mut kernel, mut wakeset, mut bare) = (Side::new(), Side::new(), Side::new());
        let warm_up = slice(self.time, 3, self.rounds) / WARM_UP;
        if let Some(first) = self.point.run_bare(warm_up, None) {
            bare.expected = Some(first?);
            sides += 1;
        }
        if self.on_kernel {
            kernel.expected = Some(self.point.run(&Kernel, warm_up, None)?);
        }
        wakeset.expected = Some(self.run_wakeset(warm_up, None)?);
        self.progress.inc(1);
        let slice = slice(self.time, sides, self.rounds);
        for _ in 0..self.rounds {
            if self.on_kernel {
                kernel.add(self.point.run(&Kernel, slice, kernel.expected.as_ref())?);
            }
            wakeset.add(self.run_wakeset(slice, wakeset.expected.as_ref())?);
            if let Some(rates) = self.point.run_bare(slice, bare.expected.as_ref()) {
                bare.add(rates?);
            }
            self.progress.inc(1);
        }
        Ok(Measured { kernel, wakeset, bare })
    }

    fn run_wakeset(&self, time: Duration, expected: Option<&Rates>) -> io::Result<Rates> {
        self.engines.run(self.list, Run { point: self.point, time, expected })
    }
}

/// The time of one side in one round, out of the time for everything. The warm-up takes a part of
/// one more.
pub fn slice(time: Duration, sides: u32, rounds: u32) -> Duration {
    time / (sides * (rounds * WARM_UP + 1)) * WARM_UP
}

/// What one side came to in all rounds.
pub struct Side {
    rounds: Vec<Rates>,
    /// What the previous run came to.
    pub expected: Option<Rates>,
}

impl Side {
    pub fn new() -> Self {
        Side { rounds: Vec::new(), expected: None }
    }

    pub fn add(&mut self, rates: Rates) {
        self.expected = Some(rates.clone());
        self.rounds.push(rates);
    }

    pub fn spread(&self, row: usize) -> Option<Spread> {
        let rates = self.rounds.iter().filter_map(|rates| rates.get(row).copied());
        Spread::of(rates.collect())
    }
}

struct Measured {
    kernel: Side,
    wakeset: Side,
    bare: Side,
}

impl Measured {
    fn rows<P: Point>(&self, workload: &str, point: &P, list: List) -> Vec<Row> {
        let rows = point.rows().into_iter().enumerate();
        rows.map(|(i, mut params)| {
            let kernel = self.kernel.spread(i);
            let wakeset = self.wakeset.spread(i);
            if let Some(bare) = self.bare.spread(i) {
                params.insert("bare".to_string(), bare.median.into());
                if let Some(wakeset) = &wakeset {
                    let share = wakeset.median / bare.median;
                    params.insert("share_of_bare".to_string(), share.into());
                }
            }
            if let Some(list) = list.label() {
                params.insert("ready_list".to_string(), list.into());
            }
            Row::new(workload, params, point.unit(), kernel, wakeset)
        })
        .collect()
    }
}
