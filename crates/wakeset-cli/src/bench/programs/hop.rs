//! `hop`: round trips from thread to thread. Each round of each side is a process of its own,
//! which knows nothing of Wakeset.
//!
//! | side | the program runs |
//! |---|---|
//! | one core | plain, on one processor |
//! | plain | plain, where the scheduler likes |
//! | wakeset run | under `wakeset run --spin`, where the scheduler likes |
//!
//! Plain, what a round trip costs depends on where the two threads are. On one processor it is two
//! context switches. On two, each of which sleeps while the other one works, it is two
//! interrupts and two ends of an idle state as well, which is several times as much, and more so in
//! a virtual machine. The scheduler decides which, and may decide otherwise in the next round. So
//! there is a side on which it cannot, and the spread of the others shows where it did.
//!
//! The programs are pairs of threads of our own ([`pair`]) and what is installed of a few runtimes
//! ([`runtime`]). Two of the pairs, `futex` and `spin`, are what a round trip can cost at best:
//! they are measured plain only.

mod beside;
mod compile;
mod pair;
pub mod program;
mod row;
mod runtime;
mod side;

use clap::builder::PossibleValue;
use clap::{ValueEnum, value_parser};
use indicatif::ProgressBar;

use super::child;
use crate::bench::measure::machine::machine;
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::Json;
use crate::bench::options::Timed;
use crate::bench::sides::kernel::raise_descriptor_limit;
use crate::failure::Failure;
use crate::run::spin;
use beside::Beside;
use pair::Means;
use program::Sample;
use row::Row;
use runtime::{Prepared, Runtime};
use side::{Side, end_after};

/// What `wakeset bench hop` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Programs to measure, with commas between; all of them unless said otherwise
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        hide_default_value = true,
        default_values_t = Program::ALL
    )]
    program: Vec<Program>,
    /// What `wakeset run --spin` is told: auto, off or microseconds, as in auto,off,50
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = spin,
        default_value = "auto"
    )]
    spin: Vec<String>,
    /// Programs that never wait, beside each side
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=1024))]
    #[arg(default_value_t = 0)]
    beside: u32,
    #[command(flatten)]
    timed: Timed,
}

/// What makes the round trips.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Pair(Means),
    Runtime(Runtime),
}

impl Program {
    const ALL: [Program; 19] = [
        Program::Pair(Means::Epoll),
        Program::Pair(Means::EpollSocket),
        Program::Pair(Means::EpollManySockets),
        Program::Pair(Means::ReadEventfd),
        Program::Pair(Means::ReadPipe),
        Program::Pair(Means::Poll),
        Program::Pair(Means::Select),
        Program::Runtime(Runtime::Java),
        Program::Runtime(Runtime::NodeWorker),
        Program::Runtime(Runtime::NodeStat),
        Program::Runtime(Runtime::Asyncio),
        Program::Runtime(Runtime::Uvloop),
        Program::Runtime(Runtime::Asio),
        Program::Runtime(Runtime::ZeromqPair),
        Program::Runtime(Runtime::ZeromqTcp),
        Program::Runtime(Runtime::Glib),
        Program::Runtime(Runtime::Tokio),
        Program::Pair(Means::Futex),
        Program::Pair(Means::Spin),
    ];

    fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }

    fn sides(self, spins: &[String]) -> Vec<Side> {
        match self {
            // On one core each waits until the other one's time slice is over.
            Program::Pair(Means::Spin) => vec![Side::Plain],
            Program::Pair(Means::Futex) => Side::all(&[]),
            _ => Side::all(spins),
        }
    }

    /// Compiles it, where that has to be done.
    fn prepare(self) -> Result<Ready, Failure> {
        Ok(match self {
            Program::Pair(means) => Ready::Pair(means),
            Program::Runtime(runtime) => Ready::Runtime(runtime.prepare()?),
        })
    }

    /// Why it cannot be measured here.
    fn obstacle(self) -> Option<String> {
        match self {
            Program::Pair(Means::Spin) => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                (processors < 2).then(|| "it takes two processors".to_string())
            }
            Program::Pair(means) => {
                let (need, limit) =
                    (means.descriptors(), raise_descriptor_limit(means.descriptors()));
                (limit < need)
                    .then(|| format!("it takes {need} descriptors, of which {limit} are allowed"))
            }
            Program::Runtime(runtime) => {
                runtime.missing().map(|what| format!("there is no {what} here"))
            }
        }
    }
}

