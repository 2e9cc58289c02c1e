//! A program run under Wakeset for a limited time, to see what comes of it.

use std::ffi::OsString;
use std::time::Duration;

use wakeset_fd::stats::area::AREA_VARIABLE;

use super::area;
use super::behaviour::spin_here;
use super::collect::Collector;
use super::command::Command;
use super::library;
use super::limited::{End, run_limited};
use super::report::Report;
use super::set_environment;
use crate::failure::Failure;

/// What came of a trial.
pub struct Trial {
    pub report: Report,
    pub end: End,
    /// Until it ended, or its time was up.
    pub lasted: Duration,
}

/// Runs the program under Wakeset for at most `limit`; `at_limit` is called while it still runs.
/// Its output goes to stderr.
pub fn try_out(
    words: &[OsString],
    limit: Duration,
    at_limit: impl FnOnce(u32),
) -> Result<Trial, Failure> {
    let library = library::find()?;
    let command = Command::new(words)?;
    let memory =
        area::make().map_err(|error| Failure::own(format!("no memory for counts: {error}")))?;
    let mut variables = vec![(AREA_VARIABLE, memory.place.clone().into())];
    variables.extend(spin_here("auto"));
    set_environment(&library, variables);
    let mut collector = Collector::new(memory);
    let (end, lasted) = run_limited(&command, limit, || collector.start(), at_limit)?;
    Ok(Trial { report: collector.end(), end, lasted })
}
