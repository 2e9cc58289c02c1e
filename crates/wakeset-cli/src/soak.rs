//! `wakeset soak`: a mixed load for as long as asked, which demands exact counts and flat memory
//! all along.
//!
//! The files, upper ones first. A file imports only from those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `summary` | what is printed at the end |
//! | `watch` | the demands on memory, descriptors and progress, checked every second |
//! | `threads` | what the threads do over and over, and how they end |
//! | `private`, `partner` | objects of one thread alone; calls that block |
//! | `load` | channels that all threads share |
//! | `counts`, `usage`, `calls` | what was done, what the process uses, what answers the calls |

mod calls;
mod counts;
mod load;
mod partner;
mod private;
mod summary;
mod threads;
mod usage;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wakeset_fd::stats::Page;

use crate::failure::Failure;
use crate::run::is_preloaded;
use calls::Calls;
use load::Load;
use summary::Summary;
use threads::Threads;
use usage::Usage;
use watch::Watch;

/// What `wakeset soak` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 if a unit was lost or read twice, a report was wrong or missing, a thread slept
while something was ready, or memory or descriptors grew; the summary says which. 125 if it could
not run.

Environment: no variable is read.

Examples:
  wakeset soak --secs 60 --threads 8")]
pub struct Options {
    /// For how long
    #[arg(
        long,
        value_name = "N",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(2..)
    )]
    secs: u64,
    /// Threads that put on load; three servers, and a blocking partner of each thread, come on top
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    threads: u16,
    /// What answers the calls; by default libc under `wakeset run`, which is the preload library
    /// there, and otherwise the library
    #[arg(long, value_enum)]
    through: Option<Through>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Through {
    /// Wakeset by descriptor number, called directly
    Library,
    /// The C library: Wakeset under `wakeset run`, the kernel without it
    Libc,
}

/// A warm-up takes this part of the time, and no more than [`LONGEST_WARM_UP`].
const WARM_UP: u64 = 3;
const LONGEST_WARM_UP: Duration = Duration::from_secs(20);
/// Counts what the library does, when it is called directly.
static PAGE: Page = Page::zeroed();

/// What answers the calls, and its name for people.
fn choose_calls(options: &Options) -> Result<(Calls, &'static str), Failure> {
    let calls = match options.through {
        Some(Through::Library) if is_preloaded() => {
            return Err(Failure::own(
                "under `wakeset run` the preload library has the descriptors: --through libc",
            ));
        }
        Some(Through::Library) => Calls::Library,
        Some(Through::Libc) => Calls::Libc,
        None if is_preloaded() => Calls::Libc,
        None => Calls::Library,
    };
    let name = match (calls, is_preloaded()) {
        (Calls::Library, _) => "the library",
        (Calls::Libc, true) => "the preload library",
        (Calls::Libc, false) => "the kernel",
    };
    Ok((calls, name))
}

/// Runs the load. Returns the exit status.
pub fn soak(options: &Options) -> Result<i32, Failure> {
    let (calls, through) = choose_calls(options)?;
    if calls == Calls::Library {
        PAGE.start(std::process::id(), b"soak");
        wakeset_fd::count::set_page(Some(&PAGE));
    }
    let threads = usize::from(options.threads);
    let (time, begin) = (Duration::from_secs(options.secs), Instant::now());
    let before = Usage::now()?;
    let failed = |error| Failure::own(format!("cannot set up the load: {error}"));
    let load = Arc::new(Load::new(calls).map_err(failed)?);
    let shared = Usage::now()?.descriptors;
    let running = Threads::start(&load, threads);

    let mut watch = Watch::new(&load, threads, shared, before);
    watch_over(&load, &mut watch, time)?;
    load.end();
    // Before the threads end: their stacks would make up for what has grown.
    watch.sample(true)?;
    let grown = watch.check_memory();
    running.finish().map_err(|error| Failure::own(format!("cannot end the load: {error}")))?;
    let after = Usage::now()?;
    // Threads that hang keep what they use.
    if load.failure().is_none() && after.descriptors != before.descriptors {
        let (before, after) = (before.descriptors, after.descriptors);
        load.fail(format!("{before} descriptors before and {after} after"));
    }
    let summary = Summary {
        load: &load,
        watch: &watch,
        through,
        threads,
        elapsed: begin.elapsed(),
        before,
        after,
        grown,
        open: (calls == Calls::Library).then(|| PAGE.summary().open()),
    };
    match options.json {
        true => summary.print_json(),
        false => summary.print_table(),
    }
    Ok(i32::from(load.failure().is_some()))
}

/// How long waits spin (µs), in turn: as long as it pays, not at all, and long.
const SPINS: [Option<u32>; 3] = [None, Some(0), Some(200)];

/// Samples every second until the time is over or something is wrong, and prints a line now and
/// then. Each second waits spin differently; under `wakeset run` that says how they do.
fn watch_over(load: &Load, watch: &mut Watch<'_>, time: Duration) -> Result<(), Failure> {
    let warm_up = (time / WARM_UP as u32).min(LONGEST_WARM_UP);
    let begin = Instant::now();
    let mut next_line = begin;
    for spin in SPINS.into_iter().cycle() {
        if begin.elapsed() >= time || load.failure().is_some() {
            break;
        }
        wakeset::set_spin_limit(spin);
        std::thread::sleep(Duration::from_secs(1).min(time.saturating_sub(begin.elapsed())));
        watch.sample(begin.elapsed() >= warm_up)?;
        if Instant::now() >= next_line {
            next_line += (time / 6).clamp(Duration::from_secs(1), Duration::from_secs(10));
            eprintln!("{:>6.0} s  {}", begin.elapsed().as_secs_f64(), watch.line());
        }
    }
    Ok(())
}
