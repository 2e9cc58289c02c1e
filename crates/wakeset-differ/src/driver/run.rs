//! Runs pairs of workers, one for the kernel and one for another side, and compares their words.

use super::limit;
use super::setup::{Setup, is_watchdog};
use super::worker::{self, BLOCK, Word};
use crate::outcome::Coverage;
use crate::program::{Focus, Profile};
use crate::world::Side;
use std::io::{self, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The kernel and another side, and the programs they run.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The side that is compared with the kernel.
    pub side: Side,
    /// What the programs may use.
    pub profile: Profile,
    /// How many threads of each worker run programs at a time.
    pub threads: u32,
}

impl Pair {
    /// The kernel and this side, with programs about anything.
    pub fn new(side: Side) -> Self {
        Self::about(side, Focus::Anything)
    }

    /// The kernel and this side, with programs that are mostly about `focus`.
    ///
    /// The sides that take every road have programs about that, unless told otherwise.
    pub fn about(side: Side, focus: Focus) -> Self {
        let focus = match focus {
            Focus::Anything if side == Side::RoadsInstruction => Focus::Instructions,
            Focus::Anything if side.takes_roads() => Focus::Roads,
            focus => focus,
        };
        Self { side, profile: Profile { calls: worker::calls_of(side), focus }, threads: 1 }
    }

    /// The same programs, in so many threads of a worker.
    pub fn in_threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }
}

/// How much to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// The least number of operations.
    pub operations: Option<u64>,
    /// The longest time.
    pub time: Option<Duration>,
    /// How many pairs of workers run at a time.
    pub jobs: u32,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Operations that were compared.
    pub operations: u64,
    /// Calls that were not made, on either side.
    pub skipped: u64,
    /// Programs.
    pub programs: u64,
    /// How long the run took.
    pub time: Duration,
    /// What was covered, counted by the kernel's side.
    pub coverage: Coverage,
    /// Where workers differed.
    pub diverging: Vec<Divergence>,
}

/// Where two workers differed.
#[derive(Clone, Copy, Debug)]
pub struct Divergence {
    /// The seed of the first program that the workers ran.
    pub start: u64,
    /// How many programs they had run without a difference.
    pub agreed: u64,
    /// The side whose worker did not come to the end of its block, if one did not.
    pub endless: Option<Side>,
}

/// Blocks that a pair of workers runs before it is replaced: enough for what accumulates to show,
/// and few enough to end in time.
const BLOCKS: u64 = 16;
/// The same for workers that take every road: what they do once is done by many of them.
const BLOCKS_OF_ROADS: u64 = 2;
/// About how many operations a program has.
const OPERATIONS: u64 = 150;

/// Runs the programs of the seeds from `first` on, until there are enough or something differs.
///
/// # Errors
/// If a worker could not be started.
pub fn run(setup: &Setup, pair: Pair, first: u64, extent: Extent) -> io::Result<Summary> {
    let jobs = Jobs {
        setup,
        pair,
        first,
        extent,
        began: Instant::now(),
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let summaries: Vec<io::Result<Summary>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..extent.jobs.max(1)).map(|_| scope.spawn(|| jobs.work())).collect();
        threads
            .into_iter()
            .map(|job| job.join().unwrap_or_else(|_| Err(io::Error::other("a job panicked"))))
            .collect()
    });
    let mut total = Summary::default();
    for summary in summaries {
        total.add(summary?);
    }
    total.time = jobs.began.elapsed();
    Ok(total)
}

impl Summary {
    fn add(&mut self, other: Summary) {
        self.operations += other.operations;
        self.skipped += other.skipped;
        self.programs += other.programs;
        self.coverage.add(other.coverage);
        self.diverging.extend(other.diverging);
    }
}

/// What the threads of a run share. Each of them looks after one pair of workers at a time.
struct Jobs<'a> {
    setup: &'a Setup,
    pair: Pair,
    first: u64,
    extent: Extent,
    began: Instant,
    /// Blocks that have been given out.
    next: AtomicU64,
    /// Operations that have been compared.
    done: AtomicU64,
    stop: AtomicBool,
}

