//! `policies`: the ready list with each of the locks that Linux has used for its own, without a
//! lock, and the kernel beside them. That is the trade of Linux's change from a read-write lock to
//! a spinlock (2025), with the lock-free list it did not keep.
//!
//! Two workloads, as in that change's description: `stress`, in which N producers do nothing but
//! contend for the list, and `wait` on a single queue, in which one writer and the waiters rarely
//! meet there.

use std::io;

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;

use crate::bench::measure::machine::machine;
use crate::bench::measure::point::{Params, Point, Rates, Run};
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::{Json, label};
use crate::bench::measure::rounds::{Side, WARM_UP, slice};
use crate::bench::measure::spread::Spread;
use crate::bench::options::{Timed, count};
use crate::bench::sides::engine::{Engines, List};
use crate::bench::sides::kernel::{Kernel, raise_descriptor_limit};
use crate::bench::workloads::{stress, wait};
use crate::failure::Failure;
use crate::format;

/// In the order of the columns.
const SIDES: [&str; 4] = ["kernel", "rwlock", "spinlock", "lock-free"];
const KERNEL: usize = 0;
const RWLOCK: usize = 1;
const SPINLOCK: usize = 2;
const LOCK_FREE: usize = 3;
/// The quotients of the columns to the right.
const RATIOS: [(usize, usize); 3] = [(SPINLOCK, RWLOCK), (LOCK_FREE, RWLOCK), (LOCK_FREE, KERNEL)];

/// What `wakeset bench policies` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of producers to measure, as in 8,32
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = count,
        default_values_t = [8, 16, 32, 64, 128]
    )]
    threads: Vec<usize>,
    #[command(flatten)]
    timed: Timed,
}

/// Measures both workloads, prints the table and writes the JSON.
pub fn policies(options: &Options) -> Result<(), Failure> {
    List::Rwlock.check_available()?;
    List::Spinlock.check_available()?;
    let stress = stress::points(&options.threads);
    // All processors but the writer's, as `perf bench epoll wait` has it; but at least two, because
    // one waiter alone has no contention.
    let waiters = std::thread::available_parallelism().map_or(1, usize::from).max(3) - 1;
    let wait = wait::single_queue(waiters);
    let need = stress.iter().map(Point::descriptors).chain([wait.descriptors()]).max().unwrap_or(0);
    if raise_descriptor_limit(need) < need {
        return Err(Failure::own(format!(
            "the kernel's side needs {need} descriptors (ulimit -n)"
        )));
    }
    let json = Json::create(options.timed.common.json.as_deref())?;
    let rounds = options.timed.common.rounds;
    let steps = (stress.len() as u64 + 1) * u64::from(rounds + 1);
    let mut table = Table { rows: Vec::new(), progress: progress_bar(steps) };

    println!("{}", machine());
    println!("medians of {rounds} rounds, all sides in turn in each; the spread is in the JSON\n");
    let headings = SIDES.into_iter().map(String::from).chain(RATIOS.map(ratio_name));
    print_line("", headings);
    for point in &stress {
        table.measure("stress", point, &options.timed)?;
    }
    table.measure("wait", &wait, &options.timed)?;
    table.progress.finish_and_clear();
    json.write(&table.rows)
}

/// One line of the table.
#[derive(Serialize)]
struct Row {
    workload: &'static str,
    params: Params,
    unit: &'static str,
    kernel: Option<Spread>,
    rwlock: Option<Spread>,
    spinlock: Option<Spread>,
    lock_free: Option<Spread>,
    ratios: Params,
}

fn ratio_name((over, under): (usize, usize)) -> String {
    format!("{}/{}", SIDES[over], SIDES[under])
}

fn print_line(label: &str, cells: impl Iterator<Item = String>) {
    let widths = [11; SIDES.len()].into_iter().chain([18; RATIOS.len()]);
    let cells: String = cells.zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    println!("{label:<34}{cells}");
}

struct Table {
    rows: Vec<Row>,
    progress: ProgressBar,
}

impl Table {
    /// Measures all rounds of one point and prints its line.
    fn measure<P: Point>(
        &mut self,
        workload: &'static str,
        point: &P,
        options: &Timed,
    ) -> Result<(), Failure> {
        let mut rows = point.rows();
        let params = rows.swap_remove(0);
        self.progress.set_message(format!("{workload} {}", label(&params)));
        let [kernel, rwlock, spinlock, lock_free] = rounds(point, options, &self.progress)
            .inspect_err(|_| self.progress.finish_and_clear())
            .map_err(|e| Failure::own(format!("{workload} failed at {}: {e}", label(&params))))?
            .map(|side| side.spread(0));
        let medians = [&kernel, &rwlock, &spinlock, &lock_free]
            .map(|s| s.as_ref().map_or(f64::NAN, |s| s.median));
        let ratios = RATIOS.map(|(over, under)| medians[over] / medians[under]);
        let text = match workload {
            "stress" => format!("stress, {} producers, {}", params["producers"], point.unit()),
            _ => format!("wait, {} waiters on one set, {}", params["threads"], point.unit()),
        };
        let cells = medians.map(format::short).into_iter().chain(ratios.map(format::number));
        self.progress.suspend(|| print_line(&text, cells));
        let ratios = RATIOS.map(ratio_name).into_iter().zip(ratios.map(Value::from)).collect();
        let unit = point.unit();
        self.rows.push(Row { workload, params, unit, kernel, rwlock, spinlock, lock_free, ratios });
        Ok(())
    }
}

/// One warm-up and all rounds; each side in turn in each, so that whatever else the machine does
/// meets all alike.
fn rounds<P: Point>(
    point: &P,
    options: &Timed,
    progress: &ProgressBar,
) -> io::Result<[Side; SIDES.len()]> {
    let engines = Engines::new();
    let run = |side, time, expected: Option<&Rates>| {
        let run = Run { point, time, expected };
        match side {
            KERNEL => point.run(&Kernel, time, expected),
            RWLOCK => engines.run(List::Rwlock, run),
            SPINLOCK => engines.run(List::Spinlock, run),
            _ => engines.run(List::LockFree, run),
        }
    };
    let mut sides = [(); SIDES.len()].map(|()| Side::new());
    let rounds = options.common.rounds;
    let slice = slice(options.time(), SIDES.len() as u32, rounds);
    for (i, side) in sides.iter_mut().enumerate() {
        side.expected = Some(run(i, slice / WARM_UP, None)?);
    }
    progress.inc(1);
    for _ in 0..rounds {
        for (i, side) in sides.iter_mut().enumerate() {
            let rates = run(i, slice, side.expected.as_ref())?;
            side.add(rates);
        }
        progress.inc(1);
    }
    Ok(sides)
}
