//! Finds the programs that make two sides differ, when the words of a block do.

use super::run::{Divergence, Pair, Running};
use super::setup::Setup;
use super::worker::{self, BLOCK, Word};
use crate::program::Program;
use crate::program::shrink::shrink;
use crate::world::Side;
use std::io;

/// The programs that make the sides differ: a single one where that is enough, else the fewest
/// consecutive ones, because a difference may depend on the programs before. Empty if the sides no
/// longer differ; the programs of several threads are looked at in one.
///
/// # Errors
/// If a worker could not be started.
pub fn find(setup: &Setup, pair: Pair, divergence: Divergence) -> io::Result<Vec<Program>> {
    let pair = pair.in_threads(1);
    let differ = |from, to| differ_on_range(setup, pair, divergence.start, from, to);
    let Some(last) = first_end(&divergence, differ)? else { return Ok(Vec::new()) };
    let first = last_begin(last, differ)?;
    let program = |i: u64| {
        let mut program = Program::default();
        worker::program_of(divergence.start.wrapping_add(i), pair.profile, &mut program);
        program
    };
    Ok((first..last).map(program).collect())
}

/// Whether the sides differ on the programs `from..to`, counted from the seed `start`, that one
/// worker of each side runs one after the other.
fn differ_on_range(setup: &Setup, pair: Pair, start: u64, from: u64, to: u64) -> io::Result<bool> {
    let start = start.wrapping_add(from);
    let word = |side| -> io::Result<Option<Word>> {
        Ok(Running::start(setup, side, pair, start, 1, to - from, false)?.next())
    };
    Ok(word(Side::Kernel)? != word(pair.side)?)
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
    let expected = setup.trace(Side::Kernel, pair.profile, programs)?;
    let got = setup.trace(pair.side, pair.profile, programs)?;
    // If the kernel's side did not come to its end, nothing was compared.
    Ok(expected.is_err() || expected != got)
}

/// The smallest program that makes the sides differ as these do, one after the other. `None` if
/// they no longer differ.
pub fn smallest(setup: &Setup, pair: Pair, programs: &[Program]) -> Option<Program> {
    let joined = crate::program::join(programs);
    let differs =
        |program: &Program| differs(setup, pair, std::slice::from_ref(program)).unwrap_or(false);
    differs(&joined).then(|| shrink(joined, differs))
}
