//! `wakeset stats`, `wakeset top` and `wakeset metrics`: what a program under `wakeset run --share`
//! counts, while it runs.
//!
//! | file | what |
//! |---|---|
//! | `target` | which run is meant |
//! | `details` | single sets, and the last migrations |
//! | `rates` | two looks, and what happened between them |
//! | `screen` | the view of `top`, as lines |
//! | `terminal` | the terminal of `top`, its keys and signals |
//! | `top` | the loop of `top` |
//! | `metrics` | the counts for Prometheus |

mod details;
mod metrics;
mod rates;
mod screen;
mod target;
mod terminal;
mod top;

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::print;
use crate::run::{Report, Snapshot};
pub use metrics::{MetricsOptions, metrics};
pub use top::{TopOptions, top};
use wakeset_fd::stats::area::now;

/// `wakeset stats`: changes when a field goes or changes its meaning.
const SCHEMA: &str = "wakeset-stats/1";
/// The exit status if nothing can be shown.
const TROUBLE: i32 = 2;

/// What `wakeset stats` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0; 2 if no such program shares its counts.

The program must run by `wakeset run --share`, as the same user, or this must run as root.

Environment: XDG_RUNTIME_DIR is where the runs of this user are looked for first, and then
/run/user/UID.

Examples:
  wakeset stats nginx
  wakeset stats --every 1 1234
  wakeset stats --json 1234 | jq '.total.syscalls_avoided'")]
pub struct StatsOptions {
    /// A process of the run, or its name; may be left out if there is one run only. Of a process
    /// that is not the first one it is that process and its descendants
    #[arg(value_name = "PID|NAME")]
    target: Option<String>,
    /// Print JSON; with --every or --count, one line for each look
    #[arg(long)]
    json: bool,
    /// Look again every SECS seconds, until the program has ended
    #[arg(short = 'd', long, value_name = "SECS", value_parser = seconds)]
    every: Option<f64>,
    /// Look COUNT times
    #[arg(short = 'n', long, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// A time between a tenth of a second and a day.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    match (0.1..=86400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("not between 0.1 and 86400".to_string()),
    }
}

fn trouble(message: impl Into<String>) -> Failure {
    Failure { status: TROUBLE, message: message.into() }
}

/// Looks once or several times, and prints what has been counted.
pub fn stats(options: &StatsOptions) -> Result<i32, Failure> {
    let mut run = target::find(options.target.as_deref())?;
    let is_repeated = options.every.is_some() || options.count.is_some();
    let pause = Duration::from_secs_f64(options.every.unwrap_or(1.0));
    let looks = options.count.unwrap_or(if is_repeated { u64::MAX } else { 1 });
    for look in 0..looks {
        if look > 0 {
            thread::sleep(pause);
            refresh(&mut run)?;
            if run.has_ended() {
                break;
            }
        }
        let text = match options.json {
            true if is_repeated => format!("{}\n", value(&run)),
            true => format!("{:#}\n", value(&run)),
            false if look > 0 => format!("\n{}", text(&run)),
            false => text(&run),
        };
        if !print(&text, TROUBLE)? {
            break;
        }
    }
    Ok(0)
}

fn refresh(run: &mut Snapshot) -> Result<(), Failure> {
    run.refresh().map_err(|error| trouble(format!("the counts of {}: {error}", run.pid)))
}

/// The line that says which run this is.
fn heading(run: &Snapshot) -> String {
    let ended = run.ended_images;
    let alive = match run.images.len() {
        1 => "1 process".to_string(),
        alive => format!("{alive} processes"),
    };
    let of = |pid| target::name(pid).unwrap_or_else(|| "ended".to_string());
    match run.root {
        None => format!("run {} ({}): {alive}, {ended} ended", run.pid, of(run.pid)),
        Some(root) => format!(
            "process {root} ({}) and its descendants, of run {}: {alive}",
            of(root),
            run.pid
        ),
    }
}

fn text(run: &Snapshot) -> String {
    let (body, details) = (Report::of_live(run).body(), details::text(run, now()));
    format!("{}\n{body}{details}", heading(run))
}

fn value(run: &Snapshot) -> Value {
    let mut value = Report::of_live(run).json();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    value["schema"] = json!(SCHEMA);
    value["time"] = json!(now.as_secs_f64());
    value["run"] = json!({ "pid": run.pid, "name": target::name(run.pid), "below": run.root });
    for (name, details) in details::json(run, self::now()) {
        value[name] = details;
    }
    value
}
