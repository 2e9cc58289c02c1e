//! `wakeset run`: a program with the interposer preloaded.
//!
//! With `--share` the processes count where `wakeset stats` and `wakeset top` can look (`share`,
//! `directory`, `snapshot`).
//!
//! Without `--stats` this process becomes the program by exec, so its exit status, its signals and
//! its place in the process tree are the program's by construction. With `--stats` it has to stay
//! and print, so the program is a child (`supervise.rs`).

mod area;
mod behaviour;
mod collect;
mod command;
mod directory;
mod filter;
mod inspect;
mod library;
mod limited;
mod listeners;
mod notify;
mod report;
mod share;
mod snapshot;
mod stats;
mod supervise;
mod trial;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
pub use behaviour::{Behaviour, spin};
use command::Command;

/// The variable in which the preload library finds the order.
pub const ORDER_VARIABLE: &str = "WAKESET_ORDER";
/// The variable in which it finds how long threads spin before they sleep.
pub const SPIN_VARIABLE: &str = "WAKESET_SPIN";
/// The variable in which it finds how many connections a worker is to hold.
const MOST_VARIABLE: &str = "WAKESET_MAX_CONNECTIONS";
/// The variable that says what happens to a program that makes system calls by instruction.
pub const INSTRUCTIONS_VARIABLE: &str = "WAKESET_INSTRUCTIONS";
/// Its value for this executable, which makes system calls by instruction as a library does, and
/// none of them on what it has made through libc.
pub const OWN_INSTRUCTIONS: &str = "ignore";

/// The variable that turns Wakeset off: with the value 1 the preload library does nothing.
const DISABLE_VARIABLE: &str = "WAKESET_DISABLE";
/// The variable that asks the preload library for notices.
const VERBOSE_VARIABLE: &str = "WAKESET_VERBOSE";

pub use directory::{Directory, own_user, runtime_directory_of};
pub use filter::deadly_call;
pub use inspect::{binary_of, look_up, obstacle, own_loader};
pub use limited::End;
pub use listeners::{Listener, Listeners};
pub use report::{Report, printable};
pub use snapshot::{Image, Snapshot};
use stats::Counts;
pub use trial::{Trial, try_out};
use wakeset_fd::stats::area::AREA_VARIABLE;

pub use library::{
    ENVIRONMENT as PRELOAD_VARIABLE, expressible, find as find_library, is_preloaded,
    own_executable, with_ours, without_ours,
};

/// What `wakeset run` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: that of the program; with --stats, 128+N if signal N killed it. 127 if there is no such
program, 126 if it cannot be run, 125 if Wakeset itself failed or a flag is wrong.

Environment: LD_PRELOAD is kept, with Wakeset's library behind what it has. The flags reach the
library in WAKESET_ORDER, WAKESET_MAX_CONNECTIONS, WAKESET_SPIN, WAKESET_INSTRUCTIONS,
WAKESET_VERBOSE and WAKESET_STATS, see wakeset(7). With WAKESET_DISABLE=1 the program runs without
Wakeset.

Examples:
  wakeset run --stats -- python3 server.py
  wakeset run --share --order least -- gunicorn -w 8 app:application")]
pub struct Options {
    #[command(flatten)]
    counts: Counts,
    /// Count where `wakeset stats` and `wakeset top` can look while the program runs
    #[arg(long, conflicts_with_all = ["stats", "stats_file"])]
    share: bool,
    #[command(flatten)]
    behaviour: Behaviour,
    /// The program, looked up in PATH, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_hint = clap::ValueHint::CommandWithArguments,
        value_names = ["PROGRAM", "ARGS"]
    )]
    command: Vec<OsString>,
}

/// Whether a program is this very executable, as in `wakeset run -- wakeset soak`.
fn is_ourselves(program: &OsStr) -> bool {
    let inode = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    let program = inspect::look_up(program).and_then(|path| inode(&path));
    program.is_some() && program == own_executable().ok().and_then(|path| inode(&path))
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
    if preload && let Some(call) = filter::deadly_call() {
        eprintln!(
            "wakeset: warning: a seccomp filter ends processes that call {call}(2), as Wakeset \
             does: {} runs on the kernel's epoll",
            options.command[0].display()
        );
        preload = false;
    }
    if preload && std::env::var_os(DISABLE_VARIABLE).is_some_and(|value| value == "1") {
        let program = options.command[0].display();
        eprintln!("wakeset: warning: {DISABLE_VARIABLE} is 1: {program} runs without Wakeset");
        preload = false;
    }
    if preload {
        let behaviour = &options.behaviour;
        let mut variables = behaviour.variables_here();
        if !behaviour.leaves_instructions() && is_ourselves(&options.command[0]) {
            variables.push((INSTRUCTIONS_VARIABLE, OWN_INSTRUCTIONS.into()));
        }
        set_environment(&library, variables);
    }
    let shared = (options.share && preload).then(share).flatten();
    match options.counts.is_asked_for() {
        false => {
            let error = command.exec();
            if let Some(path) = shared {
                let _ = std::fs::remove_file(path);
            }
            Err(command.failure(error))
        }
        true => stats::run_counted(&command, &options.counts),
    }
}

/// Has the next program of this process preload the library, and find these variables.
fn set_environment(library: &Path, variables: Vec<(&'static str, OsString)>) {
    let list = library::with_ours(std::env::var_os(PRELOAD_VARIABLE), library);
    // SAFETY: this process has one thread.
    unsafe {
        std::env::set_var(PRELOAD_VARIABLE, list);
        for (name, value) in variables {
            std::env::set_var(name, value);
        }
    }
}

/// Has the program's processes count where others can look. Returns the file.
fn share() -> Option<PathBuf> {
    let made = share::make();
    // SAFETY: this process has one thread.
    unsafe {
        match made {
            Ok((place, path)) => {
                std::env::set_var(AREA_VARIABLE, place);
                Some(path)
            }
            Err(why) => {
                eprintln!("wakeset: warning: nothing is shared: {why}");
                // An outer run is not to count these processes.
                std::env::remove_var(AREA_VARIABLE);
                None
            }
        }
    }
}