/// A program that can be started.
enum Ready {
    Pair(Means),
    Runtime(Prepared),
}

impl Ready {
    /// One round of one side.
    fn run(&self, name: &str, side: &Side, seconds: f64) -> Result<Sample, Failure> {
        let mut command = match self {
            Ready::Pair(means) => {
                child::command(&program::arguments(*means, seconds), side.preload())?
            }
            Ready::Runtime(prepared) => {
                let mut command = prepared.command(seconds);
                child::preload(&mut command, side.preload())?;
                command
            }
        };
        side.apply(&mut command)?;
        end_after(&mut command, longest(seconds));
        child::answer(&mut command, &format!("{name}, {}", side.name()))
    }
}

/// The seconds after which a program that is to run for `seconds` is ended: longer by far than any
/// runtime takes to start.
fn longest(seconds: f64) -> u32 {
    seconds as u32 + 60
}

impl ValueEnum for Program {
    fn value_variants<'a>() -> &'a [Self] {
        &Program::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Program::Pair(means) => means.to_possible_value(),
            Program::Runtime(runtime) => runtime.to_possible_value(),
        }
    }
}

/// Measures, prints the table and writes the JSON.
pub fn hop(options: &Options) -> Result<(), Failure> {
    let rounds = options.timed.common.rounds;
    let json = Json::create(options.timed.common.json.as_deref())?;
    let progress = progress_bar(options.program.len() as u64 * u64::from(rounds));
    println!("{}", machine());
    println!("a round trip, median (min - max) of {rounds} rounds, all sides in turn in each");
    println!("processor: microseconds of processor time, switches: context switches, for each");
    println!("a ratio is the plain program's time by this side's\n");
    if options.beside > 0 {
        println!("beside programs that never wait: {}\n", options.beside);
    }
    println!("{}", Row::HEADINGS);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for &program in &options.program {
        if let Some(obstacle) = program.obstacle() {
            notes.push(format!("{}: not run, {obstacle}.", program.name()));
            progress.inc(rounds.into());
            continue;
        }
        let sides = program.sides(&options.spin);
        let samples = run_rounds(program, &sides, options, &progress)
            .inspect_err(|_| progress.finish_and_clear())?;
        let measured = Row::of(&program.name(), &sides, options.beside, &samples);
        progress.suspend(|| measured.iter().for_each(|row| println!("{row}")));
        rows.extend(measured);
    }
    progress.finish_and_clear();
    for note in &notes {
        println!("\n{note}");
    }
    json.write(&rows)
}

/// All rounds of one program, each side in turn in each. Returns the samples of each side.
fn run_rounds(
    program: Program,
    sides: &[Side],
    options: &Options,
    progress: &ProgressBar,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let rounds = options.timed.common.rounds;
    let seconds = options.timed.secs / f64::from(rounds) / sides.len() as f64;
    let prepared = program.prepare()?;
    let mut samples: Vec<Vec<Sample>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds as usize {
        for i in (0..sides.len()).map(|i| (i + round) % sides.len()) {
            progress.set_message(format!("{} {}", program.name(), sides[i].name()));
            let beside = Beside::start(options.beside, longest(seconds))?;
            samples[i].push(prepared.run(&program.name(), &sides[i], seconds)?);
            drop(beside);
        }
        progress.inc(1);
    }
    Ok(samples)
}
