//! What related processes know of declined connections, and what a waiter has done about them.
//!
//! Rounds count up: each decline begins one. By the [note](super::note_of) of a listener, the
//! shared memory has the latest round in which a connection was *left* there, the latest of those
//! that nobody answers for (*urgent*), and the latest that had begun before a look which found the
//! listener *empty*. A number is only ever raised, so two that write at the same time leave the
//! higher one, and what was declined after a look stays declined.
//!
//! A note is one listener's, but for [`OTHERS`]: one of them may be empty while another is not. So
//! a look says nothing of those, and each waiter passes the baton on for them.
//!
//! A decline writes what it is about, and then the number of its round. A process that is killed
//! between leaves numbers above that of the round, which count for nothing until a later decline
//! begins that round; `any` is set by then, so that the next look which finds the listener empty
//! ends it.

use super::names::{Notes, OTHERS};
use crate::kernel_half::listeners::shared_hint::{self, Declined};
use crate::sys;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wakeset::mutated;
use wakeset_group::listener::inode;

/// Notes of listeners.
pub(in super::super) const NOTES: usize = 64;

/// How often a decline tries to begin a round of its own, where others do at the same time.
const MOST_TRIES: u32 = 1000;

/// By note, a round, 0 for none; or a count.
type ByNote = [AtomicU64; NOTES];

/// The indices of these notes.
fn each(mut notes: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let next = (notes != 0).then(|| notes.trailing_zeros() as usize);
        notes &= notes.wrapping_sub(1);
        next
    })
}

/// What there is for these notes.
pub(super) fn of_each(by_note: &ByNote, notes: u64) -> impl Iterator<Item = &AtomicU64> {
    each(notes).filter_map(|note| by_note.get(note))
}

/// These notes, each in its place.
fn all(notes: Notes) -> u64 {
    notes as u64
}

/// These notes but for that which several listeners have.
pub(in super::super) fn of_one(notes: Notes) -> u64 {
    let notes = all(notes);
    if mutated!("others_are_one_listener") { notes } else { notes & !OTHERS }
}

/// A round that was read before this. One that has not begun hides the round before it: its
/// decliner was killed, or has not written the number yet, and asks somebody afterwards. A look in
/// the present round ends that as well. 0 for what is no round at all.
fn begun(declined: &Declined, round: u64) -> u64 {
    let most =
        declined.round.load(SeqCst).saturating_add(mutated!("round_before_it_begins").into());
    match round.saturating_sub(most) {
        0 => round,
        1 if !mutated!("next_round_hides_this") => most,
        _ => 0,
    }
}

/// Raises what is lower than `round`, which is the next one at most, or cannot be a round.
fn raise(declined: &Declined, rounds: &ByNote, notes: u64, round: u64) {
    let is_one = |before: u64| before <= declined.round.load(SeqCst).saturating_add(1);
    let higher = |before: u64| (before < round || !is_one(before)).then_some(round);
    for latest in of_each(rounds, notes) {
        let _ = latest.fetch_update(SeqCst, SeqCst, higher);
    }
}

/// Those of these notes of whose listeners one was left in a round of `left` after `since`, and
/// that were not seen to be empty afterwards.
fn open(declined: &Declined, left: &ByNote, notes: u64, since: u64) -> u64 {
    let round = |rounds: &ByNote, note: usize| {
        rounds.get(note).map_or(0, |latest| begun(declined, latest.load(SeqCst)))
    };
    let is_open = |note: &usize| {
        let left = round(left, *note);
        left > since && left > round(&declined.empty, *note)
    };
    each(notes).filter(is_open).fold(0, |open, note| open | 1 << note)
}

/// Writes what the round `next` will be for.
fn announce(declined: &Declined, notes: u64, urgent: bool, next: u64) {
    if !mutated!("any_after_its_round") {
        declined.any.fetch_or(notes, SeqCst);
    }
    raise(declined, &declined.left, notes, next);
    raise(declined, &declined.urgent, if urgent { notes } else { 0 }, next);
}

