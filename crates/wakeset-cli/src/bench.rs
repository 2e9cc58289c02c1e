//! `wakeset bench`: the same workloads on the kernel's epoll and on the engine.
//!
//! A workload is written once, over [`Backend`]. Each of its points is measured in rounds, kernel
//! and Wakeset in turn, so that whatever else the machine does meanwhile meets both alike.

mod backend;
mod batch;
mod child;
mod close;
mod ctl;
mod engine;
pub mod herd;
mod inversion;
mod kernel;
mod nest;
mod pingpong;
mod policies;
mod realtime;
mod report;
mod ring;
pub mod selfpipe;
mod stress;
mod timer;
pub mod uffd;
mod wait;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};
use wakeset::{LockFree, ReadyList, RwLock, SpinLock};

use crate::Failure;
use crate::run::is_preloaded;
use backend::Backend;
use engine::Wakeset;
use report::{Report, Row, Spread};

/// What `wakeset bench` takes.
#[derive(clap::Args)]
pub struct Options {
    /// What to measure
    #[arg(value_enum)]
    name: Name,
    /// Thread counts to measure, as in 8,16,32; each workload has its own when this is missing
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = thread_count)]
    threads: Option<Vec<usize>>,
    /// Seconds for each point, both sides and all rounds together
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = seconds)]
    secs: f64,
    /// The ready list of Wakeset's sets, lock-free if missing; the locked ones exist for this comparison alone
    #[arg(long, value_enum)]
    ready_list: Option<List>,
    /// `inversion`: whose latency to measure, as in kernel,lock-free; everybody's when this is missing
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    policy: Option<Vec<inversion::Policy>>,
    #[command(flatten)]
    group: GroupOptions,
    /// Also write the rows to FILE, as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Name {
    /// N producers each add to their own counter, one consumer drains them all
    Stress,
    /// Write, wait, read: in one thread, and between two that sleep in turn
    Pingpong,
    /// Threads that wait, over one set or one each, by mode and nesting
    Wait,
    /// Add, modify and remove, from 64 to 100,000 watches
    Ctl,
    /// Add and remove from 64 to 4,096 watches in one call, against a loop of epoll_ctl(2)
    Batch,
    /// Add sets to sets, in threads with trees of their own
    Nest,
    /// Open, add, signal, wait, and close without removing
    Close,
    /// Set, wait and read timers, from 1 to 1,000,000 of them
    Timer,
    /// Events taken from a set's ring and read, against epoll_wait and read; `--threads` says how many take
    Ring,
    /// All ready lists side by side: `stress`, and `wait` with one set that is waited on in turn
    Policies,
    /// How long a real-time thread waits for low-priority threads; `--threads` says how many of those
    Inversion,
    /// Worker processes that share a listener; `--threads` says how many workers
    Herd,
    /// An event loop that is woken through a pipe or socket pair of its own, asyncio's too
    Selfpipe,
    /// Threads that serve a userfaultfd; `--threads` says how many touch memory
    Uffd,
}

/// What `herd` and `uffd` take.
#[derive(clap::Args)]
struct GroupOptions {
    /// `herd`, `uffd`: whom an event wakes, as in fifo,lifo
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    order: Option<Vec<Order>>,
    /// `herd`, `uffd`: how often each side is measured
    #[arg(long, value_name = "N", value_parser = thread_count)]
    rounds: Option<usize>,
    /// `herd`: connections in each round of each side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    connections: Option<u64>,
    /// `herd`: client threads, as in 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = thread_count)]
    clients: Option<Vec<usize>>,
    /// `herd`: sockets to measure, as in tcp,unix
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    socket: Option<Vec<herd::Socket>>,
    /// `uffd`: service threads
    #[arg(long, value_name = "N", value_parser = thread_count)]
    handlers: Option<usize>,
    /// `uffd`: megabytes to touch
    #[arg(long, value_name = "MB", value_parser = thread_count)]
    size: Option<usize>,
}

impl GroupOptions {
    fn orders(&self) -> &[Order] {
        self.order.as_deref().unwrap_or(&[Order::Fifo])
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(ROUNDS as usize)
    }

    /// An option that this benchmark does not know.
    fn stranger(&self, name: Name) -> Option<&'static str> {
        let (herd, uffd) = (name == Name::Herd, name == Name::Uffd);
        let options = [
            ("--order", self.order.is_some(), herd || uffd),
            ("--rounds", self.rounds.is_some(), herd || uffd),
            ("--connections", self.connections.is_some(), herd),
            ("--clients", self.clients.is_some(), herd),
            ("--socket", self.socket.is_some(), herd),
            ("--handlers", self.handlers.is_some(), uffd),
            ("--size", self.size.is_some(), uffd),
        ];
        options.into_iter().find(|(_, given, known)| *given && !known).map(|(option, ..)| option)
    }
}

