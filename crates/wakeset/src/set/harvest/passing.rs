//! Passing on: an exclusive wake that was left to a waiter goes to the next set if that waiter
//! leaves with other events.
//!
//! A waker knows of a waiter on the futex whether it has woken it. One that spins, or sleeps in a
//! kernel call, may be on its way out with something else: the waker notes that it has left the
//! wake to it, and the waiter, which counts itself out first, finds the note.

use crate::events::Events;
use crate::set::base::scan::Scan;
use crate::set::base::set_core::SetCore;
use crate::sync::Ordering;
use crate::wake::state::State;
use crate::wake::watch::{guarded, shared};

impl SetCore {
    /// For a waiter that leaves with events and has not harvested, or not to the end: passes on
    /// every exclusive wake that was left to it.
    pub(crate) fn pass_on_exclusive(&self) {
        if self.wake.waiters.take_left() && self.may_be_ready() {
            self.pass_on_all();
        }
    }

    /// The same for a caller that has taken the note.
    #[cold]
    pub(in crate::set) fn pass_on_all(&self) {
        let (scan, attention) = self.begin_scan();
        Self::pass_on_first(&scan, scan.pending.len);
        self.end_scan(scan, attention);
    }

    /// Passes on what the first `n` of the pending watches have: those that a harvest has not
    /// visited. A source's wake takes no lock, so the scan lock is none it could wait for.
    #[cold]
    pub(in crate::set) fn pass_on_first(scan: &Scan, n: usize) {
        if mutant!("leftovers_are_not_passed_on") {
            return;
        }
        let mut watch = scan.pending.head;
        for _ in 0..n {
            if watch.is_null() {
                return;
            }
            // SAFETY: pending in this set, whose lock the caller holds.
            let (word, source) = unsafe { (&shared(watch).state, guarded(watch).source) };
            let state = State(word.load(Ordering::SeqCst));
            if state.flags().contains(Events::EXCLUSIVE) {
                // SAFETY: a source removes its watches, under this lock, before it goes.
                let source = unsafe { &*source };
                let ready = source.poll() & Events::from_bits_retain(state.mask());
                if !ready.is_empty() {
                    source.wait_queue().pass_on(watch, ready);
                }
            }
            // SAFETY: as above.
            watch = unsafe { shared(watch) }.next.load(Ordering::Relaxed);
        }
    }
}
