//! `batch`: many watches added and removed in one call, against a loop of epoll_ctl(2) on the
//! kernel's set. Commands per second.
//!
//! | of | set and descriptors of the Wakeset side | call |
//! |---|---|---|
//! | kernel | a set by number that watches the kernel's eventfds | `wakeset_fd::epoll_ctl_batch`, through io_uring if there are enough |
//! | in-process | the same with in-process eventfds | the same |
//! | mixed | the same, each second descriptor of either kind | the same |
//! | rust | the engine's set and counters | `EventPoll::apply` |
//!
//! `singly` in the rows is the same side's rate where each command is a call of its own. The sides
//! alternate after each pass, which takes some milliseconds, and a round's rate is the median of
//! its passes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL};
use wakeset::{
    Change, Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, OnError,
};
use wakeset_fd::{Command, epoll_ctl_batch};

use crate::bench::measure::point::{Params, params};
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::{Report, Row, label};
use crate::bench::measure::spread::Spread;
use crate::bench::options::Timed;
use crate::bench::sides::backend::{Backend, IN};
use crate::bench::sides::kernel::{Kernel, raise_descriptor_limit};
use crate::failure::Failure;

/// Commands in a batch.
const SIZES: [usize; 3] = [64, 512, 4096];
/// Passes of a round at least.
const PASSES: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Of {
    Kernel,
    InProcess,
    Mixed,
    Rust,
}

impl Of {
    const ALL: [Of; 4] = [Of::Kernel, Of::InProcess, Of::Mixed, Of::Rust];

    fn name(self) -> &'static str {
        match self {
            Of::Kernel => "kernel",
            Of::InProcess => "in-process",
            Of::Mixed => "mixed",
            Of::Rust => "rust",
        }
    }
}

/// What `wakeset bench batch` takes.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    timed: Timed,
}

