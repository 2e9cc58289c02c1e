//! Finds the programs that make two sides differ, when the words of a block do.

use super::limit;
use super::run::{Divergence, Pair, Running, Said};
use super::setup::Setup;
use super::worker::{self, BLOCK};
use crate::program::Program;
use crate::program::shrink::shrink;
use crate::world::Side;
use std::io;
use std::time::{Duration, Instant};

/// How much longer than the kernel's side another one may take while the programs are looked for
/// on which it does not end: each of them costs that much.
const SLACK_OF_RANGE: Duration = Duration::from_secs(3);
/// The same while such a program is shrunk.
const SLACK_OF_PROGRAM: Duration = Duration::from_secs(2);

/// How long a program is shrunk.
const SHRINK: Duration = Duration::from_secs(60);

/// Programs that make two sides differ.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The seed of the first.
    pub seed: u64,
    /// The programs, which have consecutive seeds.
    pub programs: Vec<Program>,
}

/// The programs that make the sides differ: a single one where that is enough, else the fewest
/// consecutive ones, because a difference may depend on the programs before. None if the sides no
/// longer differ; the programs of several threads are looked at in one.
///
/// # Errors
/// If a worker could not be started.
pub fn find(setup: &Setup, pair: Pair, divergence: Divergence) -> io::Result<Found> {
    let pair = pair.in_threads(1);
    let slack = match divergence.endless {
        Some(_) => SLACK_OF_RANGE.min(setup.slack),
        None => setup.slack,
    };
    let differ = |from, to| differ_on_range(setup, pair, slack, divergence.start, from, to);
    let Some(last) = first_end(&divergence, differ)? else { return Ok(Found::default()) };
    let first = last_begin(last, differ)?;
    let program = |i: u64| {
        let mut program = Program::default();
        worker::program_of(divergence.start.wrapping_add(i), pair.profile, &mut program);
        program
    };
    let seed = divergence.start.wrapping_add(first);
    Ok(Found { seed, programs: (first..last).map(program).collect() })
}

/// Whether the sides differ on the programs `from..to`, counted from the seed `start`, that one
/// worker of each side runs one after the other.
fn differ_on_range(
    setup: &Setup,
    pair: Pair,
    slack: Duration,
    start: u64,
    from: u64,
    to: u64,
) -> io::Result<bool> {
    let start = start.wrapping_add(from);
    let word = |side, most| -> io::Result<Said> {
        Ok(Running::start(setup, side, pair, start, 1, to - from, false)?.next(most))
    };
    let began = Instant::now();
    let expected = word(Side::Kernel, limit::BLOCK)?;
    let most = limit::beside(began.elapsed(), slack);
    Ok(expected.is_less() || expected != word(pair.side, most)?)
}

/// The smallest number of programs, counted from the first, on which the sides differ.
fn first_end(
    divergence: &Divergence,
    differ: impl Fn(u64, u64) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    let (mut low, mut high) = (divergence.agreed, divergence.agreed + BLOCK);
    if !differ(0, high)? {
        return Ok(None);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if differ(0, middle)? { &mut high } else { &mut low }) = middle;
    }
    Ok(Some(high))
}

/// The last program from which on the sides differ up to `last`.
fn last_begin(last: u64, differ: impl Fn(u64, u64) -> io::Result<bool>) -> io::Result<u64> {
    let (mut low, mut high) = (0, last);
    let mut back = 1;
    while back < last {
        if differ(last - back, last)? {
            (low, high) = (last - back, last - back / 2);
            break;
        }
        back *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if differ(middle, last)? { &mut low } else { &mut high }) = middle;
    }
    Ok(low)
}

/// Whether the two sides disagree about programs.
///
/// # Errors
/// If a worker could not be started.
pub fn differs(setup: &Setup, pair: Pair, programs: &[Program]) -> io::Result<bool> {
    differs_within(setup.slack, setup, pair, programs)
}

fn differs_within(
    slack: Duration,
    setup: &Setup,
    pair: Pair,
    programs: &[Program],
) -> io::Result<bool> {
    let began = Instant::now();
    let expected = setup.trace(Side::Kernel, pair.profile, programs)?;
    let most = limit::beside(began.elapsed(), slack);
    let got = setup.trace_within(most, pair.side, pair.profile, programs)?;
    // If the kernel's side did not come to its end, nothing was compared.
    Ok(expected.is_err() || expected != got)
}

/// The smallest program that makes the sides differ as these do, one after the other, or the
/// smallest that could be found in a minute. `None` if they no longer differ.
pub fn smallest(setup: &Setup, pair: Pair, programs: &[Program]) -> Option<Program> {
    let joined = crate::program::join(programs);
    let differs = |slack: Duration, program: &Program| {
        differs_within(slack, setup, pair, std::slice::from_ref(program)).unwrap_or(false)
    };
    if !differs(setup.slack, &joined) {
        return None;
    }
    let (began, slack) = (Instant::now(), SLACK_OF_PROGRAM.min(setup.slack));
    let small =
        shrink(joined.clone(), |program| began.elapsed() < SHRINK && differs(slack, program));
    // On a busy machine a program may have been taken for one that does not end.
    Some(if differs(setup.slack, &small) { small } else { joined })
}
