//! `wakeset doctor`: what this machine and a program allow, before anything is preloaded.
//!
//! | file | what it looks at |
//! |---|---|
//! | `machine` | kernel, filters, limits, and where `--share` would put its file |
//! | `program` | whether the library gets in, and what the program calls |
//! | `imports` | the functions that a file takes from libc, and its libraries |
//! | `instructions` | the system call instructions in a file's code |
//! | `trial` | with `--try`, what came of a run |
//! | `order` | which order suits a listener |
//!
//! Without `--try` the program is not run.

mod imports;
mod instructions;
mod machine;
mod order;
mod program;
mod trial;

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::print;

/// What `wakeset doctor` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 if the program can be served, 1 if it would run on the kernel's epoll, 2 if there \
is no such program. With --try, 1 also if the library did not get in or a signal ended the \
program, and 2 if it could not be tried. Without a program it is about the machine: 1 if no \
program can be served here.

Without --try the program is not run; only its files are read, and the dynamic loader is asked for \
its libraries. With it, a program that can be served runs with its arguments, reads nothing, \
writes to stderr, and is ended with everything that it has started: by SIGTERM, and five seconds \
later by SIGKILL. Ctrl-C ends the trial, not the report.

Environment: the program is looked for in PATH, and its libraries with its LD_LIBRARY_PATH, without
LD_PRELOAD. With --try it inherits all.

Examples:
  wakeset doctor -- python3 server.py
  wakeset doctor --try 10 -- gunicorn -w 4 app:application")]
pub struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Run the program under Wakeset for SECONDS, and say what came of it
    #[arg(long = "try", value_name = "SECONDS", requires = "command", value_parser = seconds)]
    trial: Option<Duration>,
    /// The program, looked up in PATH, and its arguments
    #[arg(
        trailing_var_arg = true,
        value_hint = clap::ValueHint::CommandWithArguments,
        value_names = ["PROGRAM", "ARGS"]
    )]
    command: Vec<OsString>,
}

/// `--json`: changes when a field goes or changes its meaning.
const SCHEMA: &str = "wakeset-doctor/1";
const NOT_SERVED: i32 = 1;
const TROUBLE: i32 = 2;

/// A time between a tenth of a second and an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not between 0.1 and 3600".to_string()),
    }
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Good,
    /// Something is less than it could be.
    Note,
    /// Nothing is served.
    Bad,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Good => "ok",
            Level::Note => "note",
            Level::Bad => "bad",
        }
    }
}

/// One line: what there is, what it means, and what to do about it.
#[derive(Debug)]
pub struct Check {
    pub level: Level,
    pub about: &'static str,
    pub what: String,
    /// What it means, and what to do; empty for what is as it should be.
    pub means: String,
}

impl Check {
    pub fn new(level: Level, about: &'static str, what: impl Into<String>) -> Self {
        Check { level, about, what: what.into(), means: String::new() }
    }

    pub fn means(self, means: impl Into<String>) -> Self {
        Check { means: means.into(), ..self }
    }
}

/// Looks at the machine and the program, and says what there is. Returns the exit status.
pub fn doctor(options: &Options) -> Result<i32, Failure> {
    let mut checks = machine::checks();
    let mut helps = None;
    if let Some(program) = options.command.first() {
        let trouble = |message| Failure { status: TROUBLE, message };
        let found = program::look(program).map_err(trouble)?;
        helps = Some(found.helps);
        checks.extend(found.checks);
    }
    let mut tried = Value::Null;
    let mut sentence = None;
    if let Some(limit) = options.trial
        && is_served(&checks)
    {
        let trouble = |failure| Failure { status: TROUBLE, ..failure };
        let trial = trial::look(&options.command, limit).map_err(trouble)?;
        checks.extend(trial.checks);
        sentence = Some(trial.sentence);
        tried = trial.json;
    }
    let verdict = verdict(&checks, helps, sentence);
    let text = match options.json {
        true => format!("{:#}\n", value(&checks, &verdict, tried)),
        false => text(&checks, &verdict),
    };
    print(&text, TROUBLE)?;
    Ok(if is_served(&checks) { 0 } else { NOT_SERVED })
}

fn is_served(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.level != Level::Bad)
}

/// All in one line. `helps`: whether the program calls what Wakeset answers; `None` without one.
/// `tried` is what a trial says.
fn verdict(checks: &[Check], helps: Option<bool>, tried: Option<String>) -> String {
    if let Some(bad) = checks.iter().find(|check| check.level == Level::Bad) {
        return format!("cannot be served: {}", bad.what);
    }
    match (tried, helps) {
        (Some(tried), _) => tried,
        (None, None) => "programs can be served on this machine".to_string(),
        (None, Some(true)) => "can be served, and calls what Wakeset answers".to_string(),
        (None, Some(false)) => "can be served, but its own files call nothing that Wakeset \
                                answers; what it loads later may"
            .to_string(),
    }
}

fn text(checks: &[Check], verdict: &str) -> String {
    let mut text = format!("verdict: {verdict}\n\n");
    for check in checks {
        text += &format!("{:4}  {}: {}\n", check.level.name(), check.about, check.what);
        if !check.means.is_empty() {
            text += &format!("      {}\n", check.means);
        }
    }
    text
}

fn value(checks: &[Check], verdict: &str, tried: Value) -> Value {
    let lines = checks.iter().map(|check| {
        json!({
            "level": check.level.name(),
            "about": check.about,
            "what": check.what,
            "means": check.means,
        })
    });
    json!({
        "schema": SCHEMA,
        "served": is_served(checks),
        "verdict": verdict,
        "checks": lines.collect::<Vec<_>>(),
        "trial": tried,
    })
}