/// Begins a round for a connection on the listeners with these notes, which is there. Returns the
/// round before. What is noted comes first: a waiter that knows of the round knows what it is for.
fn begin(notes: Notes, urgent: bool) -> u64 {
    let (notes, declined) = (all(notes), shared_hint::declined());
    for _ in 0..MOST_TRIES {
        let round = declined.round.load(SeqCst);
        let next = round.wrapping_add(1);
        let is_late = mutated!("round_before_its_note");
        if !is_late {
            announce(declined, notes, urgent, next);
        }
        if declined.round.compare_exchange(round, next, SeqCst, SeqCst).is_ok() {
            if is_late {
                sys::sched_yield();
                announce(declined, notes, urgent, next);
            }
            // A look may have taken it away before the round had begun.
            declined.any.fetch_or(notes, SeqCst);
            return round;
        }
    }
    // A process that writes there for ever.
    declined.round.load(SeqCst)
}

/// Begins a round for a connection that nobody answers for.
pub(in super::super) fn begin_round(note: Notes) {
    begin(note, !mutated!("declined_to_any"));
}

/// Whether a connection on one of the listeners with these notes was declined, and is for whoever
/// comes next: nobody else answers for it. Where listeners share a note that has no end, so only
/// the first that are asked take it for urgent ([`Visit::is_urgent`]).
pub(in super::super) fn is_urgent(notes: Notes) -> bool {
    let declined = shared_hint::declined();
    let urgent = open(declined, &declined.urgent, of_one(notes), 0);
    let_looks_end(declined, urgent);
    urgent != 0
}

/// What is open of these notes has the bit by which a look knows of it, unless another process has
/// written there: the next look is to end it all the same.
fn let_looks_end(declined: &Declined, open: u64) {
    if open != 0 && declined.any.load(SeqCst) & open != open {
        declined.any.fetch_or(open, SeqCst);
    }
}

/// Whether something was declined and not seen to be gone. A waiter that ends passes that on: it
/// may have been woken for it.
pub fn has_notes() -> bool {
    let declined = shared_hint::declined();
    open(declined, &declined.left, u64::MAX, 0) != 0 && !mutated!("baton_ends_with_its_waiter")
}

/// Whether there may be such notes: a look at one word.
pub(in super::super) fn may_have_notes() -> bool {
    shared_hint::declined().any.load(SeqCst) != 0
}

/// A look at listeners that is about to begin, and may find them empty.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// What was declined until then was there.
    round: u64,
}

impl Look {
    /// Before it.
    #[inline]
    pub fn begin() -> Self {
        Self { round: shared_hint::declined().round.load(SeqCst) }
    }

    /// Before the look that each waiter makes once in a rescue period. Another process may have
    /// written that something was declined without the bit by which a look knows that it is to end
    /// it. In other looks the bit is enough: this compares all notes.
    pub fn begin_rescue() {
        let declined = shared_hint::declined();
        let is_open = |left| open(declined, left, of_one(u64::MAX.into()), 0);
        if !mutated!("rescue_trusts_a_bit") {
            let_looks_end(declined, is_open(&declined.left) | is_open(&declined.urgent));
        }
    }

    /// It has found none on the listeners with these notes.
    fn saw_none(self, notes: Notes) {
        let (declined, notes) = (shared_hint::declined(), of_one(notes));
        let is_late = mutated!("look_ends_later_rounds");
        let round = if is_late { declined.round.load(SeqCst) } else { self.round };
        raise(declined, &declined.empty, notes, round);
        declined.any.fetch_and(!notes, SeqCst);
        // Of what is declined at the same time, either this or the decliner sets it again.
        declined.any.fetch_or(open(declined, &declined.left, notes, 0), SeqCst);
    }

    /// It has found none on the listeners with these notes, of which something may be known.
    fn ends(self, notes: Notes) {
        if shared_hint::declined().any.load(SeqCst) & of_one(notes) != 0 {
            self.saw_none(notes);
        }
    }

    /// Whether something may be known of the listener with this note, so that a look may end it.
    pub fn may_end(note: Notes) -> bool {
        shared_hint::declined().any.load(SeqCst) & of_one(note) != 0
    }

    /// It has found none on this listener.
    pub fn found_empty(self, fd: i32) {
        if of_one(shared_hint::declined().any.load(SeqCst).into()) != 0 {
            self.ends(super::note_of(inode(fd)));
        }
    }
}

