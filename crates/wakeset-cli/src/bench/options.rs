//! Flags that several benchmarks have, and how their values are read.

use std::path::PathBuf;
use std::time::Duration;

/// The flags of every benchmark.
#[derive(clap::Args)]
pub struct Common {
    /// How often each side is measured; the report has the median and the spread
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = rounds)]
    pub rounds: u32,
    /// Also write the rows to FILE, as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The flags of a benchmark that goes on for a given time.
#[derive(clap::Args)]
pub struct Timed {
    /// Seconds for each point of the workload, all sides and rounds together
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = seconds)]
    pub secs: f64,
    #[command(flatten)]
    pub common: Common,
}

impl Timed {
    /// How long each row takes, all sides and rounds together.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.secs)
    }
}

/// Which of several idle threads or processes an event wakes.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Order {
    /// As turns; under `wakeset run`, as fifo while a worker keeps connections open
    Auto,
    /// The one that has been idle longest
    Fifo,
    /// The same one 32 times, then the one that has been idle longest
    Turns,
    /// The one that has been idle for the shortest time
    Lifo,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Auto => "auto",
            Order::Fifo => "fifo",
            Order::Turns => "turns",
            Order::Lifo => "lifo",
        }
    }
}

impl From<Order> for wakeset_group::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Fifo => wakeset_group::Order::Fifo,
            Order::Auto | Order::Turns => wakeset_group::Order::Turns,
            Order::Lifo => wakeset_group::Order::Lifo,
        }
    }
}

/// Reads a number from 1 to 1024.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err("it must be a number from 1 to 1024".to_string()),
    }
}

fn rounds(text: &str) -> Result<u32, String> {
    count(text).map(|n| n as u32)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.01..=3600.0).contains(&n) => Ok(n),
        _ => Err("it must be a number from 0.01 to 3600".to_string()),
    }
}