/// Measures, prints the table and writes the JSON.
pub fn batch(options: &Options) -> Result<(), Failure> {
    let mut report = Report::new("batch", options.timed.common.json.as_deref())?;
    let need = 3 * SIZES[SIZES.len() - 1] + 64;
    let limit = raise_descriptor_limit(need);
    if limit < need {
        return Err(Failure::own(format!(
            "bench batch needs {need} descriptors, and {limit} are allowed (ulimit -n)"
        )));
    }
    let points = || Of::ALL.into_iter().flat_map(|of| SIZES.map(|size| (of, size)));
    let rows = |of: Of, size: usize| {
        ["add", "remove"].map(|call| {
            params([("of", of.name().into()), ("call", call.into()), ("n", size.into())])
        })
    };
    report.begin(points().flat_map(|(of, size)| rows(of, size)), "commands/s");
    let progress = progress_bar(points().count() as u64);
    for (of, size) in points() {
        progress.set_message(label(&rows(of, size)[0]));
        let measured =
            measure(of, size, &options.timed).inspect_err(|_| progress.finish_and_clear());
        let measured =
            measured.map_err(|e| Failure::own(format!("batch failed at {}: {e}", of.name())))?;
        for (call, params) in rows(of, size).into_iter().enumerate() {
            progress.suspend(|| report.add(row(params, &measured, call)));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    report.finish()
}

/// Commands per second of a round: kernel's loop, batch, singly; adds and removals.
type Round = [[f64; 2]; 3];

fn row(mut params: Params, rounds: &[Round], call: usize) -> Row {
    let side = |side: usize| Spread::of(rounds.iter().map(|round| round[side][call]).collect());
    if let Some(singly) = side(2) {
        params.insert("singly".to_string(), singly.median.into());
    }
    Row::new("batch", params, "commands/s", side(0), side(1))
}

fn measure(of: Of, size: usize, options: &Timed) -> io::Result<Vec<Round>> {
    let time = options.time() / (options.common.rounds + 1);
    let kernel = Loop::new(size)?;
    let ours: Box<dyn Side> = match of {
        Of::Rust => Box::new(Rust::new(size).map_err(|e| io::Error::from_raw_os_error(e.errno()))?),
        _ => Box::new(ByNumber::new(of, size)?),
    };
    let mut rounds = Vec::new();
    // The first one warms up.
    for round in 0..=options.common.rounds {
        let begin = Instant::now();
        let mut passes: [[Vec<f64>; 2]; 3] = Default::default();
        while passes[0][0].len() < PASSES || begin.elapsed() < time {
            let sides = [kernel.pass()?, ours.batches()?, ours.singly()?];
            for (passes, taken) in passes.iter_mut().zip(sides) {
                for (passes, taken) in passes.iter_mut().zip(taken) {
                    passes.push(size as f64 / taken.as_secs_f64());
                }
            }
        }
        if round > 0 {
            let median = |rates: Vec<f64>| Spread::of(rates).map_or(0.0, |spread| spread.median);
            rounds.push(passes.map(|calls| calls.map(median)));
        }
    }
    Ok(rounds)
}

/// How long adding and removing all took.
type Pass = [Duration; 2];

/// Runs both halves of a pass, which say how many commands succeeded.
fn timed(
    n: usize,
    mut add: impl FnMut() -> usize,
    mut remove: impl FnMut() -> usize,
) -> io::Result<Pass> {
    let begin = Instant::now();
    let added = add();
    let middle = Instant::now();
    let removed = remove();
    let pass = [middle - begin, middle.elapsed()];
    if [added, removed] != [n; 2] {
        return Err(io::Error::other(format!(
            "of {n} commands {added} adds and {removed} removals succeeded"
        )));
    }
    Ok(pass)
}

/// The kernel's side.
struct Loop {
    set: OwnedFd,
    counters: Vec<OwnedFd>,
}

impl Loop {
    fn new(n: usize) -> io::Result<Self> {
        let counters = (0..n).map(|_| Kernel.create_counter());
        Ok(Loop { counters: counters.collect::<io::Result<_>>()?, set: Kernel.create_set()? })
    }

    fn pass(&self) -> io::Result<Pass> {
        let add = |(data, counter)| Kernel.add(&self.set, counter, IN, data as u64).is_ok();
        let remove = |counter| Kernel.remove(&self.set, counter).is_ok();
        timed(
            self.counters.len(),
            || self.counters.iter().enumerate().filter(|step| add(*step)).count(),
            || self.counters.iter().filter(|counter| remove(*counter)).count(),
        )
    }
}

trait Side {
    fn batches(&self) -> io::Result<Pass>;
    fn singly(&self) -> io::Result<Pass>;
}

/// A set of `wakeset-fd`.
struct ByNumber {
    set: i32,
    /// In-process eventfds; those of the kernel close themselves.
    ours: Vec<i32>,
    kernels: Vec<OwnedFd>,
    adds: Vec<Command>,
    removals: Vec<Command>,
}

impl ByNumber {
    fn new(of: Of, n: usize) -> io::Result<Self> {
        let refused = |e: wakeset_fd::Errno| io::Error::from_raw_os_error(e.into_raw());
        let set = wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC).map_err(refused)?;
        let (adds, removals) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let mut side = ByNumber { set, ours: Vec::new(), kernels: Vec::new(), adds, removals };
        for i in 0..n {
            let number = if of == Of::Kernel || of == Of::Mixed && i % 2 == 1 {
                let counter = Kernel.create_counter()?;
                let number = counter.as_raw_fd();
                side.kernels.push(counter);
                number
            } else {
                let number = wakeset_fd::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
                    .map_err(refused)?;
                side.ours.push(number);
                number
            };
            side.adds.push(Command::new(EPOLL_CTL_ADD, number, IN, i as u64));
            side.removals.push(Command::new(EPOLL_CTL_DEL, number, 0, 0));
        }
        Ok(side)
    }

    fn pass(&self, all: impl Fn(&[Command]) -> usize) -> io::Result<Pass> {
        timed(self.adds.len(), || all(&self.adds), || all(&self.removals))
    }
}

impl Side for ByNumber {
    fn batches(&self) -> io::Result<Pass> {
        // Copied in advance: a program has its commands where it made them.
        let (adds, removals) = (&mut self.adds.clone(), &mut self.removals.clone());
        let batch = |commands: &mut [Command]| epoll_ctl_batch(self.set, 0, commands).unwrap_or(0);
        timed(self.adds.len(), || batch(adds), || batch(removals))
    }

    fn singly(&self) -> io::Result<Pass> {
        // SAFETY: the event is there.
        let single = |one: &&Command| unsafe {
            wakeset_fd::epoll_ctl(self.set, one.op, one.fd, &raw const one.event).is_ok()
        };
        self.pass(|commands| commands.iter().filter(single).count())
    }
}

impl Drop for ByNumber {
    fn drop(&mut self) {
        for number in self.ours.iter().chain([&self.set]) {
            let _ = wakeset_fd::close(*number);
        }
    }
}

/// The engine.
struct Rust {
    set: EventPoll,
    counters: Vec<Description<Counter>>,
}

impl Rust {
    fn new(n: usize) -> Result<Self, wakeset::Error> {
        let engine = Engine::new().leak();
        let counter = |_| Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
        Ok(Rust { counters: (0..n).map(counter).collect(), set: EventPoll::new(&engine)? })
    }

    fn numbered(&self) -> impl Iterator<Item = (i32, &Description<Counter>)> {
        (0..).zip(&self.counters)
    }
}

impl Side for Rust {
    fn batches(&self) -> io::Result<Pass> {
        let event = Event::new(Events::IN, 0);
        let mut adds: Vec<_> =
            self.numbered().map(|(fd, counter)| Change::add(fd, counter, event)).collect();
        let mut removals: Vec<_> =
            self.numbered().map(|(fd, counter)| Change::remove(fd, counter)).collect();
        let batch = |changes: &mut [Change<'_>]| self.set.apply(changes, OnError::GoOn);
        timed(self.counters.len(), || batch(&mut adds), || batch(&mut removals))
    }

    fn singly(&self) -> io::Result<Pass> {
        let event = Event::new(Events::IN, 0);
        let add =
            |(fd, counter): (i32, &Description<Counter>)| self.set.add(fd, counter, event).is_ok();
        let remove =
            |(fd, counter): (i32, &Description<Counter>)| self.set.remove(fd, counter).is_ok();
        timed(
            self.counters.len(),
            || self.numbered().filter(|one| add(*one)).count(),
            || self.numbered().filter(|one| remove(*one)).count(),
        )
    }
}