/// What a waiter has done in the latest rounds.
#[derive(Debug)]
pub struct Rounds {
    /// The round in which it was last woken by the baton.
    visited: AtomicU64,
    /// It has passed the baton on since its watch was put at the end of the queue.
    is_due: AtomicBool,
}

/// The first time that the baton has woken a waiter in a round: it looks at its listeners.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    before: u64,
    look: Look,
}

impl Visit {
    /// Those of these notes on whose listeners a connection may have been declined that nobody has
    /// found to be gone.
    pub fn open(&self, notes: Notes) -> u64 {
        let declined = shared_hint::declined();
        open(declined, &declined.left, all(notes), 0)
    }

    /// The waiter has looked at the listeners with these notes and found none there.
    pub fn saw_none(&self, notes: Notes) {
        self.look.saw_none(notes);
    }

    /// Whether a connection on one of the listeners with these notes was declined, and is for this
    /// waiter, whatever it holds. Of listeners that share a note, only if it has not been asked
    /// since: it was told of what was there then, and has had the next asked.
    pub fn is_urgent(&self, notes: Notes) -> bool {
        let (declined, shared) = (shared_hint::declined(), all(notes) & OTHERS);
        let since = if mutated!("others_stay_urgent") { 0 } else { self.before };
        let is_new = || open(declined, &declined.urgent, shared, since) != 0;
        is_urgent(notes) || is_new() && !mutated!("asked_leaves_what_others_declined")
    }

    /// Whether a waiter that has found a connection on the listeners with these notes, and tells
    /// its program, passes the baton on nevertheless. A note may stand for several connections that
    /// were declined, and the program may be busy with one of them for long.
    pub fn asks_more(&self, notes: Notes) -> bool {
        self.is_urgent(notes) && !mutated!("note_is_one_connection")
    }

    /// Whether something was declined, since the waiter was last asked, on listeners but those with
    /// these notes.
    pub fn is_for_others(&self, own: Notes) -> bool {
        let declined = shared_hint::declined();
        open(declined, &declined.left, !of_one(own), self.before) != 0
    }
}

impl Rounds {
    /// None so far.
    pub const fn none() -> Self {
        Self { visited: AtomicU64::new(0), is_due: AtomicBool::new(false) }
    }

    /// For a waiter that steps back, answers for the connection, and sleeps on: it is not to be
    /// woken by this round's first pass, unless for an earlier one. The caller passes next.
    pub fn begin(&self, note: Notes) {
        let before = begin(note, false);
        let (next, relaxed) = (before.wrapping_add(1), Ordering::Relaxed);
        let is_first = self.visited.compare_exchange(before, next, relaxed, relaxed).is_err();
        if is_first && mutated!("step_ends_earlier_rounds") {
            self.visited.store(next, relaxed);
        }
        self.is_due.store(true, relaxed);
    }

    /// The baton has woken this waiter, or has come to it while it was awake. `None` if that has
    /// happened in this round before: it has looked at its listeners since what was declined was
    /// there, and its watch has gone to the end of the queue before it passed the baton on, so all
    /// others that sleep have been asked.
    pub fn visit(&self) -> Option<Visit> {
        let look = Look::begin();
        let before = self.visited.swap(look.round, Ordering::Relaxed);
        let is_first = before != look.round || mutated!("baton_goes_round");
        // A number that another process has lowered begins anew.
        let before = if before > look.round { 0 } else { before };
        is_first.then_some(Visit { before, look })
    }

    /// Whether it passes the baton on, after such a visit. It goes to the end of the queue then.
    pub fn passes(&self, passes: bool) -> bool {
        let passes = passes && !mutated!("baton_is_kept");
        if passes {
            self.is_due.store(true, Ordering::Relaxed);
        }
        passes
    }

    /// Whether the watch is to go to the end of the queue, before the next sleep.
    pub fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed) && !mutated!("baton_stays_first")
    }

    /// Notes that it has gone there.
    pub fn note_placed(&self) {
        self.is_due.store(false, Ordering::Relaxed);
    }
}

/// For tests: as if nothing had been declined yet, but for the number of the round.
#[cfg(test)]
pub(in super::super) fn forget_declined() {
    let declined = shared_hint::declined();
    raise(declined, &declined.empty, u64::MAX, declined.round.load(SeqCst));
    declined.any.store(0, SeqCst);
}

#[cfg(test)]
mod tests;
