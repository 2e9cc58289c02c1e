//! The child of a process of one thread: the thread that forks serves it itself, before fork(2)
//! returns.
//!
//! A second thread would be seen there: by whoever counts threads (CPython warns of a fork beside
//! others), and by the calls that a process with threads may not make, also for another process
//! (`KEYCTL_SESSION_TO_PARENT`). But which of the two goes on first after a fork is the
//! scheduler's to say, and most children end or execute a program before long. So the parent waits
//! for that, at most for [`LIMIT`]; then what the child may have migrates. A program that forks
//! workers loses that time [`MOST_MISSES`] times: then everything migrates before the fork.
//!
//! The handlers of the program that pthread_atfork(3) has for the parent run later, so that one
//! that waits for the child finds it served. Which child it is is not known before they are done.

use super::Slot;
use super::serve::{end_service, is_closed};
use crate::stats::area::now;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{forked, poll_within};
use crate::table::gate;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use wakeset::mutated;

/// So long does fork(2) take at most.
const LIMIT: Duration = Duration::from_millis(10);

/// In place of the time at which the service began.
pub(super) const ALONE: u64 = u64::MAX;

/// After so many children in a row that had not ended or executed a program by then, no further
/// one is waited for.
const MOST_MISSES: u32 = 2;
static MISSES: AtomicU32 = AtomicU32::new(0);

/// Whether the next child is likely to be gone soon.
pub(super) fn is_of_use() -> bool {
    MISSES.load(Ordering::Relaxed) < MOST_MISSES
}

/// The calling thread serves a child. The caller holds the migrations lock.
pub(super) fn begin(slot: &'static Slot) {
    slot.begun.store(ALONE, Ordering::SeqCst);
}

/// Serves the child until it is gone, or as long as it is waited for. The caller has a signal
/// guard.
pub(super) fn serve(slot: &'static Slot) {
    let begun = now();
    loop {
        let passed = Duration::from_nanos(now().saturating_sub(begun));
        let Some(left) = LIMIT.checked_sub(passed).filter(|left| !left.is_zero()) else { break };
        let end = slot.end.load(Ordering::SeqCst);
        if end >= 0 {
            let _ = poll_within(end, libc::POLLIN, left);
        }
        let _migrating = gate::hold_migrations();
        if slot.end.load(Ordering::SeqCst) < 0 {
            // It can ask no more, and everything has migrated.
            return;
        }
        if is_closed(slot) {
            MISSES.store(0, Ordering::Relaxed);
            return;
        }
    }
    MISSES.fetch_add(1, Ordering::Relaxed);
    let _migrating = gate::hold_migrations();
    end_service(slot, mutated!("lone_parent_keeps_objects"));
}

/// It is known now which child it is: whether what it has not asked for may stay.
pub(super) fn conclude(slot: &'static Slot) {
    if slot.begun.load(Ordering::SeqCst) != ALONE {
        return;
    }
    let child = slot.child.load(Ordering::SeqCst);
    let stays = child == -1 || forked::is_child_gone(child);
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    end_service(slot, stays);
}

/// In a forked child, whose own children may be of another kind.
pub(super) fn begin_anew() {
    if MISSES.load(Ordering::Relaxed) != 0 {
        MISSES.store(0, Ordering::Relaxed);
    }
}
