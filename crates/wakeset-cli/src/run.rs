//! `wakeset run`: a program with the interposer preloaded.
//!
//! Without `--stats` this process becomes the program by exec, so its exit status, its signals and
//! its place in the process tree are the program's by construction. With `--stats` it has to stay
//! and print, so the program is a child (`supervise.rs`).

mod command;
mod inspect;
mod library;
mod listeners;
mod stats;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use command::Command;

/// The variable in which the preload library finds the order.
pub const ORDER_VARIABLE: &str = "WAKESET_ORDER";

/// The variable that asks the preload library for notices.
const VERBOSE_VARIABLE: &str = "WAKESET_VERBOSE";

pub use library::{
    ENVIRONMENT as PRELOAD_VARIABLE, find as find_library, is_preloaded, own_executable, with_ours,
    without_ours,
};

/// What `wakeset run` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Print counts at exit, as a table and as JSON, on stderr; the JSON into FILE if given
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,
    /// Which of several threads or processes that wait on a listening socket is woken for a
    /// connection
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Fifo)]
    order: Order,
    /// Say on stderr which library or call made Wakeset leave objects to the kernel
    #[arg(long)]
    verbose: bool,
    /// The program, looked up in PATH, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_names = ["PROGRAM", "ARGS"]
    )]
    command: Vec<OsString>,
}

/// The orders of `--order`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Order {
    /// The one that has been idle longest
    Fifo,
    /// The same one for 32 connections, then the one that has been idle longest
    Turns,
    /// The idle one that is first in the queue
    Lifo,
    /// Whichever the kernel wakes for the program's own calls
    Kernel,
}

impl Order {
    /// Its name in the variable.
    fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Turns => "turns",
            Order::Lifo => "lifo",
            Order::Kernel => "kernel",
        }
    }
}

/// Runs the program. Returns its exit status, 128+N if signal N killed it; without `--stats` it
/// returns only when the program could not be started.
pub fn run(options: Options) -> Result<i32, Failure> {
    let library = library::find()?;
    let command = Command::new(&options.command)?;
    let mut preload = true;
    if let Some(path) = inspect::look_up(&options.command[0])
        && let Some(obstacle) = inspect::obstacle(&path)
    {
        eprintln!("wakeset: warning: {obstacle}");
        preload = obstacle.preload;
    }
    if preload {
        let list = library::with_ours(std::env::var_os(PRELOAD_VARIABLE), &library);
        // SAFETY: this process has one thread.
        unsafe {
            std::env::set_var(PRELOAD_VARIABLE, list);
            std::env::set_var(ORDER_VARIABLE, options.order.name());
            if options.verbose {
                std::env::set_var(VERBOSE_VARIABLE, "1");
            }
        }
    }
    match options.stats {
        None => Err(command.failure(command.exec())),
        Some(file) => stats::run_counted(&command, file.as_deref()),
    }
}
