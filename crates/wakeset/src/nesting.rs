//! Sets in sets: no circles, not too deep, not too many ways from a source to a waiter.
//!
//! Only an add that puts a set into a set, or anything into a set that another set watches, comes here. It holds the
//! engine's nesting lock throughout, so the graph of sets gains no edge while it is looked at; it may lose some, which only
//! makes the check too strict for that moment, as in Linux.
//!
//! The lock is the engine's, because whether an edge closes a circle, or is one way too many from a source, depends on edges anywhere, and
//! two adds in different places can each be right and together wrong. How long it is held: each set below and above is looked at
//! once (`Round`), so that is O(their watches); and from each source below all ways up are counted, at most the limits' sum, 660, of at most
//! five steps, and one step for each set that nobody watches.

use crate::error::Error;
use crate::set::SetCore;
use crate::source::Source;
use crate::sync::{Ordering, UnmodelledUsize};
use crate::wait_queue::WaitQueue;
use alloc::vec::Vec;
use core::ptr;

/// The most steps from a set down to the lowest one below it: five sets in a chain.
const MAX_STEPS: usize = 4;

/// How many ways of each length may lead from one source up to sets that nobody watches. Ways of no step at all, from a
/// source straight to such a set, are not counted, which is why Linux's first limit (1000) never shows.
const PATH_LIMITS: [usize; MAX_STEPS + 1] = [1000, 500, 100, 50, 10];

/// A walk through the sets below or above one, for the holder of the nesting lock. Without it a set would be looked at once for each way
/// that leads to it, of which there may be millions: sets without a source in them count in no path limit.
#[derive(Clone, Copy)]
struct Round(usize);

/// What a walk has found out about a set. Guarded by the nesting lock.
#[derive(Debug)]
pub(crate) struct Seen {
    round: UnmodelledUsize,
    steps: UnmodelledUsize,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self { round: UnmodelledUsize::new(0), steps: UnmodelledUsize::new(0) }
    }
}

impl Round {
    fn begin(rounds: &mut usize) -> Self {
        *rounds += 1;
        Self(*rounds)
    }

    /// What was noted for the set in this round.
    fn of(self, set: &SetCore) -> Option<usize> {
        let seen = &set.seen;
        (seen.round.load(Ordering::Relaxed) == self.0).then(|| seen.steps.load(Ordering::Relaxed))
    }

    fn note(self, set: &SetCore, steps: usize) {
        set.seen.steps.store(steps, Ordering::Relaxed);
        set.seen.round.store(self.0, Ordering::Relaxed);
    }
}

/// Whether `inner` may be put into `outer`. `rounds` is what the nesting lock guards.
///
/// # Errors
/// [`Error::Loop`] (ELOOP) if `outer` can be reached from `inner`, or the chain through both would have more than five sets;
/// [`Error::NoMemory`].
pub(crate) fn check_loop(rounds: &mut usize, outer: &SetCore, inner: &SetCore) -> Result<(), Error> {
    let below = steps_below(Round::begin(rounds), inner, outer, 0)?;
    let above = steps_above(Round::begin(rounds), outer, 0)?;
    if below + 1 + above > MAX_STEPS { Err(Error::Loop) } else { Ok(()) }
}

fn steps_below(round: Round, set: &SetCore, never: &SetCore, depth: usize) -> Result<usize, Error> {
    if ptr::eq(set, never) || depth > MAX_STEPS {
        return Err(Error::Loop);
    }
    if let Some(steps) = round.of(set) {
        return Ok(steps);
    }
    let mut inner = Sets::default();
    set.for_each(|_, source, _, _| {
        // SAFETY: a source removes its watches, under the set's lock, before it goes.
        if let Some(set) = unsafe { &*source }.as_set() {
            inner.push(set);
        }
    });
    let mut steps = 0;
    for set in inner.all()? {
        // SAFETY: sets are type-stable.
        steps = steps.max(1 + steps_below(round, unsafe { &*set }, never, depth + 1)?);
    }
    round.note(set, steps);
    Ok(steps)
}

fn steps_above(round: Round, set: &SetCore, depth: usize) -> Result<usize, Error> {
    if depth > MAX_STEPS {
        return Err(Error::Loop);
    }
    if let Some(steps) = round.of(set) {
        return Ok(steps);
    }
    let mut steps = 0;
    for outer in sets_watching(&set.queue)? {
        // SAFETY: sets are type-stable.
        steps = steps.max(1 + steps_above(round, unsafe { &*outer }, depth + 1)?);
    }
    round.note(set, steps);
    Ok(steps)
}

/// Whether the watch that was just put into the queue of `source` leaves every source it concerns within the path limits.
///
/// # Errors
/// [`Error::Invalid`] (EINVAL) if not; [`Error::NoMemory`].
pub(crate) fn check_paths(rounds: &mut usize, source: &dyn Source) -> Result<(), Error> {
    match source.as_set() {
        None => check_paths_of(source.wait_queue()),
        Some(set) => each_leaf(Round::begin(rounds), set, &mut |leaf| check_paths_of(leaf.wait_queue())),
    }
}

fn each_leaf(round: Round, set: &SetCore, f: &mut dyn FnMut(&dyn Source) -> Result<(), Error>) -> Result<(), Error> {
    if round.of(set).is_some() {
        return Ok(());
    }
    round.note(set, 0);
    let mut inner = Sets::default();
    let mut result = Ok(());
    // Under the set's lock, so that no leaf goes away meanwhile. `f` takes wait queues' own locks only.
    set.for_each(|_, source, _, _| {
        // SAFETY: a source removes its watches, under the set's lock, before it goes.
        let source = unsafe { &*source };
        match source.as_set() {
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

fn check_paths_of(queue: &WaitQueue) -> Result<(), Error> {
    count_paths(queue, 0, &mut [0; MAX_STEPS + 1])
}

fn count_paths(queue: &WaitQueue, steps: usize, counts: &mut [usize; MAX_STEPS + 1]) -> Result<(), Error> {
    if steps > MAX_STEPS {
        return Err(Error::Invalid);
    }
    for set in sets_watching(queue)? {
        // SAFETY: sets are type-stable.
        let outer = unsafe { &(*set).queue };
        if !outer.has_watches() {
            if steps > 0 {
                counts[steps] += 1;
                if counts[steps] > PATH_LIMITS[steps] {
                    return Err(Error::Invalid);
                }
            }
        } else {
            count_paths(outer, steps + 1, counts)?;
        }
    }
    Ok(())
}

/// The sets that watch the owner of `queue`, one entry for each watch.
fn sets_watching(queue: &WaitQueue) -> Result<Vec<*const SetCore>, Error> {
    let mut sets = Sets::default();
    queue.each_set(|set| {
        sets.push(set);
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
