//! Changes of a watch's state word by the holder of the scan lock.

use crate::sync::Ordering;
use crate::testing::steps::step;
use crate::wake::state::State;

/// What became of an attempt to turn `QUEUED` on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::set) enum Mark {
    /// It is on, and the watch is ours to put on the pending queue.
    Ours,
    /// It was on, and the watch is on the list.
    Listed,
    /// It was on; the waker that did it has not finished, and may never.
    Unfinished,
}

/// Turns `QUEUED` on, for the holder of the scan lock.
pub(in crate::set) fn mark_queued(word: &crate::sync::AtomicU64) -> Mark {
    let mut state = State(word.load(Ordering::Relaxed));
    while !state.is_queued() {
        // Listed from the start: it will be when the lock is free.
        step!(remark_before);
        match word.compare_exchange(
            state.0,
            state.queued().listed().0,
            Ordering::SeqCst,
            Ordering::SeqCst,
        ) {
            Ok(_) => return Mark::Ours,
            Err(now) => state = State(now),
        }
    }
    if state.is_listed() || mutant!("in_hand_is_listed") { Mark::Listed } else { Mark::Unfinished }
}

/// Applies `change` to a state word whose `QUEUED` bit wakers may turn on meanwhile; the new state.
pub(in crate::set) fn change_state(
    word: &crate::sync::AtomicU64,
    change: impl Fn(State) -> State,
) -> State {
    let mut state = State(word.load(Ordering::Relaxed));
    loop {
        let changed = change(state);
        match word.compare_exchange(state.0, changed.0, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return changed,
            Err(now) => state = State(now),
        }
    }
}
