//! Which of two waiters a connection belongs to, and which waiters step back at all.

use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// The most connections that a worker is to hold while another is free.
static MOST: AtomicU32 = AtomicU32::new(u32::MAX);
/// Whether connections go to the waiter that holds least.
static LEAST_FIRST: AtomicBool = AtomicBool::new(false);
/// Whether they do so only as often as what they hold allows for ([`Credit`](super::Credit)).
static ON_CREDIT: AtomicBool = AtomicBool::new(false);
/// Whether waiters step back at all.
static STEPS: AtomicBool = AtomicBool::new(false);
/// Whether those that block in accept(2) do.
static STEPS_IN_ACCEPT: AtomicBool = AtomicBool::new(false);

/// A waiter of the automatic order that holds less than this goes on taking what it is woken for,
/// once as many waiters hold some as there are processors. Spread over more processes, little work
/// costs a switch for each request, and an event loop that could have answered two of them at once
/// answers one. On fewer, workers whose threads take turns leave processors idle.
const FEW: u32 = 4;
/// The processors of the process that made the listener; the most where that is not known.
static PROCESSORS: AtomicU32 = AtomicU32::new(u32::MAX);

/// Whether the waiter that holds least has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Least {
    /// Any waiter may have it.
    No,
    /// As often as what the others hold pays for stepping back ([`Credit`](super::Credit)).
    OnCredit,
    /// Always.
    Always,
}

/// Says how connections are shared out: to the waiter that holds least, or in any order, as long as
/// a waiter holds less than `most`.
pub(in super::super) fn set_rule(least: Least, most: Option<u32>) {
    LEAST_FIRST.store(least != Least::No, Relaxed);
    ON_CREDIT.store(least == Least::OnCredit, Relaxed);
    MOST.store(most.unwrap_or(u32::MAX), Relaxed);
    STEPS.store(least != Least::No || most.is_some(), Relaxed);
    STEPS_IN_ACCEPT.store(least == Least::Always || most.is_some(), Relaxed);
}

/// Whether waiters that block in accept(2) step back. Those that only do so on credit stay in the
/// kernel's queue, which wakes the one that has waited longest.
#[inline]
pub fn may_step_back_in_accept() -> bool {
    STEPS_IN_ACCEPT.load(Relaxed)
}

/// Whether it matters what waiters hold.
#[inline]
pub fn counts_held() -> bool {
    STEPS.load(Relaxed)
}

/// Of two waiters, one that holds `mine` and was woken and one that holds `its` and sleeps, whether
/// the connection is the sleeper's. `may_step`: whether the first may step back for less than that
/// it is full.
pub(super) fn is_better(its: u32, mine: u32, may_step: bool) -> bool {
    let most = MOST.load(Relaxed);
    LEAST_FIRST.load(Relaxed) && may_step && its < mine || mine >= most && its < most
}

/// Whether a waiter that holds so many minds that another holds less. `holding`: how many waiters
/// hold some.
pub(super) fn minds(mine: u32, holding: impl FnOnce() -> u32) -> bool {
    !is_on_credit() || !is_few(mine) || holding() < PROCESSORS.load(Relaxed)
}

/// Whether a waiter of the automatic order holds so little that it keeps its place.
pub(in super::super) fn is_few(held: u32) -> bool {
    held < FEW
}

/// Asks how many processors the process may use, before its workers are given some of them.
#[cold]
pub(in super::super) fn count_processors() {
    if let Some(count) = sys::processors() {
        set_processors(count);
    }
}

/// As if the process had so many processors.
pub(super) fn set_processors(count: u32) {
    PROCESSORS.store(count, Relaxed);
}

/// Whether connections go to the waiter that holds least.
pub(super) fn is_least_first() -> bool {
    LEAST_FIRST.load(Relaxed)
}

/// Whether they do only as often as what is held pays for.
pub(super) fn is_on_credit() -> bool {
    ON_CREDIT.load(Relaxed)
}
