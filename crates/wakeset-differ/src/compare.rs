//! The driver: starts the two sides, compares what they say, and finds the program when they disagree.

use crate::generate::Profile;
use crate::program::Program;
use crate::trace::{Coverage, Trace};
use crate::worker::{self, BLOCK, Word};
use crate::world::{Bug, Side};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How workers are started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program, or another that hands [`worker::ARGUMENT`] on.
    pub executable: PathBuf,
    /// The interposed side's library.
    pub preload: Option<PathBuf>,
    /// What is to be wrong with Wakeset's side, to show that it is found.
    pub bug: Option<Bug>,
}

const PRELOAD: &str = "libwakeset_preload.so";

impl Setup {
    /// With `executable`, and the library that cargo has built beside it.
    ///
    /// # Errors
    /// If there is no such executable.
    pub fn new(executable: PathBuf) -> io::Result<Self> {
        let executable = executable.canonicalize()?;
        let places =
            executable.ancestors().skip(1).take(2).flat_map(|dir| [dir.join(PRELOAD), dir.join("deps").join(PRELOAD)]);
        // The newer one: cargo refreshes either, by what it was asked to build.
        let preload =
            places.filter(|path| path.is_file()).max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok());
        Ok(Self { executable, preload, bug: None })
    }

    fn command(&self, side: Side, profile: Profile, arguments: &[String]) -> io::Result<Command> {
        let mut command = Command::new(&self.executable);
        command.args([worker::ARGUMENT, "--side", side.name()]).args(arguments);
        if profile == Profile::Engine {
            command.arg("--engine-programs");
        }
        if let Some(bug) = self.bug.filter(|_| side != Side::Kernel) {
            command.args(["--bug", bug.name()]);
        }
        command.env_remove("LD_PRELOAD");
        if side == Side::Interposed {
            let library = self.preload.clone().ok_or_else(|| io::Error::other(format!("{PRELOAD} is not built")))?;
            command.env("LD_PRELOAD", OsString::from(library));
        }
        Ok(command)
    }

    /// The trace of some programs on a side; what ended the worker if something did.
    ///
    /// # Errors
    /// If the worker could not be started.
    pub fn trace(&self, side: Side, profile: Profile, programs: &[Program]) -> io::Result<Result<Trace, String>> {
        let mut child = self
            .command(side, profile, &["--given".to_string()])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let text = serde_json::to_vec(programs)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A worker that has gone already is told by its status.
            let _ = stdin.write_all(&text);
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()));
        }
        let how = ending(output.status);
        let complaint = String::from_utf8_lossy(&output.stderr);
        Ok(Err(format!("{how}: {}", complaint.lines().next().unwrap_or(""))))
    }
}

fn ending(status: std::process::ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGALRM) => "a call did not return".to_string(),
        Some(signal) => format!("signal {signal}"),
        None => format!("{status}"),
    }
}

/// Two sides, and the programs they are to run.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The one that is compared with the kernel.
    pub side: Side,
    /// What programs.
    pub profile: Profile,
}

impl Pair {
    /// The kernel and this side.
    pub fn new(side: Side) -> Self {
        Self { side, profile: worker::profile_of(side) }
    }
}

/// How much to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Operations at least.
    pub operations: Option<u64>,
    /// Time at most.
    pub time: Option<Duration>,
    /// How many pairs of workers at a time.
    pub jobs: u32,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Compared.
    pub operations: u64,
    /// Not made, on either side.
    pub skipped: u64,
    /// Programs.
    pub programs: u64,
    /// How long it took.
    pub time: Duration,
    /// What was covered, by the kernel's side.
    pub coverage: Coverage,
    /// Where two workers differed.
    pub diverging: Vec<Divergence>,
}

/// Where two workers differed.
#[derive(Clone, Copy, Debug)]
pub struct Divergence {
    /// The seed of the first program that the workers ran.
    pub start: u64,
    /// How many they had run without a difference.
    pub agreed: u64,
}

/// Blocks a pair of workers does before it is replaced: long enough for what piles up to show, short enough to end in time.
const BLOCKS: u64 = 16;
/// Operations that a program has, about.
const OPERATIONS: u64 = 150;

