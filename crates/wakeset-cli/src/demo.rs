//! `wakeset demo`: one ordinary program, plain and under `wakeset run`, and what changed.

pub mod program;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::format;
use crate::run::{PRELOAD_VARIABLE, find_library, own_executable, with_ours, without_ours};

/// Producer threads of the measurements.
const PRODUCERS: [usize; 3] = [8, 32, 128];
/// How long the plain program may take for each; the other is faster.
const PLAIN_TIME: Duration = Duration::from_secs(4);
/// Additions of the first, short run, which measures how fast this machine is.
const PROBE: u64 = 200_000;
/// A run that takes longer than this is stuck.
const TIME_LIMIT: Duration = Duration::from_secs(25);

/// Runs everything and prints the table; an error says which step failed.
pub fn demo() -> Result<(), Failure> {
    let runner = Runner {
        executable: own_executable()?,
        library: find_library()?,
        progress: ProgressBar::new(2 * (1 + PRODUCERS.len() as u64)),
    };
    // Hidden by itself where stderr is no terminal.
    let style = "{bar:24} {pos}/{len} {msg}";
    runner
        .progress
        .set_style(ProgressStyle::with_template(style).map_err(|e| Failure::own(e.to_string()))?);
    runner.progress.enable_steady_tick(Duration::from_millis(100));
    let measured = runner.measure();
    runner.progress.finish_and_clear();
    print!("{}", text(&measured?));
    Ok(())
}

/// What one program came to, plain and under `wakeset run`.
struct Pair {
    what: String,
    plain: f64,
    wakeset: f64,
    ratio: f64,
}

struct Runner {
    executable: PathBuf,
    library: PathBuf,
    progress: ProgressBar,
}

impl Runner {
    fn measure(&self) -> Result<Vec<Pair>, Failure> {
        self.progress.set_message("measuring how fast this machine is");
        let probe = self.run(&["__stress", "8", &(PROBE / 8).to_string()], false)?;
        let rate = probe.count as f64 / probe.time.as_secs_f64();
        // A slow machine does less of the same, so that everything stays under half a minute.
        let total = (rate * PLAIN_TIME.as_secs_f64()).clamp(128_000.0, 4_000_000.0) as u64;

        let mut pairs = Vec::new();
        for producers in PRODUCERS {
            let adds = total / producers as u64;
            let arguments = ["__stress", &producers.to_string(), &adds.to_string()];
            let [plain, wakeset] = self.both(&format!("{producers} threads"), &arguments)?;
            pairs.push(Pair {
                what: format!("{producers} threads signal one, events/ms"),
                plain: plain.per_millisecond(),
                wakeset: wakeset.per_millisecond(),
                ratio: wakeset.per_millisecond() / plain.per_millisecond(),
            });
        }
        let rounds = (total / 2).min(1_000_000).to_string();
        let [plain, wakeset] =
            self.both("one thread, write-wait-read", &["__pingpong", &rounds])?;
        pairs.push(Pair {
            what: "one thread: write, wait, read, ns".to_string(),
            plain: plain.nanoseconds_each(),
            wakeset: wakeset.nanoseconds_each(),
            ratio: plain.nanoseconds_each() / wakeset.nanoseconds_each(),
        });
        Ok(pairs)
    }

    fn both(&self, what: &str, arguments: &[&str]) -> Result<[Outcome; 2], Failure> {
        self.progress.set_message(format!("{what}, plain"));
        let plain = self.run(arguments, false)?;
        self.progress.inc(1);
        self.progress.set_message(format!("{what}, under wakeset run"));
        let wakeset = self.run(arguments, true)?;
        self.progress.inc(1);
        if plain.count != wakeset.count {
            return Err(Failure::own(format!(
                "the program counted {} plain but {} under Wakeset",
                plain.count, wakeset.count
            )));
        }
        Ok([plain, wakeset])
    }

    /// Runs this executable as the program, and reads the line that it prints.
    fn run(&self, arguments: &[&str], on_wakeset: bool) -> Result<Outcome, Failure> {
        let where_it_ran = match on_wakeset {
            true => "under wakeset run",
            false => "plain",
        };
        let failed = |why: String| {
            Failure::own(format!(
                "the program failed {where_it_ran} ({}): {why}",
                arguments.join(" ")
            ))
        };
        let mut command = Command::new(&self.executable);
        command.args(arguments).stdout(Stdio::piped());
        set_preload(&mut command, on_wakeset.then_some(self.library.as_path()));
        let mut child = command.spawn().map_err(|e| failure_to_start(&e))?;
        let ended = wait_for_end(&mut child).map_err(&failed)?;
        if !ended.success() {
            return Err(failed(ended.to_string()));
        }
        let mut line = String::new();
        if let Some(mut output) = child.stdout.take() {
            output.read_to_string(&mut line).map_err(|e| failed(e.to_string()))?;
        }
        Outcome::parse(&line).ok_or_else(|| failed(format!("it printed {line:?}")))
    }
}

fn failure_to_start(error: &std::io::Error) -> Failure {
    Failure::own(format!("cannot start the demo's program: {error}"))
}

fn set_preload(command: &mut Command, library: Option<&Path>) {
    let inherited = std::env::var_os(PRELOAD_VARIABLE);
    let list = match library {
        Some(library) => Some(with_ours(inherited, library)),
        // The demo may itself have been started under `wakeset run`.
        None => without_ours(inherited),
    };
    match list {
        Some(list) => command.env(PRELOAD_VARIABLE, list),
        None => command.env_remove(PRELOAD_VARIABLE),
    };
}

/// Waits for the end, for at most [`TIME_LIMIT`]. What the program prints fits into the pipe.
fn wait_for_end(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begin.elapsed() < TIME_LIMIT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it was not done after {} s", TIME_LIMIT.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// What the program reported.
struct Outcome {
    count: u64,
    time: Duration,
}

impl Outcome {
    fn parse(line: &str) -> Option<Self> {
        let (count, time) = line.trim().split_once(' ')?;
        let outcome =
            Outcome { count: count.parse().ok()?, time: Duration::from_nanos(time.parse().ok()?) };
        (outcome.count > 0 && !outcome.time.is_zero()).then_some(outcome)
    }

    fn per_millisecond(&self) -> f64 {
        self.count as f64 / (self.time.as_secs_f64() * 1e3)
    }

    fn nanoseconds_each(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.count as f64
    }
}

fn text(pairs: &[Pair]) -> String {
    let cells = |row: [&str; 4]| row.map(str::to_string).to_vec();
    let mut rows = vec![cells(["", "plain", "wakeset run", "faster"])];
    for pair in pairs {
        rows.push(vec![
            pair.what.clone(),
            format::number(pair.plain),
            format::number(pair.wakeset),
            format!("{}x", format::number(pair.ratio)),
        ]);
    }
    format!(
        "The same program ran twice: threads add to eventfds, one waits for them with epoll.\n\
         Plain, each step is a call into the kernel; under `wakeset run` it stays in the process.\n\
         \n{}\nTry next:\n\
         \x20 wakeset run --stats -- PROGRAM ARGS   your own program, and its counts\n\
         \x20 wakeset bench stress                  the engine against the kernel, with spread\n\
         \x20 wakeset run --help                    what else it can do\n",
        format::table(rows)
    )
}
