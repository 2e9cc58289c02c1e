//! `wakeset run --stats`: runs the program, and prints what its processes counted.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use wakeset_fd::stats::area::AREA_VARIABLE;

use super::area;
use super::collect::Collector;
use super::command::Command;
use super::report::Report;
use super::supervise;
use crate::failure::Failure;

/// The flags about counts that are printed at the end.
#[derive(clap::Args)]
pub struct Counts {
    /// Print counts on stderr when the program has ended
    #[arg(long)]
    stats: bool,
    /// Write the counts to FILE: as JSON if its name ends in .json, otherwise as a table
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    stats_file: Option<PathBuf>,
    /// Print and write the counts in this format
    #[arg(long, value_name = "FORMAT", value_enum)]
    stats_format: Option<Format>,
}

/// What `--stats-format` says.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs: one line on stderr, several in a file
    Json,
}

impl Counts {
    /// Whether anything is to be counted.
    pub fn is_asked_for(&self) -> bool {
        self.stats || self.stats_file.is_some() || self.stats_format.is_some()
    }

    /// What goes to stderr: nothing if there is a file alone.
    fn for_stderr(&self, report: &Report) -> String {
        match self.stats_format {
            _ if !self.stats && self.stats_file.is_some() => String::new(),
            Some(Format::Json) => format!("{}\n", report.json()),
            _ => report.table(),
        }
    }

    /// What goes into the file.
    fn for_file(&self, path: &Path, report: &Report) -> String {
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        match self.stats_format {
            Some(Format::Json) => format!("{:#}\n", report.json()),
            None if is_json => format!("{:#}\n", report.json()),
            _ => report.table(),
        }
    }
}

/// Runs the program to its end, and prints and writes the counts. Returns the program's exit
/// status.
pub fn run_counted(command: &Command, counts: &Counts) -> Result<i32, Failure> {
    // Created before the program runs: a failure afterwards would lose the counts.
    let mut file = None;
    if let Some(path) = &counts.stats_file {
        let made = fs::File::create(path).map_err(|e| {
            Failure::own(format!("cannot write the counts to {}: {e}", path.display()))
        })?;
        file = Some((path, made));
    }
    let (status, report) = match area::make() {
        Ok(memory) => {
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var(AREA_VARIABLE, &memory.place) };
            let mut collector = Collector::new(memory);
            let status = supervise::run_to_end(command, || collector.start())?;
            (status, collector.end())
        }
        Err(error) => {
            // SAFETY: this process has one thread. An outer run is not to count these processes.
            unsafe { std::env::remove_var(AREA_VARIABLE) };
            let status = supervise::run_to_end(command, || {})?;
            (status, Report::of_nothing(format!("no memory for counts: {error}")))
        }
    };
    // From here on the exit status must be the program's, even if the report can go nowhere.
    // SAFETY: no handler is installed.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        // The file may become longer than this process is allowed to make one.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(counts.for_stderr(&report).as_bytes());
    // In one piece: thousands of processes are millions of words.
    if let Some((path, mut file)) = file
        && let Err(e) = file.write_all(counts.for_file(path, &report).as_bytes())
    {
        let _ = writeln!(stderr, "wakeset: cannot write the counts: {e}");
    }
    Ok(status)
}
