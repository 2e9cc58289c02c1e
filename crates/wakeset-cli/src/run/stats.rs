//! `wakeset run --stats`: runs the program, and prints what its processes counted.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use wakeset_fd::stats::area::AREA_VARIABLE;

use super::area;
use super::collect::Collector;
use super::command::Command;
use super::report::Report;
use super::supervise;
use crate::failure::Failure;

/// Runs the program to its end and prints the counts: the table on stderr, and the JSON in
/// `file` or on stderr too. Returns the program's exit status.
pub fn run_counted(command: &Command, file: Option<&Path>) -> Result<i32, Failure> {
    // Created before the program runs: a failure afterwards would lose the counts.
    let file = match file {
        Some(path) => Some(fs::File::create(path).map_err(|e| {
            Failure::own(format!("cannot write the counts to {}: {e}", path.display()))
        })?),
        None => None,
    };
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
    let _ = stderr.write_all(report.table().as_bytes());
    let json = report.json();
    match file {
        None => {
            let _ = stderr.write_all(format!("{json}\n").as_bytes());
        }
        Some(mut file) => {
            // In one piece: thousands of processes are millions of words.
            if let Err(e) = file.write_all(format!("{json:#}\n").as_bytes()) {
                let _ = writeln!(stderr, "wakeset: cannot write the counts: {e}");
            }
        }
    }
    Ok(status)
}
