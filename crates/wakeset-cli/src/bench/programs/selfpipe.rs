//! `selfpipe`: how fast an event loop is woken through a pipe or a pair of sockets of its own, as
//! asyncio, libevent and many other libraries do it. Each round of each side is a process of its
//! own, plain or under `wakeset run`, which knows nothing of Wakeset.
//!
//! | row | what counts |
//! |---|---|
//! | `pipe`, `socketpair`, one thread | round trips: write a byte, epoll_wait, read |
//! | the same, two threads | bytes: one thread writes them one by one, the other waits and reads what there is |
//! | `asyncio` | calls: `loop.call_soon_threadsafe` from another thread, until each has been called |

pub mod program;

use std::process::Command;

use super::child;
use crate::bench::measure::point::{Params, params};
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::{Report, Row};
use crate::bench::measure::spread::Spread;
use crate::bench::options::{Order, Timed};
use crate::failure::Failure;
use program::Means;

/// What `wakeset bench selfpipe` takes.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    timed: Timed,
}

/// Calls in rounds of a thousand each, until the time is over.
const ASYNCIO: &str = "
import asyncio, sys, threading, time

async def main(seconds):
    loop = asyncio.get_running_loop()
    batch, calls = 20_000, 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        done, left = loop.create_future(), batch
        def called():
            nonlocal left
            left -= 1
            if left == 0:
                done.set_result(None)
        def call():
            for _ in range(batch):
                loop.call_soon_threadsafe(called)
        thread = threading.Thread(target=call)
        thread.start()
        await done
        thread.join()
        calls += batch
    print(calls / (time.perf_counter() - begin))

asyncio.run(main(float(sys.argv[1])))
";

enum Point {
    Raw(Means, usize),
    Asyncio,
}

impl Point {
    const ALL: [Point; 5] = [
        Point::Raw(Means::Pipe, 1),
        Point::Raw(Means::Socketpair, 1),
        Point::Raw(Means::Pipe, 2),
        Point::Raw(Means::Socketpair, 2),
        Point::Asyncio,
    ];

    fn params(&self) -> Params {
        match self {
            Point::Raw(means, threads) => {
                params([("means", means.name().into()), ("threads", (*threads).into())])
            }
            Point::Asyncio => params([("means", "asyncio".into()), ("threads", 2.into())]),
        }
    }

    fn unit(&self) -> &'static str {
        match self {
            Point::Raw(_, 1) => "roundtrips/s",
            Point::Raw(..) => "bytes/s",
            Point::Asyncio => "calls/s",
        }
    }

    /// One round of one side.
    fn run(&self, seconds: f64, preload: Option<Order>) -> Result<f64, Failure> {
        match self {
            Point::Raw(means, threads) => {
                child::run(&program::arguments(*means, *threads, seconds), preload)
            }
            Point::Asyncio => {
                let mut command = Command::new("python3");
                command.args(["-c", ASYNCIO]).arg(seconds.to_string());
                child::preload(&mut command, preload)?;
                child::answer(&mut command, "python3")
            }
        }
    }

    /// Why it cannot be measured here.
    fn obstacle(&self) -> Option<String> {
        let needs_python = matches!(self, Point::Asyncio);
        (needs_python && !child::succeeds(Command::new("python3").args(["-c", "import asyncio"])))
            .then(|| "There is no python3 with asyncio here: not run.".to_string())
    }
}

/// Measures, prints the table and writes the JSON.
pub fn selfpipe(options: &Options) -> Result<(), Failure> {
    let mut report = Report::new("selfpipe", options.timed.common.json.as_deref())?;
    report.begin(Point::ALL.iter().map(Point::params), "per second");
    let rounds = options.timed.common.rounds;
    let progress = progress_bar(Point::ALL.len() as u64 * u64::from(rounds));
    let seconds = options.timed.secs / f64::from(2 * rounds);
    for point in &Point::ALL {
        if let Some(obstacle) = point.obstacle() {
            report.note(obstacle);
            continue;
        }
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (side, preload) in sides.iter_mut().zip([None, Some(Order::Fifo)]) {
                side.push(
                    point.run(seconds, preload).inspect_err(|_| progress.finish_and_clear())?,
                );
            }
            progress.inc(1);
        }
        let [kernel, wakeset] = sides.map(Spread::of);
        let row = Row::new("selfpipe", point.params(), point.unit(), kernel, wakeset);
        progress.suspend(|| report.add(row));
    }
    progress.finish_and_clear();
    report.finish()
}
