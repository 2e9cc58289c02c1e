//! `wakeset`: runs unmodified programs on Wakeset's epoll, and measures it against the kernel's.
//!
//! The rooms, upper ones first. A room imports only from those below it; those in one row do not
//! know of each other, nor do `inspect` and `run`.
//!
//! | room | what it does |
//! |---|---|
//! | `main` | the arguments of all subcommands, and the exit status |
//! | `bench`, `soak`, `demo` | measures; demands exactness under load; shows it in half a minute |
//! | `start`, `pages` | what programs need that others start; manual and completions |
//! | `doctor` | what this machine and a program allow |
//! | `live` | what a running program counts: once, second by second, or for Prometheus |
//! | `inspect` | what processes watch and wait for, seen from outside |
//! | `run` | `wakeset run`: preloads the interposer into a program, and reports what it counted |
//! | `output` | prints a text on standard output |
//! | `format` | numbers and tables as text |
//! | `glibc` | functions of libc under versions that old glibcs have, too |
//! | `failure` | the error of every subcommand |
//!
//! `main` is the C one: Rust's own start-up code ignores SIGPIPE and opens `/dev/null` on closed
//! standard descriptors, and the program that `run` becomes would inherit both.

#![cfg_attr(not(test), no_main)]

mod bench;
mod demo;
mod doctor;
mod failure;
mod format;
#[cfg(older_glibc)]
mod glibc;
mod inspect;
mod live;
mod output;
mod pages;
mod run;
mod soak;
mod start;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use bench::programs::{herd, hop, make, selfpipe, uffd};
use demo::program as demo_program;

/// Linux's epoll in user space: run programs on it, and measure it.
#[derive(Parser)]
#[command(
    name = "wakeset",
    version,
    about,
    after_help = "\
Exit status: 2 if the arguments are wrong, 125 with `run`; else each subcommand's own.

Environment: WAKESET_DISABLE=1 turns everything off; wakeset(7) has all variables.

Examples:
  wakeset demo
  wakeset doctor -- python3 server.py
  wakeset run --stats -- python3 server.py"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an unmodified program on Wakeset; the exit status is the program's
    Run(run::Options),
    /// Measure the kernel and Wakeset in one run, alternating; without a name, list the benchmarks
    Bench(bench::Options),
    /// Put on a mixed load for as long as asked; fail if a count is not exact or memory grows
    Soak(soak::Options),
    /// Say whether this machine and a program can be served, before anything is preloaded
    Doctor(doctor::Options),
    /// Say what a process and its descendants watch and wait for, and what is wrong with it
    Inspect(inspect::Options),
    /// Print what a program under `wakeset run --share` has counted so far
    Stats(live::StatsOptions),
    /// Watch what a program under `wakeset run --share` does, second by second
    Top(live::TopOptions),
    /// Print, write or serve the counts of programs under `wakeset run --share` for Prometheus
    Metrics(live::MetricsOptions),
    /// See in half a minute what Wakeset does for an ordinary program
    #[command(after_help = "\
Exit status: 0, or 125 if it cannot be measured here.

Environment: LD_PRELOAD is kept for the demo's program, with Wakeset's library behind what it has
where it runs on Wakeset.

Examples:
  wakeset demo")]
    Demo,
    /// Print the environment that preloads Wakeset, for a shell, a container or a pod
    Env(start::EnvOptions),
    /// Print a drop-in with which systemd starts a service on Wakeset, or install it
    Systemd(start::SystemdOptions),
    /// Copy the preload library into a directory, for containers that share it
    CopyLibrary(start::CopyOptions),
    /// Write the manual pages into a folder
    Man(pages::ManOptions),
    /// Print the completions of a shell
    Completions(pages::CompletionsOptions),
    /// The demo's program: N producers, each ADDS times adding to an eventfd, one consumer
    #[command(name = "__stress", hide = true)]
    Stress {
        /// Producer threads
        producers: usize,
        /// Additions by each
        adds: u64,
    },
    /// The demo's other program: write, wait, read in one thread
    #[command(name = "__pingpong", hide = true)]
    Pingpong {
        /// Round trips
        rounds: u64,
    },
    /// The program of `bench uffd`
    #[command(name = "__uffd", hide = true)]
    Uffd(uffd::program::Options),
    /// The program of `bench selfpipe`
    #[command(name = "__selfpipe", hide = true)]
    Selfpipe(selfpipe::program::Options),
    /// The program of `bench hop`
    #[command(name = "__hop", hide = true)]
    Hop(hop::program::Options),
    /// The program of `bench make`
    #[command(name = "__make", hide = true)]
    Make(make::program::Options),
    /// A worker of `bench herd`
    #[command(name = "__herd", hide = true)]
    Herd(herd::worker::Options),
}

/// Says what is wrong with the arguments, or prints the help that they ask for. Returns the exit
/// status: `run` keeps those below 125 for the program, as env(1) and timeout(1) do.
fn refuse(error: &clap::Error, of_run: bool) -> i32 {
    let _ = error.print();
    match error.exit_code() {
        0 => 0,
        _ if of_run => failure::OWN_FAILURE,
        status => status,
    }
}

/// Parses the arguments, does what they ask and says what to exit with.
fn execute(arguments: &[OsString]) -> i32 {
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error, arguments.get(1).is_some_and(|word| word == "run")),
    };
    let result = match parsed.command {
        Command::Run(options) => run::run(options),
        Command::Bench(options) => bench::bench(&options).map(|()| 0),
        Command::Soak(options) => soak::soak(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Inspect(options) => inspect::inspect(&options),
        Command::Stats(options) => live::stats(&options),
        Command::Top(options) => live::top(&options),
        Command::Metrics(options) => live::metrics(&options),
        Command::Demo => demo::demo().map(|()| 0),
        Command::Env(options) => start::print_environment(&options).map(|()| 0),
        Command::Systemd(options) => start::systemd(&options).map(|()| 0),
        Command::CopyLibrary(options) => start::copy_library(&options).map(|()| 0),
        Command::Man(options) => {
            pages::write_man(&Arguments::command(), &options.directory).map(|()| 0)
        }
        Command::Completions(options) => {
            pages::print_completions(&Arguments::command(), options.shell).map(|()| 0)
        }
        Command::Stress { producers, adds } => demo_program::stress(producers, adds).map(|()| 0),
        Command::Pingpong { rounds } => demo_program::pingpong(rounds).map(|()| 0),
        Command::Uffd(options) => uffd::program::run(&options).map(|()| 0),
        Command::Selfpipe(options) => selfpipe::program::run(&options).map(|()| 0),
        Command::Hop(options) => hop::program::run(&options).map(|()| 0),
        Command::Make(options) => make::program::run(&options).map(|()| 0),
        Command::Herd(options) => herd::worker::run(&options).map(|()| 0),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("wakeset: {}", failure.message);
        failure.status
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn main(_count: libc::c_int, _arguments: *const *const libc::c_char) -> libc::c_int {
    // std's exit writes what stdout still buffers.
    std::process::exit(execute(&std::env::args_os().collect::<Vec<_>>()))
}
