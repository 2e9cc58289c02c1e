//! Runs a program, plain or under `wakeset run`, and keeps what it printed.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a run may take before it counts as hung.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What a program prints after these differs from run to run.
const MEASURED: [&str; 3] = ["events/ms:", "migrations:", "counts:"];

/// What a program runs on.
#[derive(Clone, Copy, Debug)]
pub enum Runner<'a> {
    Kernel,
    Wakeset,
    /// With `--verbose`.
    Verbose,
    /// With `--verbose --instructions=kernel`.
    Uncaught,
    /// With tests' own value of `WAKESET_INSTRUCTIONS`, for a program that looks at the kernel's
    /// objects by instruction.
    Ignored,
    /// With `--order` and `--stats`, and with the counts in this file too.
    Ordered(&'a str, &'a Path),
    /// With `--spin`.
    Spinning(&'a str),
    /// With `--order` and `--max-connections`.
    Limited(&'a str, &'a str),
    /// With `--stats` into this file.
    Counted(&'a Path),
    /// With a library whose heap refuses: `WAKESET_ALLOCATIONS`, which debug builds of it know.
    Rationed(&'a str),
}

/// How a run ended, and what it printed.
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// The lines that do not depend on the time the run took.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().filter(|line| !MEASURED.iter().any(|prefix| line.starts_with(prefix)))
    }

    /// Demands that the program, which knows what it expects, says that all was as it should be.
    ///
    /// # Panics
    /// With the program's own words about what was not, if its status is not 0.
    pub fn expect_success(&self, what: &str) {
        let Self { status, stderr, .. } = self;
        assert!(status.success(), "{what}, {status}:\n{}{stderr}", self.unexpected());
    }

    /// The lines in which the program itself says that something is not as it should be.
    pub fn unexpected(&self) -> String {
        let wrong: String = self
            .lines()
            .filter(|line| line.contains("(should be"))
            .map(|line| format!("  {line}\n"))
            .collect();
        match wrong.is_empty() {
            true => last_lines(&self.stdout),
            false => wrong,
        }
    }
}

/// Runs a program until it ends or `limit` is over.
///
/// The output goes into files: a pipe would keep us waiting for whatever the program left running.
pub fn run(program: &Path, arguments: &[&str], runner: Runner, limit: Duration) -> Outcome {
    let suffix = match runner {
        Runner::Kernel => "kernel",
        Runner::Wakeset => "wakeset",
        Runner::Verbose => "verbose",
        Runner::Uncaught => "uncaught",
        Runner::Ignored => "ignored",
        Runner::Ordered(order, _) => order,
        Runner::Limited(order, _) => order,
        Runner::Spinning(spin) => spin,
        Runner::Counted(_) => "counted",
        Runner::Rationed(_) => "rationed",
    };
    let output = |stream| PathBuf::from(format!("{}.{suffix}.{stream}", program.display()));
    let create = |path: &Path| File::create(path).expect("a file for the output");
    let (stdout, stderr) = (output("out"), output("err"));
    let mut command = match runner {
        Runner::Kernel => Command::new(program),
        _ => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
            command.arg("run");
            if matches!(runner, Runner::Verbose | Runner::Uncaught) {
                command.arg("--verbose");
            }
            if let Runner::Uncaught = runner {
                command.arg("--instructions=kernel");
            }
            if let Runner::Ignored = runner {
                command.env("WAKESET_INSTRUCTIONS", "ignore");
            }
            if let Runner::Ordered(order, file) = runner {
                let file = format!("--stats-file={}", file.display());
                command.args(["--order", order, "--stats", &file]);
            }
            if let Runner::Limited(order, most) = runner {
                command.args(["--order", order, "--max-connections", most]);
            }
            if let Runner::Spinning(spin) = runner {
                command.args(["--spin", spin]);
            }
            if let Runner::Counted(file) = runner {
                command.arg(format!("--stats-file={}", file.display()));
            }
            if let Runner::Rationed(allocations) = runner {
                command.env("WAKESET_ALLOCATIONS", allocations);
            }
            command.arg("--").arg(program);
            command
        }
    };
    let child = command
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(create(&stdout))
        .stderr(create(&stderr))
        // A group of its own, so that what it starts can be ended with it.
        .process_group(0)
        .spawn()
        .expect("the program starts");
    let status = wait(child, limit);
    let read = |path| String::from_utf8_lossy(&fs::read(path).expect("the output")).into_owned();
    let outcome = Outcome {
        status: status.unwrap_or_else(|| ExitStatus::from_raw(9)),
        stdout: read(&stdout),
        stderr: read(&stderr),
    };
    assert!(
        status.is_some(),
        "{}, {runner:?}: not done after {limit:?}; its last lines:\n{}{}",
        program.display(),
        last_lines(&outcome.stdout),
        outcome.stderr,
    );
    outcome
}

/// `None` if the child had to be killed.
fn wait(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("our own child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // std can kill the child alone; the shell's kill, being built in, is everywhere.
    let group = format!("kill -KILL -{}", child.id());
    let _ = Command::new("sh").args(["-c", &group]).status();
    let _ = child.kill();
    let _ = child.wait();
    None
}

pub fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let start = lines.len().saturating_sub(10);
    lines[start..].iter().map(|l| format!("  {l}\n")).collect()
}
