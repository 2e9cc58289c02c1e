//! What a process takes with it when it ends: the wakes for connections that none of its threads
//! has accepted.
//!
//! Its threads may have been told of a connection, or woken and not told. Which of them are where
//! cannot be seen from the one that ends the process. So every listener that has a connection
//! counts as declined, if the process has waited on listeners at all: at the worst a waiter is
//! woken that finds nothing.
//!
//! Threads that sleep on listeners end with the process, and may be first in the baton's queue. So
//! their sets leave it before anything is passed on. Not so before an exec, which may fail and
//! leave them in need of it.
//!
//! The end must not wait: it may come in a signal handler, in the middle of a critical section of
//! ours, or beside a fork.

use super::baton;
use super::private_sets::private_sets;
use super::{inode, is_ready, known};
use crate::sys::process::is_foreign;
use crate::table::{self, Entry};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use wakeset::mutated;

/// The process that waits on listeners in turn, as the engine knows it; 0 for none.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// The most wakes that one end passes on.
const MOST: u32 = 8;

/// This process is about to wait on listeners in turn.
pub(super) fn note_waiting() {
    WAITING.store(wakeset::process_id(), Ordering::Relaxed);
}

/// What the process is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ends, and all its threads with it.
    Exit,
    /// It executes another program, unless that fails.
    Exec,
}

/// The process is about to end, or to execute another program: others are woken for the
/// connections that are there. At most this many threads may have been woken for some. Waits for
/// nothing.
#[inline]
pub fn before_end(end: End, threads: impl FnOnce() -> u32) {
    if baton::number() >= 0 {
        pass_on(end, threads());
    }
}

#[cold]
fn pass_on(end: End, threads: u32) {
    let has_waited = WAITING.load(Ordering::Relaxed) == wakeset::process_id();
    if !has_waited || is_foreign() || super::order().is_none() || mutated!("ended_in_silence") {
        return;
    }
    let mut passed = 0;
    for fd in known::listeners().filter(|fd| is_ready(*fd)) {
        if passed == 0 && end == End::Exit && !mutated!("sleepers_outlive_their_process") {
            leave_queue();
        }
        baton::begin_round(baton::note_of(inode(fd)));
        baton::pass_unlocked();
        passed += 1;
    }
    if passed > 0 {
        (passed..threads.min(MOST)).for_each(|_| baton::pass_unlocked());
    }
}

/// Takes all sets of this process out of the baton's queue. A thread that goes to sleep in the same
/// microseconds may put its own there again.
fn leave_queue() {
    let baton = baton::number();
    let is_set =
        |fd: &c_int| matches!(table::peek(*fd), Entry::Object(it) if it.kind() == table::SET);
    // Those without a watch of it answer ENOENT.
    private_sets().chain(table::numbers().filter(is_set)).for_each(|set| baton::leave(set, baton));
}

#[cfg(test)]
mod tests;
