//! The command line of `wakeset-differ`; the library describes what it does.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;
use wakeset_differ::driver::worker::{self, Role};
use wakeset_differ::driver::{self, Extent, Pair, Setup, Summary};
use wakeset_differ::outcome;
use wakeset_differ::program::{Calls, Focus, Profile, Program};
use wakeset_differ::world::{Bug, Side};

/// Runs random programs of epoll and eventfd calls on the kernel and on Wakeset, and compares every
/// outcome
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run programs until enough operations have been compared or two sides differ
    Run(Run),
    /// Run the programs of these seeds, each alone, and print where the sides differ
    Replay {
        /// The side to compare with the kernel
        #[arg(long, default_value = "api", value_parser = side)]
        side: Side,
        /// What the programs are mostly about: anything, nested-timers or children
        #[arg(long, default_value = "anything", value_parser = focus)]
        focus: Focus,
        #[arg(required = true, value_parser = seed)]
        seeds: Vec<u64>,
    },
    /// Print the program of a seed
    Show {
        /// The side that the program is for
        #[arg(long, default_value = "api", value_parser = side)]
        side: Side,
        /// What the program is mostly about: anything, nested-timers or children
        #[arg(long, default_value = "anything", value_parser = focus)]
        focus: Focus,
        #[arg(value_parser = seed)]
        seed: u64,
    },
    /// Put each of a list of bugs into a side, and check that it is found
    Prove {
        /// The side
        #[arg(long, default_value = "api", value_parser = side)]
        side: Side,
        /// One bug instead of all
        #[arg(long, value_parser = bug)]
        bug: Option<Bug>,
        /// The first seed; random if not given
        #[arg(long, value_parser = seed)]
        seed: Option<u64>,
        /// Operations within which each bug has to be found
        #[arg(long, default_value_t = 2_000_000)]
        ops: u64,
    },
    /// Run programs on one side, for the other commands
    #[command(hide = true)]
    Worker {
        #[arg(long, value_parser = side)]
        side: Side,
        #[arg(long, default_value_t = 0)]
        first: u64,
        #[arg(long, default_value_t = 0)]
        blocks: u64,
        #[arg(long, default_value_t = worker::BLOCK)]
        len: u64,
        #[arg(long)]
        engine_programs: bool,
        #[arg(long, default_value = "anything", value_parser = focus)]
        focus: Focus,
        #[arg(long, value_parser = bug)]
        bug: Option<Bug>,
        #[arg(long, default_value_t = 1)]
        threads: u32,
        #[arg(long)]
        count: bool,
        #[arg(long)]
        given: bool,
    },
}

#[derive(clap::Args)]
struct Run {
    /// The side to compare with the kernel: api, library, interposed, engine, engine-spinlock,
    /// engine-rwlock, roads, roads-before, roads-behind, roads-beneath, roads-plain,
    /// roads-instruction, several with commas; both (api and interposed), every-road (the last
    /// six), or all (the others)
    #[arg(long, default_value = "both", value_parser = sides)]
    side: Sides,
    /// What the programs are mostly about: anything, nested-timers or children
    #[arg(long, default_value = "anything", value_parser = focus)]
    focus: Focus,
    /// Where the seeds begin; random if not given
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    /// The seed of the first program itself, as a difference in several threads is reported
    #[arg(long, value_parser = seed, conflicts_with = "seed")]
    at: Option<u64>,
    /// Threads of each worker that run programs at a time, at most 4; one for programs about
    /// children, which would have the other threads' descriptors too
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    threads: u32,
    /// Operations to compare, all sides together
    #[arg(long)]
    ops: Option<u64>,
    /// Seconds to take, all sides together
    #[arg(long)]
    secs: Option<u64>,
    /// Pairs of workers at a time
    #[arg(long, default_value_t = processors())]
    jobs: u32,
    /// How many seconds longer than twenty times what the kernel takes a block may take, before it
    /// counts as one that does not end
    #[arg(long, value_name = "SECS", default_value_t = 30)]
    slack: u64,
}

fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

#[derive(Clone)]
struct Sides(Vec<Side>);

fn side(name: &str) -> Result<Side, String> {
    match Side::of_name(name) {
        Some(side) if side.is_available() => Ok(side),
        Some(_) => Err(format!("{name} takes a build with --features bench-ready-lists")),
        None => Err(format!("there is no side {name}")),
    }
}