/// Runs programs of seeds from `first` on, until there are enough or something differs.
///
/// # Errors
/// If a worker could not be started.
pub fn run(setup: &Setup, pair: Pair, first: u64, extent: Extent) -> io::Result<Outcome> {
    let began = Instant::now();
    let (next, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let job = || -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        while !stop.load(Ordering::Relaxed)
            && extent.operations.is_none_or(|most| done.load(Ordering::Relaxed) < most)
            && extent.time.is_none_or(|most| began.elapsed() < most)
        {
            let left = extent.operations.map_or(u64::MAX, |most| most.saturating_sub(done.load(Ordering::Relaxed)));
            let blocks = (left / (OPERATIONS * BLOCK)).clamp(1, BLOCKS);
            let start = first.wrapping_add(next.fetch_add(blocks, Ordering::Relaxed) * BLOCK);
            batch(setup, pair, start, blocks, &mut outcome, &done)?;
            if !outcome.diverging.is_empty() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(outcome)
    };
    let outcomes: Vec<io::Result<Outcome>> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..extent.jobs.max(1)).map(|_| scope.spawn(job)).collect();
        jobs.into_iter().map(|job| job.join().unwrap_or_else(|_| Err(io::Error::other("a job panicked")))).collect()
    });
    let mut total = Outcome::default();
    for outcome in outcomes {
        let outcome = outcome?;
        total.operations += outcome.operations;
        total.skipped += outcome.skipped;
        total.programs += outcome.programs;
        total.coverage.add(outcome.coverage);
        total.diverging.extend(outcome.diverging);
    }
    total.time = began.elapsed();
    Ok(total)
}

/// A worker that runs blocks.
struct Running {
    child: Child,
    stdout: ChildStdout,
}

impl Running {
    fn start(
        setup: &Setup,
        side: Side,
        profile: Profile,
        start: u64,
        blocks: u64,
        len: u64,
        counts: bool,
    ) -> io::Result<Self> {
        let arguments = [("--first", start), ("--blocks", blocks), ("--len", len)];
        let mut arguments: Vec<_> = arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if counts {
            arguments.push("--count".to_string());
        }
        let mut child =
            setup.command(side, profile, &arguments)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        Ok(Self { child, stdout })
    }

    /// `None`: it has ended.
    fn next(&mut self) -> Option<Word> {
        let mut bytes = [0; Word::LEN];
        self.stdout.read_exact(&mut bytes).ok().map(|()| Word::from_bytes(bytes))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One pair of workers.
fn batch(
    setup: &Setup,
    pair: Pair,
    start: u64,
    blocks: u64,
    outcome: &mut Outcome,
    done: &AtomicU64,
) -> io::Result<()> {
    let mut kernel = Running::start(setup, Side::Kernel, pair.profile, start, blocks, BLOCK, true)?;
    let mut other = Running::start(setup, pair.side, pair.profile, start, blocks, BLOCK, false)?;
    for block in 0..blocks {
        let (Some(expected), Some(got)) = (kernel.next(), other.next()) else {
            outcome.diverging.push(Divergence { start, agreed: block * BLOCK });
            return Ok(());
        };
        if expected != got {
            outcome.diverging.push(Divergence { start, agreed: block * BLOCK });
            return Ok(());
        }
        outcome.operations += expected.operations;
        outcome.skipped += expected.skipped;
        outcome.programs += BLOCK;
        done.fetch_add(expected.operations, Ordering::Relaxed);
    }
    let mut counts = String::new();
    kernel.stdout.read_to_string(&mut counts)?;
    if let Ok(coverage) = serde_json::from_str(&counts) {
        outcome.coverage.add(coverage);
    }
    Ok(())
}

/// The programs that make the sides differ: one alone if there is such a one, else the fewest in a row, because what differs
/// depends on what was before. Nothing if they no longer differ.
///
/// # Errors
/// If a worker could not be started.
pub fn find(setup: &Setup, pair: Pair, divergence: Divergence) -> io::Result<Vec<Program>> {
    let program = |i: u64| {
        let mut program = Program::default();
        worker::program_of(divergence.start.wrapping_add(i), pair.profile, &mut program);
        program
    };
    let in_a_row = |from: u64, to: u64| -> io::Result<bool> {
        let start = divergence.start.wrapping_add(from);
        let word = |side| -> io::Result<Option<Word>> {
            Ok(Running::start(setup, side, pair.profile, start, 1, to - from, false)?.next())
        };
        Ok(word(Side::Kernel)? != word(pair.side)?)
    };
    // The first one behind which they differ,
    let (mut low, mut high) = (divergence.agreed, divergence.agreed + BLOCK);
    if !in_a_row(0, high)? {
        return Ok(Vec::new());
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if in_a_row(0, middle)? { &mut high } else { &mut low }) = middle;
    }
    let last = high;
    // and the last one from which on they do.
    let (mut low, mut high) = (0, last);
    let mut back = 1;
    while back < last {
        if in_a_row(last - back, last)? {
            (low, high) = (last - back, last - back / 2);
            break;
        }
        back *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if in_a_row(middle, last)? { &mut low } else { &mut high }) = middle;
    }
    Ok((low..last).map(program).collect())
}

/// Whether the two sides disagree about programs.
///
/// # Errors
/// If a worker could not be started.
pub fn differs(setup: &Setup, pair: Pair, programs: &[Program]) -> io::Result<bool> {
    let expected = setup.trace(Side::Kernel, pair.profile, programs)?;
    let got = setup.trace(pair.side, pair.profile, programs)?;
    // Where the kernel's side did not come to its end nothing was compared.
    Ok(expected.is_err() || expected != got)
}