/// Whom an event wakes.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Order {
    /// Who has been idle longest
    Fifo,
    /// The same one 32 times, then who has been idle longest
    Turns,
    /// Who has been idle shortest
    Lifo,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Turns => "turns",
            Order::Lifo => "lifo",
        }
    }
}

impl From<Order> for wakeset_group::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Fifo => wakeset_group::Order::Fifo,
            Order::Turns => wakeset_group::Order::Turns,
            Order::Lifo => wakeset_group::Order::Lifo,
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum List {
    LockFree,
    Spinlock,
    Rwlock,
}

/// What a row says about the list it was measured with; nothing for the one that everybody uses.
fn list_name<R: ReadyList>() -> Option<String> {
    Some(format!("{:?}", R::POLICY).to_lowercase()).filter(|name| name != "lockfree")
}

fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err("a thread count is a number from 1 to 1024".to_string()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.01..=3600.0).contains(&n) => Ok(n),
        _ => Err("seconds are a number from 0.01 to 3600".to_string()),
    }
}

/// What describes one row: the `params` of the JSON.
type Params = Map<String, Value>;

/// What one run of a point came to: one rate for each of the point's rows, higher is better.
type Rates = Vec<f64>;

/// One point of a workload: a body that runs on either backend.
trait Point {
    /// What tells this point's rows from the workload's others.
    fn rows(&self) -> Vec<Params>;
    /// What the rates count.
    fn unit(&self) -> &'static str;
    /// Descriptors the kernel needs for this, a few spare ones included.
    fn descriptors(&self) -> usize {
        64
    }
    /// Runs once, for about `time`. `expected` is what the run before this came to on the same backend,
    /// for a workload whose amount has to be fixed beforehand.
    fn run<B: Backend>(&self, backend: &B, time: Duration, expected: Option<&Rates>) -> io::Result<Rates>;
    /// Runs once what bounds every backend from above, if there is such a thing.
    fn run_bare(&self, _time: Duration, _expected: Option<&Rates>) -> Option<io::Result<Rates>> {
        None
    }
}

/// Measurements of each side, of which the report gives the median.
const ROUNDS: u32 = 5;
/// The first run of each side, which is not counted, takes this part of a counted one.
const WARM_UP: u32 = 4;

/// Measures what the options ask for, prints it, and writes the JSON.
pub fn bench(options: &Options) -> Result<(), Failure> {
    if is_preloaded() {
        return Err(Failure::own("bench compares with the kernel's epoll: start it without `wakeset run`"));
    }
    if matches!(options.name, Name::Policies | Name::Inversion) && options.ready_list.is_some() {
        return Err(Failure::own("this benchmark measures every ready list: leave --ready-list out"));
    }
    if options.name != Name::Inversion && options.policy.is_some() {
        return Err(Failure::own("--policy is for bench inversion"));
    }
    if let Some(option) = options.group.stranger(options.name) {
        return Err(Failure::own(format!("{option} is for bench herd or bench uffd")));
    }
    if matches!(options.name, Name::Batch | Name::Herd | Name::Selfpipe | Name::Uffd) && options.ready_list.is_some() {
        return Err(Failure::own("--ready-list is not for this benchmark: leave it out"));
    }
    let threads = options.threads.as_deref();
    match options.name {
        Name::Stress => measure("stress", stress::points(threads), options),
        Name::Pingpong => measure("pingpong", pingpong::points(), options),
        Name::Wait => measure("wait", wait::points(threads), options),
        Name::Ctl => measure("ctl", ctl::points(threads), options),
        Name::Batch => batch::batch(options),
        Name::Nest => measure("nest", nest::points(threads), options),
        Name::Close => measure("close", close::points(threads), options),
        Name::Timer => measure("timer", timer::points(), options),
        Name::Ring => {
            let mut report = Report::new("ring", options.json.as_deref())?;
            measure_into(&mut report, "ring", &ring::points(threads), options)?;
            let limit = kernel::raise_descriptor_limit(ring::sockets::DESCRIPTORS);
            if limit < ring::sockets::DESCRIPTORS {
                report
                    .note(format!("The sockets need more descriptors than the {limit} allowed (ulimit -n): not run."));
            } else {
                ring::sockets::measure(&mut report, Duration::from_secs_f64(options.secs))
                    .map_err(|e| Failure::own(format!("ring failed at sockets: {e}")))?;
            }
            report.finish()
        }
        Name::Policies => policies::policies(options),
        Name::Inversion => inversion::inversion(options),
        Name::Herd => herd::herd(options),
        Name::Selfpipe => selfpipe::selfpipe(options),
        Name::Uffd => uffd::uffd(options),
    }
}

