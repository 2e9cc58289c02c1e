//! What modules do when the process has been forked, when a hidden number changes, and when a
//! number is about to be closed.
//!
//! A module with such duties signs up before it has anything that they concern; until then there
//! is nothing for it to do. Signing up takes no lock and no memory, may be repeated, and cannot be
//! undone.
//!
//! Modules are called in the order of [`Rank`], lowest first.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The place of a module among those that have signed up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rank {
    /// Before all others in a forked child: it closes every hidden number, and finds them in the
    /// table.
    Hidden,
    /// Notes of hidden numbers, which are closed by now.
    Doorbells,
    Listeners,
    Polls,
    Commands,
    Duplicates,
    /// What tells those that are away from others.
    Away,
    ProgramRings,
    /// Files that outlive their numbers.
    Kept,
    /// The lists that a migration was working on.
    Sets,
    /// Connections between forked children and their parent.
    Inherited,
    Deputies,
    /// What threads sleep in that are in poll(2) or select(2).
    Pollers,
}

const RANKS: usize = Rank::Pollers as usize + 1;

/// What a module wants to hear of.
#[derive(Debug)]
pub(crate) struct Participant {
    pub(crate) rank: Rank,
    /// In a forked child: only the calling thread exists, and locks may be held by others that do
    /// not. The table is still the parent's.
    pub(crate) begin_anew: fn(),
    /// A hidden number has become another, or -1 where there is none left for it. The caller holds
    /// the migrations lock.
    pub(crate) renumber: Option<fn(old: c_int, new: c_int)>,
    /// A number that may be the kernel's is about to be closed, or to become another file's.
    pub(crate) before_close: Option<Closes>,
}

/// How a module takes part in closes.
#[derive(Debug)]
pub(crate) struct Closes {
    /// Told of each such number.
    pub(crate) before: fn(c_int),
    /// One above the highest number that the module wants to be told of now.
    pub(crate) numbers_end: fn() -> c_int,
}

static SIGNED_UP: [AtomicPtr<Participant>; RANKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; RANKS];
/// Whether anybody takes part in closes, so that those of other programs pay for one load.
static CLOSES: AtomicBool = AtomicBool::new(false);

/// Signs a module up.
#[inline]
pub(crate) fn sign_up(participant: &'static Participant) {
    let Some(entry) = SIGNED_UP.get(participant.rank as usize) else { return };
    if entry.load(Ordering::Acquire).is_null() {
        // First: a thread that finds the module signed up goes on, and relies on both.
        if participant.before_close.is_some() {
            CLOSES.store(true, Ordering::SeqCst);
        }
        entry.store(ptr::from_ref(participant).cast_mut(), Ordering::SeqCst);
    }
}

#[inline]
fn participants() -> impl Iterator<Item = &'static Participant> {
    // SAFETY: null, or what `sign_up` stored, which is static.
    SIGNED_UP.iter().filter_map(|entry| unsafe { entry.load(Ordering::SeqCst).as_ref() })
}

/// Whether any module has signed up.
#[inline]
pub(crate) fn has_participants() -> bool {
    participants().next().is_some()
}

/// In a forked child: each module forgets what was its parent's.
pub(crate) fn begin_anew() {
    participants().for_each(|participant| (participant.begin_anew)());
}

/// A hidden number is another from now on, or -1. The caller holds the migrations lock.
pub(crate) fn renumber(old: c_int, new: c_int) {
    participants().filter_map(|participant| participant.renumber).for_each(|told| told(old, new));
}

/// Whether any module wants to be told of closes.
#[inline]
pub(crate) fn has_closes() -> bool {
    CLOSES.load(Ordering::Relaxed)
}

fn closes() -> impl Iterator<Item = &'static Closes> {
    let participants = has_closes().then(participants);
    participants.into_iter().flatten().filter_map(|participant| participant.before_close.as_ref())
}

/// A number is about to be closed, or to become another file's.
#[inline]
pub(crate) fn before_close(fd: c_int) {
    if has_closes() {
        closes().for_each(|closes| (closes.before)(fd));
    }
}

/// One above the highest number whose close a module wants to hear of.
pub(crate) fn numbers_end() -> c_int {
    closes().map(|closes| (closes.numbers_end)()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that forgets the table first leaves its parent's hidden numbers open.
    #[test]
    fn hidden_numbers_are_closed_first() {
        assert_eq!(Rank::Hidden as usize, 0);
    }
}
