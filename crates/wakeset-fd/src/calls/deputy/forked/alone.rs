//! The child of a process of one thread: the thread that forks serves it itself, before fork(2)
//! returns.
//!
//! A second thread would be seen there: by whoever counts threads (CPython warns of a fork beside
//! others), and by the calls that a process with threads may not make, also for another process
//! (`KEYCTL_SESSION_TO_PARENT`). But which of the two goes on first after a fork is the
//! scheduler's to say, and most children end or execute a program before long. So the parent waits
//! for that, at most for [`LIMIT`]; then what the child may have migrates.
//!
//! Children that the program means to have beside each other run one after the other meanwhile. So
//! what a process may lose by that is bounded in two ways, and where it has no more to lose
//! everything migrates before the fork. [`MOST_MISSES`] children in a row that were not [`QUICK`]
//! are the work of a program that forks workers. And all waits together take no longer than
//! [`MOST_DEBT`] and a small [`SHARE`] of the time.
//!
//! The handlers of the program that pthread_atfork(3) has for the parent run later, so that one
//! that waits for the child finds it served. Which child it is is not known before they are done.

use super::Slot;
use super::serve::{end_service, is_closed};
use crate::stats::area::now;
use crate::sys::poll_within;
use crate::sys::signal_guard::SignalGuard;
use crate::table::gate;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use wakeset::mutated;

/// So long does fork(2) take at most.
const LIMIT: Duration = Duration::from_millis(10);

/// In place of the time at which the service began.
pub(super) const ALONE: u64 = u64::MAX;

/// A child that is gone by then is no worker.
const QUICK: Duration = Duration::from_millis(2);

/// After so many children in a row that were not quick, no further one is waited for.
const MOST_MISSES: u32 = 2;

/// So long have all waits together taken at most, but for what has been forgiven since: one part in
/// so many of the time.
const MOST_DEBT: Duration = Duration::from_millis(20);
const SHARE: u64 = 64;

// The parent writes to them after each fork that waits.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static MISSES: AtomicU32 = AtomicU32::new(0);
/// How long was waited in all, less what was forgiven by [`SINCE`]. Nanoseconds.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static DEBT: AtomicU64 = AtomicU64::new(0);
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static SINCE: AtomicU64 = AtomicU64::new(0);

fn debt(now: u64) -> Duration {
    let forgiven = now.saturating_sub(SINCE.load(Ordering::Relaxed)) / SHARE;
    Duration::from_nanos(DEBT.load(Ordering::Relaxed).saturating_sub(forgiven))
}

/// Whether the next child is likely to be gone soon, and may be waited for.
pub(super) fn is_of_use() -> bool {
    MISSES.load(Ordering::Relaxed) < MOST_MISSES && debt(now()) + QUICK <= MOST_DEBT
}

/// A child has been waited for.
fn note(begun: u64, ended: u64) {
    let waited = Duration::from_nanos(ended.saturating_sub(begun));
    let debt = debt(begun) + waited;
    DEBT.store(u64::try_from(debt.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    SINCE.store(ended, Ordering::Relaxed);
    let misses = if waited < QUICK { 0 } else { MISSES.load(Ordering::Relaxed) + 1 };
    MISSES.store(misses, Ordering::Relaxed);
}

/// The calling thread serves a child. The caller holds the migrations lock.
pub(super) fn begin(slot: &'static Slot) {
    slot.begun.store(ALONE, Ordering::SeqCst);
}

/// Serves the child until it is gone, or as long as it is waited for. The caller has a signal
/// guard.
pub(super) fn serve(slot: &'static Slot) {
    let begun = now();
    let is_served = is_served(slot, begun, LIMIT.min(MOST_DEBT.saturating_sub(debt(begun))));
    note(begun, now());
    if !is_served {
        let _migrating = gate::hold_migrations();
        end_service(slot, mutated!("lone_parent_keeps_objects"));
    }
}

/// Whether the child can ask no more, within so much time.
fn is_served(slot: &'static Slot, begun: u64, limit: Duration) -> bool {
    loop {
        let passed = Duration::from_nanos(now().saturating_sub(begun));
        let left = limit.saturating_sub(passed);
        if left.is_zero() {
            return false;
        }
        let end = slot.end.load(Ordering::SeqCst);
        if end >= 0 {
            let _ = poll_within(end, libc::POLLIN, left);
        }
        let _migrating = gate::hold_migrations();
        // Without an end everything has migrated.
        if slot.end.load(Ordering::SeqCst) < 0 || is_closed(slot) {
            return true;
        }
    }
}

/// It is known now which child it is: whether what it has not asked for may stay.
pub(super) fn conclude(slot: &'static Slot) {
    if slot.begun.load(Ordering::SeqCst) != ALONE {
        return;
    }
    let child = slot.child.load(Ordering::SeqCst);
    let stays = slot.is_gone(child);
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    end_service(slot, stays);
}

/// In a forked child, whose own children may be of another kind.
pub(super) fn begin_anew() {
    MISSES.store(0, Ordering::Relaxed);
    DEBT.store(0, Ordering::Relaxed);
}
