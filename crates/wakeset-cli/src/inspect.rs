//! `wakeset inspect`: what a process and its descendants watch and wait for, and what is wrong
//! with it. Nothing is preloaded, and nothing is stopped.
//!
//! | file | what it reads or says |
//! |---|---|
//! | `bounds` | how much one look reads at most |
//! | `fdinfo`, `sockets`, `backlog` | text of `/proc` and answers of sock_diag(7) |
//! | `kcmp`, `waiting`, `processes` | descriptions, threads, processes |
//! | `look` | one look: all of it together |
//! | `listeners`, `findings` | who waits for which listener; what is wrong |
//! | `render`, `json` | the report |
//!
//! What the target may feel: making the text of a set's fdinfo holds the lock of that set, as
//! epoll_ctl(2) does, for as long as one pass over its watches takes, and so does each kcmp(2) of
//! a watch for a moment. The tables of sockets are made without locks of the target's.

mod backlog;
mod bounds;
mod fdinfo;
mod findings;
mod json;
mod kcmp;
mod listeners;
mod look;
mod processes;
mod render;
mod sockets;
mod waiting;

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::output::print;
use bounds::Notes;
use findings::Finding;
use look::Look;

const AFTER_HELP: &str = "\
Exit status: 0 if nothing was found, 1 if there are findings, 2 if the process does not exist or \
may not be looked at.

The process must be the same user's, or this must run as root with CAP_SYS_PTRACE, which \
containers take away. Reading the calls that threads sleep in wants the right to trace them; \
without it, what poll and select wait for is not seen.

Environment: no variable is read.

Examples:
  wakeset inspect 1234
  wakeset inspect --seconds 5 $(cat /run/nginx.pid)
  wakeset inspect --json 1234 | jq '.findings[].kind'";

/// What `wakeset inspect` takes.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Options {
    /// The process; its descendants are looked at as well
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Look at this process only
    #[arg(long)]
    alone: bool,
    /// How long to look, from the first look to the last, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// How often to look, evenly spread over that time
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(2..=100))]
    looks: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A time between a tenth of a second and an hour.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("not between 0.1 and 3600".to_string()),
    }
}

/// The exit statuses beside 0.
const FOUND: i32 = 1;
const TROUBLE: i32 = 2;

/// The own addresses of the connections that there are in a process's network name space.
pub fn connected(pid: u32) -> Vec<SocketAddr> {
    let tables = ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("/proc/{pid}/net/{it}")));
    tables.iter().flatten().flat_map(|text| sockets::connected(text)).collect()
}

/// What was seen and found.
struct Report {
    pid: i32,
    looks: Vec<Look>,
    seconds: f64,
    findings: Vec<Finding>,
    notes: Notes,
}

/// Looks at the processes and prints what it finds. Returns the exit status.
pub fn inspect(options: &Options) -> Result<i32, Failure> {
    let trouble = |message: String| Failure { status: TROUBLE, message };
    let report = look_several_times(options).map_err(trouble)?;
    let text = match options.json {
        true => format!("{:#}\n", json::value(&report)),
        false => render::text(&report),
    };
    print(&text, TROUBLE)?;
    Ok(if report.findings.is_empty() { 0 } else { FOUND })
}

fn look_several_times(options: &Options) -> Result<Report, String> {
    let mut notes = Notes::new();
    let pids = processes::tree(options.pid, options.alone, &mut notes)?;
    let start = Instant::now();
    let pause = options.seconds / f64::from(options.looks - 1);
    let mut looks = Vec::new();
    for i in 0..options.looks {
        let due = Duration::from_secs_f64(f64::from(i) * pause);
        thread::sleep(due.saturating_sub(start.elapsed()));
        let look = Look::at(&pids, &mut notes);
        if look.process(options.pid).is_none() {
            let left_out = format!("Process {} ", options.pid);
            let note = notes.into_iter().find(|note| note.starts_with(&left_out));
            return Err(note.unwrap_or_else(|| format!("process {} has ended", options.pid)));
        }
        looks.push(look);
    }
    let seconds = start.elapsed().as_secs_f64();
    let last = looks.last().map(|look| look.processes.as_slice()).unwrap_or_default();
    if last.iter().any(|process| process.under_wakeset) {
        notes.insert(
            "Some processes run under Wakeset: what they have in user space is not seen here; \
             `wakeset run --stats` counts it."
                .to_string(),
        );
    }
    let waits = last.iter().flat_map(|process| &process.threads).map(|thread| &thread.wait);
    if waits
        .filter(|wait| matches!(wait, waiting::Wait::Poll(None) | waiting::Wait::Unknown))
        .count()
        > 0
    {
        notes.insert(
            "The calls that threads sleep in may not be read in full: who waits for a listener by \
             poll(2) or select(2) is not known. It takes the right to trace them, as root has it \
             (CAP_SYS_PTRACE)."
                .to_string(),
        );
    }
    let findings = findings::all(&looks, seconds);
    Ok(Report { pid: options.pid, looks, seconds, findings, notes })
}