fn measure<P: Point>(name: &str, points: Vec<P>, options: &Options) -> Result<(), Failure> {
    let mut report = Report::new(name, options.json.as_deref())?;
    measure_into(&mut report, name, &points, options)?;
    report.finish()
}

fn measure_into<P: Point>(report: &mut Report, name: &str, points: &[P], options: &Options) -> Result<(), Failure> {
    match options.ready_list.unwrap_or(List::LockFree) {
        List::LockFree => measure_on::<LockFree, P>(report, name, points, options),
        List::Spinlock => measure_on::<SpinLock, P>(report, name, points, options),
        List::Rwlock => measure_on::<RwLock, P>(report, name, points, options),
    }
}

fn measure_on<R: ReadyList, P: Point>(
    report: &mut Report,
    name: &str,
    points: &[P],
    options: &Options,
) -> Result<(), Failure> {
    let need = points.iter().map(Point::descriptors).max().unwrap_or(0);
    let limit = kernel::raise_descriptor_limit(need);
    report.begin(points.iter().flat_map(Point::rows), points.first().map_or("", Point::unit));
    let progress = progress_bar(points.len() as u64 * u64::from(ROUNDS + 1));
    for point in points {
        let runner = Runner {
            point,
            engine: Wakeset::<R>::new(),
            time: Duration::from_secs_f64(options.secs),
            on_kernel: point.descriptors() <= limit,
            progress: &progress,
        };
        let measured = runner
            .measure()
            .map_err(|e| Failure::own(format!("{name} failed at {}: {e}", report::label(&point.rows()[0]))));
        let measured = measured.inspect_err(|_| progress.finish_and_clear())?;
        for mut row in measured.rows(name, point) {
            if let Some(list) = list_name::<R>() {
                row.set_param("ready_list", &list);
            }
            progress.suspend(|| report.add(row));
        }
        if !runner.on_kernel {
            report.note(format!(
                "The kernel side needs {} descriptors for {}, and {limit} are allowed \
                 (ulimit -n): not run.",
                point.descriptors(),
                report::label(&point.rows()[0]),
            ));
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// Hidden by itself where stderr is no terminal.
fn progress_bar(steps: u64) -> ProgressBar {
    let progress = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        progress.set_style(style);
    }
    progress
}

/// All rounds of one point.
struct Runner<'a, R, P> {
    point: &'a P,
    engine: Wakeset<R>,
    /// For everything together.
    time: Duration,
    on_kernel: bool,
    progress: &'a ProgressBar,
}

impl<R: ReadyList, P: Point> Runner<'_, R, P> {
    fn measure(&self) -> io::Result<Measured> {
        let mut sides = 1 + u32::from(self.on_kernel);
        self.progress.set_message(report::label(&self.point.rows()[0]));
        let (mut kernel, mut wakeset, mut bare) = (Side::new(), Side::new(), Side::new());
        // A side's time for a run; the warm-up takes its part of it.
        let slice = |sides: u32| self.time / (sides * (ROUNDS * WARM_UP + 1)) * WARM_UP;
        let warm_up = slice(3) / WARM_UP;
        if let Some(first) = self.point.run_bare(warm_up, None) {
            bare.expected = Some(first?);
            sides += 1;
        }
        if self.on_kernel {
            kernel.expected = Some(self.point.run(&kernel::Kernel, warm_up, None)?);
        }
        wakeset.expected = Some(self.point.run(&self.engine, warm_up, None)?);
        self.progress.inc(1);
        let slice = slice(sides);
        for _ in 0..ROUNDS {
            if self.on_kernel {
                let expected = kernel.expected.as_ref();
                kernel.add(self.point.run(&kernel::Kernel, slice, expected)?);
            }
            let expected = wakeset.expected.as_ref();
            wakeset.add(self.point.run(&self.engine, slice, expected)?);
            if let Some(rates) = self.point.run_bare(slice, bare.expected.as_ref()) {
                bare.add(rates?);
            }
            self.progress.inc(1);
        }
        Ok(Measured { kernel, wakeset, bare })
    }
}

/// What one side came to in all rounds.
struct Side {
    rounds: Vec<Rates>,
    expected: Option<Rates>,
}

impl Side {
    fn new() -> Self {
        Side { rounds: Vec::new(), expected: None }
    }

    fn add(&mut self, rates: Rates) {
        self.expected = Some(rates.clone());
        self.rounds.push(rates);
    }

    fn spread(&self, row: usize) -> Option<Spread> {
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
    fn rows<P: Point>(&self, workload: &str, point: &P) -> Vec<Row> {
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
            Row::new(workload, params, point.unit(), kernel, wakeset)
        })
        .collect()
    }
}

/// A point's parameters from names and values.
fn params<const N: usize>(pairs: [(&str, Value); N]) -> Params {
    let pairs = pairs.into_iter();
    pairs.map(|(name, value)| (name.to_string(), value)).collect()
}
