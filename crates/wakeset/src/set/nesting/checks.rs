//! The checks that an add makes which joins two sets, or a source to a set that is watched.

use crate::error::Error;
use crate::set::base::set_core::SetCore;
use crate::set::nesting::seen::{MAX_STEPS, Round, Ways};
use crate::wake::source::Source;
use crate::wake::wait_queue::WaitQueue;
use alloc::vec::Vec;
use core::ptr;

/// How many ways of each length may lead from one source up to sets that nobody watches. Ways of no
/// step at all, from a source straight to such a set, are not counted, which is why Linux's first
/// limit (1000) never shows.
const PATH_LIMITS: [usize; MAX_STEPS + 1] = [1000, 500, 100, 50, 10];

/// Whether `inner` may be put into `outer`. `rounds` is what the nesting lock guards.
///
/// # Errors
/// [`Error::Loop`] (ELOOP) if `outer` can be reached from `inner`, or the chain through both would
/// have more than five sets; [`Error::NoMemory`].
pub(crate) fn check_loop(
    rounds: &mut usize,
    outer: &SetCore,
    inner: &SetCore,
) -> Result<(), Error> {
    let below = steps_below(Round::begin(rounds), inner, outer, 0)?;
    let ways = ways_up(Round::begin(rounds), outer)?;
    let above = ways.iter().rposition(|ways| *ways != 0).unwrap_or(0);
    if below + 1 + above > MAX_STEPS { Err(Error::Loop) } else { Ok(()) }
}

fn steps_below(round: Round, set: &SetCore, never: &SetCore, depth: usize) -> Result<usize, Error> {
    if ptr::eq(set, never) || depth > MAX_STEPS {
        return Err(Error::Loop);
    }
    if let Some(steps) = set.seen.steps(round) {
        return Ok(steps);
    }
    let mut inner = Sets::default();
    set.for_each(|_, source, _, _| {
        // SAFETY: a source removes its watches, under the set's lock, before it goes.
        if let Some(set) = unsafe { &*source }.as_set() {
            inner.push(SetCore::of(set));
        }
    });
    let mut steps = 0;
    for set in inner.all()? {
        // SAFETY: sets are type-stable.
        steps = steps.max(1 + steps_below(round, unsafe { &*set }, never, depth + 1)?);
    }
    set.seen.note_steps(round, steps);
    Ok(steps)
}

/// How many ways of each length lead from `set` up to sets that nobody watches.
///
/// # Errors
/// [`Error::Loop`] if one is too long; [`Error::NoMemory`].
fn ways_up(round: Round, set: &SetCore) -> Result<Ways, Error> {
    if let Some(ways) = set.seen.ways(round) {
        return Ok(ways);
    }
    let mut ways: Ways = [0; MAX_STEPS + 1];
    let outer = sets_watching(&set.wake.queue)?;
    if outer.is_empty() {
        ways[0] = 1;
    }
    for outer in outer {
        // SAFETY: sets are type-stable.
        let [shorter @ .., longest] = ways_up(round, unsafe { &*outer })?;
        if longest != 0 {
            return Err(Error::Loop);
        }
        for (ways, more) in ways[1..].iter_mut().zip(shorter) {
            *ways = ways.saturating_add(more);
        }
    }
    set.seen.note_ways(round, ways);
    Ok(ways)
}

/// Whether the watch that was just put into the queue of `source` leaves every source it concerns
/// within the path limits.
///
/// # Errors
/// [`Error::Invalid`] (EINVAL) if not; [`Error::NoMemory`].
pub(crate) fn check_paths(rounds: &mut usize, source: &dyn Source) -> Result<(), Error> {
    let up = Round::begin(rounds);
    match source.as_set().map(SetCore::of) {
        None => check_paths_of(up, source.wait_queue()),
        Some(set) => {
            each_leaf(Round::begin(rounds), set, &mut |leaf| check_paths_of(up, leaf.wait_queue()))
        }
    }
}

fn each_leaf(
    round: Round,
    set: &SetCore,
    f: &mut dyn FnMut(&dyn Source) -> Result<(), Error>,
) -> Result<(), Error> {
    if set.seen.steps(round).is_some() {
        return Ok(());
    }
    set.seen.note_steps(round, 0);
    let mut inner = Sets::default();
    let mut result = Ok(());
    // Under the set's lock, so that no leaf goes away meanwhile. `f` takes wait queues' own locks
    // only.
    set.for_each(|_, source, _, _| {
        // SAFETY: a source removes its watches, under the set's lock, before it goes.
        let source = unsafe { &*source };
        match source.as_set().map(SetCore::of) {
            Some(set) => inner.push(set),
            None if result.is_ok() => result = f(source),
            None => {}
        }
    });
    for set in inner.all()? {
        // SAFETY: sets are type-stable.
        result = result.and_then(|()| each_leaf(round, unsafe { &*set }, f));
    }
    result
}

fn check_paths_of(round: Round, queue: &WaitQueue) -> Result<(), Error> {
    let mut counts: Ways = [0; MAX_STEPS + 1];
    let mut add = |ways: Ways| {
        for (count, ways) in counts.iter_mut().zip(ways) {
            *count = count.saturating_add(ways);
        }
    };
    // Those that are known need no other lock, and most are.
    let mut unknown = Sets::default();
    queue.each_set(|set| {
        let set = SetCore::of(set);
        match set.seen.ways(round) {
            Some(ways) => add(ways),
            None => unknown.push(set),
        }
        true
    });
    for set in unknown.all()? {
        // SAFETY: sets are type-stable.
        add(ways_up(round, unsafe { &*set })?);
    }
    let mut beyond =
        counts.iter().zip(PATH_LIMITS).skip(1).filter(|(count, limit)| **count > *limit);
    if beyond.next().is_some() { Err(Error::Invalid) } else { Ok(()) }
}

/// The sets that watch the owner of `queue`, one entry for each watch.
fn sets_watching(queue: &WaitQueue) -> Result<Vec<*const SetCore>, Error> {
    let mut sets = Sets::default();
    queue.each_set(|set| {
        sets.push(SetCore::of(set));
        !sets.refused
    });
    sets.all()
}

/// Sets gathered under a lock, to be looked at without it.
#[derive(Default)]
struct Sets {
    sets: Vec<*const SetCore>,
    /// There was no memory for one.
    refused: bool,
}

impl Sets {
    fn push(&mut self, set: *const SetCore) {
        match self.sets.try_reserve(1) {
            Ok(()) => self.sets.push(set),
            Err(_) => self.refused = true,
        }
    }

    fn all(self) -> Result<Vec<*const SetCore>, Error> {
        if self.refused { Err(Error::NoMemory) } else { Ok(self.sets) }
    }
}