fn focus(name: &str) -> Result<Focus, String> {
    Focus::of_name(name).ok_or_else(|| format!("there are no programs about {name}"))
}

fn bug(name: &str) -> Result<Bug, String> {
    Bug::of_name(name).ok_or_else(|| {
        let known: Vec<_> = Bug::NAMES.iter().map(|(name, _)| *name).collect();
        format!("there is no bug {name}; there are {}", known.join(", "))
    })
}

fn sides(names: &str) -> Result<Sides, String> {
    if names == "both" {
        return Ok(Sides(vec![Side::Api, Side::Interposed]));
    }
    if names == "every-road" {
        return Ok(Sides(Side::ROADS.to_vec()));
    }
    if names == "all" {
        return Ok(Sides(
            Side::NAMES
                .iter()
                .map(|(_, side)| *side)
                .filter(|side| *side != Side::Kernel && !side.takes_roads() && side.is_available())
                .collect(),
        ));
    }
    names.split(',').map(side).collect::<Result<_, _>>().map(Sides)
}

fn seed(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.command {
        Command::Run(options) => run(&options),
        Command::Replay { side, focus, seeds } => replay(Pair::about(side, focus), &seeds),
        Command::Show { side, focus, seed } => {
            let mut program = Program::default();
            worker::program_of(seed, Pair::about(side, focus).profile, &mut program);
            println!("{program:#?}");
            Ok(true)
        }
        Command::Prove { side, bug, seed, ops } => prove(side, bug, seed, ops),
        Command::Worker {
            side,
            first,
            blocks,
            len,
            engine_programs,
            focus,
            bug,
            threads,
            count,
            given,
        } => {
            let calls = if engine_programs { Calls::Engine } else { Calls::Everything };
            let profile = Profile { calls, focus };
            let role = Role { side, profile, bug };
            if given {
                worker::run_given(role).map(|()| true)
            } else if threads > 1 {
                worker::run_threads(role, first, blocks, len, threads).map(|()| true)
            } else {
                worker::run_blocks(role, first, blocks, len, count).map(|()| true)
            }
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("wakeset-differ: {error}");
            ExitCode::from(2)
        }
    }
}

fn setup() -> std::io::Result<Setup> {
    Setup::new(std::env::current_exe()?)
}

/// Compares programs on each side; returns whether nothing differed.
fn run(options: &Run) -> std::io::Result<bool> {
    let setup = Setup { slack: Duration::from_secs(options.slack), ..setup()? };
    let seed = options.seed.unwrap_or_else(|| fastrand::Rng::new().u64(..));
    let sides = &options.side.0;
    let n = sides.len() as u64;
    let extent = Extent {
        operations: options.ops.map(|ops| ops.div_ceil(n)),
        time: match (options.ops, options.secs) {
            (None, None) => Some(Duration::from_secs(10)),
            (_, secs) => secs.map(|secs| Duration::from_secs_f64(secs as f64 / n as f64)),
        },
        jobs: options.jobs,
    };
    if options.threads > 1 && options.focus == Focus::Children {
        return Err(std::io::Error::other("children are forked by one thread of a worker"));
    }
    let mut agreed = true;
    for &side in sides {
        println!("kernel and {}: seed {seed:#x}, {} jobs", side.name(), options.jobs);
        let pair = Pair::about(side, options.focus).in_threads(options.threads);
        // Spread out, so that neither runs with neighbouring seeds nor two sides share programs.
        let spread = fastrand::Rng::with_seed(seed).u64(..).rotate_left(8 * side as u32);
        let first = options.at.unwrap_or(spread);
        let outcome = driver::run(&setup, pair, first, extent)?;
        print_summary(&outcome);
        for divergence in outcome.diverging {
            agreed = false;
            if options.threads > 1 {
                println!(
                    "in threads: wakeset-differ run --side {} --threads {} --at {:#x} --jobs 1 \
                     --ops {}",
                    side.name(),
                    options.threads,
                    divergence.start,
                    150 * (divergence.agreed + worker::BLOCK)
                );
            }
            if let Some(endless) = divergence.endless {
                println!("{} does not end", endless.name());
            }
            let found = driver::find(&setup, pair, divergence)?;
            if let (seed, 1..) = (found.seed, found.programs.len()) {
                let last = seed.wrapping_add(found.programs.len() as u64 - 1);
                println!("on the programs of the seeds {seed:#x} to {last:#x}");
            }
            report(&setup, pair, &found.programs)?;
        }
    }
    Ok(agreed)
}

