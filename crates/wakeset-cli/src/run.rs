//! `wakeset run`: a program with the interposer preloaded.
//!
//! Without `--stats` this process becomes the program by exec, so its exit status, its signals and
//! its place in the process tree are the program's by construction. With `--stats` somebody has to
//! stay and print, so the program is a child (`supervise.rs`).

mod inspect;
mod library;
mod listeners;
mod stats;
mod supervise;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::Failure;

/// Where the preload library finds the order.
const ORDER_VARIABLE: &str = "WAKESET_ORDER";

pub use library::without_ours;
pub use library::{ENVIRONMENT as PRELOAD_VARIABLE, find as find_library, is_preloaded, with_ours};

/// What `wakeset run` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Print counts at exit, as a table and as JSON, on stderr; the JSON into FILE if given
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,
    /// Who is woken for a connection of several that wait on a listening socket: the one idle longest, the same one for
    /// 32 connections and then the next, always the first in the queue that is idle, or whomever the kernel wakes for the program's own calls
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Fifo)]
    order: Order,
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
    Fifo,
    Turns,
    Lifo,
    Kernel,
}

impl Order {
    /// What the preload library knows it by.
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
        }
    }
    match options.stats {
        None => Err(command.failure(command.exec())),
        Some(file) => stats::run_counted(&command, file.as_deref()),
    }
}

/// A program with its arguments as exec takes them.
struct Command {
    arguments: Vec<CString>,
}

impl Command {
    fn new(words: &[OsString]) -> Result<Self, Failure> {
        let arguments = words
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|_| Failure::own("an argument holds a zero byte"))?;
        Ok(Command { arguments })
    }

    /// Becomes the program; comes back only with what went wrong.
    ///
    /// execvp(3) itself and not std's, which would empty the signal mask and reset SIGPIPE:
    /// the program is to inherit exactly what we did.
    fn exec(&self) -> io::Error {
        let mut pointers: Vec<_> = self.arguments.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // SAFETY: both are zero-terminated, and the strings outlive the call.
        unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
        io::Error::last_os_error()
    }

    /// The shell's statuses: 127 when there is no such program, 126 when it cannot be run.
    fn failure(&self, error: io::Error) -> Failure {
        let missing = error.raw_os_error() == Some(libc::ENOENT);
        let program = self.arguments[0].to_string_lossy();
        let path = inspect::look_up(OsStr::from_bytes(self.arguments[0].as_bytes()));
        let message = match path {
            Some(path) if missing => format!("cannot run {}: its interpreter does not exist", path.display()),
            _ if missing && program.contains('/') => format!("{program}: no such file"),
            _ if missing => format!("{program}: not found in PATH"),
            _ => format!("cannot run {program}: {error}"),
        };
        Failure { status: if missing { 127 } else { 126 }, message }
    }
}
