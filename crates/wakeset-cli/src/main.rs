//! `wakeset`: runs unmodified programs on Wakeset's epoll, and measures it against the kernel's.
//!
//! | subcommand | file |
//! |---|---|
//! | `run` | `run.rs`: preloads the interposer into a program |
//! | `bench` | `bench.rs`: the same workloads on the kernel and on the engine |
//! | `soak` | `soak.rs`: a mixed load that demands exact counts and flat memory |
//! | `demo` | `demo.rs`: one program, plain and under `run`, and what changed |
//!
//! `main` is the C one: Rust's own start-up code ignores SIGPIPE and opens `/dev/null` on closed
//! standard descriptors, and the program that `run` becomes would inherit both.

#![cfg_attr(not(test), no_main)]

mod bench;
mod demo;
mod run;
mod soak;
mod table;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Linux's epoll in user space: run programs on it, and measure it.
#[derive(Parser)]
#[command(name = "wakeset", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an unmodified program on Wakeset; the exit status is the program's
    Run(run::Options),
    /// Measure the kernel and Wakeset in one run, alternating
    Bench(bench::Options),
    /// Put on a mixed load for as long as asked; fail if a count is not exact or memory grows
    Soak(soak::Options),
    /// See in half a minute what Wakeset does for an ordinary program
    Demo,
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
    Uffd(bench::uffd::program::Options),
    /// The program of `bench selfpipe`
    #[command(name = "__selfpipe", hide = true)]
    Selfpipe(bench::selfpipe::program::Options),
    /// A worker of `bench herd`
    #[command(name = "__herd", hide = true)]
    Herd(bench::herd::worker::Options),
}

/// What `wakeset` itself exits with when it, and not the program, fails; as env(1) and timeout(1).
const OWN_FAILURE: i32 = 125;

/// An error with the exit status it leads to.
#[derive(Debug)]
struct Failure {
    status: i32,
    message: String,
}

impl Failure {
    /// An error of Wakeset's own.
    fn own(message: impl Into<String>) -> Self {
        Failure { status: OWN_FAILURE, message: message.into() }
    }
}

/// Parses the arguments, does what they ask and says what to exit with.
fn execute(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let result = match Arguments::parse_from(arguments).command {
        Command::Run(options) => run::run(options),
        Command::Bench(options) => bench::bench(&options).map(|()| 0),
        Command::Soak(options) => soak::soak(&options),
        Command::Demo => demo::demo().map(|()| 0),
        Command::Stress { producers, adds } => demo::program::stress(producers, adds).map(|()| 0),
        Command::Pingpong { rounds } => demo::program::pingpong(rounds).map(|()| 0),
        Command::Uffd(options) => bench::uffd::program::run(&options).map(|()| 0),
        Command::Selfpipe(options) => bench::selfpipe::program::run(&options).map(|()| 0),
        Command::Herd(options) => bench::herd::worker::run(&options).map(|()| 0),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("wakeset: {}", failure.message);
        failure.status
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn main(_count: libc::c_int, _arguments: *const *const libc::c_char) -> libc::c_int {
    // Exits by std's way, so that what stdout still buffers is written.
    std::process::exit(execute(std::env::args_os()))
}

/// Where our own executable is.
fn own_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::own(format!("cannot find myself: {e}")))
}