fn print_summary(summary: &Summary) {
    let Summary { operations, programs, skipped, .. } = summary;
    let seconds = summary.time.as_secs_f64();
    let each = seconds * 1e9 / (*operations).max(1) as f64;
    let verdict = match summary.diverging.len() {
        0 => "no divergence".to_string(),
        n => format!("{n} blocks DIVERGE"),
    };
    println!(
        "{operations} operations of {programs} programs compared in {seconds:.1} s \
         ({each:.0} ns each), {skipped} not made; {verdict}"
    );
    summary.coverage.print();
}

/// Compares the programs of these seeds, each alone; returns whether nothing differed.
fn replay(pair: Pair, seeds: &[u64]) -> std::io::Result<bool> {
    let setup = setup()?;
    let mut agreed = true;
    for &seed in seeds {
        let mut program = Program::default();
        worker::program_of(seed, pair.profile, &mut program);
        let programs = [program];
        if driver::differs(&setup, pair, &programs)? {
            agreed = false;
            report(&setup, pair, &programs)?;
        } else {
            println!("{seed:#x}: {} operations, no divergence", programs[0].ops.len());
        }
    }
    Ok(agreed)
}

/// How long a side with a bug is waited for, beyond what it may take anyway.
const SLACK_OF_BUGS: Duration = Duration::from_secs(5);

/// Puts bugs into a side; returns whether every one is found.
fn prove(side: Side, only: Option<Bug>, seed: Option<u64>, ops: u64) -> std::io::Result<bool> {
    let seed = seed.unwrap_or_else(|| fastrand::Rng::new().u64(..));
    println!("bugs in {}: seed {seed:#x}, {ops} operations for each", side.name());
    let mut found = true;
    for (name, bug) in
        Bug::NAMES.into_iter().filter(|(_, bug)| only.is_none_or(|only| only == *bug))
    {
        let setup = Setup { bug: Some(bug), slack: SLACK_OF_BUGS, ..setup()? };
        let pair = Pair::new(bug.side_for(side));
        let first = fastrand::Rng::with_seed(seed).u64(..);
        let extent = Extent { operations: Some(ops), time: None, jobs: 1 };
        let outcome = driver::run(&setup, pair, first, extent)?;
        let seconds = outcome.time.as_secs_f64();
        match outcome.diverging.first() {
            Some(divergence) => {
                let endless = if divergence.endless.is_some() { "it does not end; " } else { "" };
                let programs = driver::find(&setup, pair, *divergence)?.programs;
                let small = driver::smallest(&setup, pair, &programs);
                let small = small.map_or("not shrunk: it depends on more".to_string(), |small| {
                    format!("shrunk to {} operations", small.ops.len())
                });
                println!("found    {name}: within {seconds:.1} s; {endless}{small}");
            }
            None => {
                found = false;
                println!("MISSED   {name}: {} operations in {seconds:.1} s", outcome.operations);
            }
        }
    }
    Ok(found)
}

/// Shrinks programs on which a pair differs, and prints what is left.
fn report(setup: &Setup, pair: Pair, programs: &[Program]) -> std::io::Result<()> {
    let Some(small) = driver::smallest(setup, pair, programs) else {
        println!("it does not differ when it is run again, in one thread");
        return Ok(());
    };
    let one = std::slice::from_ref(&small);
    let expected = setup.trace(Side::Kernel, pair.profile, one)?;
    let got = setup.trace(pair.side, pair.profile, one)?;
    let by_number = if small.by_number { " (calls by syscall(2))" } else { "" };
    println!("shrunk to {} operations{by_number}:", small.ops.len());
    match expected {
        Ok(expected) => {
            println!("{}", outcome::listing(&expected, &got, pair.side.name()));
            println!("{}", outcome::body("found_by_a_random_program", &expected));
            println!("tests/found/….json:\n{}", serde_json::to_string(&small)?);
        }
        Err(error) => println!("{small:#?}\nThe kernel's side ended: {error}"),
    }
    Ok(())
}