impl Jobs<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.extent.operations.is_some_and(|n| self.done.load(Ordering::Relaxed) >= n)
            || self.extent.time.is_some_and(|time| self.began.elapsed() >= time)
    }

    fn work(&self) -> io::Result<Summary> {
        let mut summary = Summary::default();
        let most = if self.pair.side.takes_roads() { BLOCKS_OF_ROADS } else { BLOCKS };
        while !self.is_over() {
            let done = self.done.load(Ordering::Relaxed);
            let left = self.extent.operations.map_or(u64::MAX, |n| n.saturating_sub(done));
            let blocks = (left / (OPERATIONS * BLOCK)).clamp(1, most);
            let block = self.next.fetch_add(blocks, Ordering::Relaxed);
            self.compare(self.first.wrapping_add(block * BLOCK), blocks, &mut summary)?;
            if !summary.diverging.is_empty() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(summary)
    }

    /// Runs one pair of workers to its end, or up to the first block on which they differ.
    fn compare(&self, start: u64, blocks: u64, summary: &mut Summary) -> io::Result<()> {
        let pair = self.pair;
        let worker =
            |side, counts| Running::start(self.setup, side, pair, start, blocks, BLOCK, counts);
        let mut kernel = worker(Side::Kernel, pair.threads == 1)?;
        let mut other = worker(pair.side, false)?;
        for block in 0..blocks {
            let began = Instant::now();
            let expected = kernel.next(limit::BLOCK);
            let got = other.next(limit::beside(began.elapsed(), self.setup.slack));
            let (Said::Word(expected), true) = (expected, expected == got) else {
                // A worker that has ended before its time is a difference too, and so is one that
                // does not end.
                let endless = [(expected, Side::Kernel), (got, pair.side)];
                let endless = endless.into_iter().find(|(said, _)| *said == Said::Nothing);
                let endless = endless.map(|(_, side)| side);
                summary.diverging.push(Divergence { start, agreed: block * BLOCK, endless });
                return Ok(());
            };
            summary.operations += expected.operations;
            summary.skipped += expected.skipped;
            summary.programs += BLOCK;
            self.done.fetch_add(expected.operations, Ordering::Relaxed);
        }
        let mut counts = String::new();
        kernel.stdout.read_to_string(&mut counts)?;
        if let Ok(coverage) = serde_json::from_str(&counts) {
            summary.coverage.add(coverage);
        }
        Ok(())
    }
}

/// What a worker says about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Word(Word),
    /// It has ended before its time.
    Ended,
    /// It does not end.
    Nothing,
}

impl Said {
    /// Whether it is not a word.
    pub fn is_less(self) -> bool {
        !matches!(self, Self::Word(_))
    }
}

/// A worker that runs blocks.
pub(super) struct Running {
    child: Child,
    stdout: ChildStdout,
}

impl Running {
    /// A worker of one side of a pair, for `blocks` blocks of `len` programs each, of the seeds
    /// from `start` on. With `counts` it writes its [`Coverage`] after the last block.
    pub fn start(
        setup: &Setup,
        side: Side,
        pair: Pair,
        start: u64,
        blocks: u64,
        len: u64,
        counts: bool,
    ) -> io::Result<Self> {
        let arguments = [("--first", start), ("--blocks", blocks), ("--len", len)];
        let mut arguments: Vec<_> =
            arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if counts {
            arguments.push("--count".to_string());
        }
        if pair.threads > 1 {
            arguments.push(format!("--threads={}", pair.threads));
        }
        let mut child = setup
            .command(side, pair.profile, &arguments)?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        Ok(Self { child, stdout })
    }

    /// The word of the next block. A worker that takes longer for it than `most` is killed.
    pub fn next(&mut self, most: Duration) -> Said {
        let mut bytes = [0; Word::LEN];
        let Self { child, stdout } = self;
        match limit::within(most, child, || stdout.read_exact(&mut bytes)) {
            (Ok(()), _) => Said::Word(Word::from_bytes(bytes)),
            (Err(_), true) => Said::Nothing,
            (Err(_), false) if child.wait().is_ok_and(is_watchdog) => Said::Nothing,
            (Err(_), false) => Said::Ended,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            limit::end(&self.child);
            let _ = self.child.wait();
        }
    }
}
