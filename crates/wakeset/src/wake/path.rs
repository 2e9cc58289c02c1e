//! The wake path: what a source's change runs for each of its watches (Linux's poll callback).
//!
//! mark (`QUEUED`), push, kick one waiter, tell the sets around, say that it is done (`LISTED`). No
//! lock, no allocation, no thread-local; no system call unless a waiter sleeps or is about to, or
//! the set is exported.
//!
//! A thread may be stopped anywhere in there, for good. It then holds one mark. Others who change
//! the same source find the mark without `LISTED`, call the harvester's attention to it and kick a
//! waiter themselves; the harvest delivers what is marked and not on the list; a removal ends the
//! watch under the waker's feet. What is delayed is only the event of the stopped thread.

use crate::events::Events;
use crate::sync::{Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::handle::Handle;
#[cfg(feature = "bench-ready-lists")]
use crate::wake::locked_list;
use crate::wake::ready_list::ReadyList;
use crate::wake::state::State;
use crate::wake::timed::SOON;
use crate::wake::wake_side::WakeSide;
use crate::wake::watch::Watch;

/// Tells one watch of a change. Whether it was this call that put it onto the ready list, and one
/// of the set's waiters takes it: what an exclusive wake counts as taken.
///
/// # Safety
/// The handle comes from a wait queue, so its watch is type-stable memory of an engine that is
/// alive.
#[inline(always)]
pub(crate) unsafe fn wake_watch(handle: Handle, events: Events) -> bool {
    // SAFETY: type-stable, by the caller.
    let watch = unsafe { &*handle.watch() };
    step!(wake_before_look);
    // SeqCst, pairing with the harvester's clearing of QUEUED: if we see it still on, the
    // harvester's poll comes after our change and sees it.
    let state = State(watch.state.load(ordering!(SeqCst, "mark_read_relaxed")));
    step!(wake_looked);
    // SAFETY: sets are type-stable too; a late waker may read another set of the engine than the
    // one it was told of, and gives it a hint that its next harvest drops.
    let set = unsafe { &*watch.set.load(Ordering::Relaxed) };
    if state.is_listed() && (set.wakes_are_plain() || mutant!("queued_is_told")) {
        return mutant!("queued_is_taken");
    }
    // SAFETY: as the caller's.
    unsafe { wake_watch_slow(handle, events, state, NOW) }
}

/// When a wake concerns the waiters: at once.
const NOW: u64 = 0;

/// Tells one watch that its timer has been set to expire at `at`, earlier than planned. The next
/// harvest plans it anew; a waiter that sleeps is woken if it would sleep longer.
///
/// # Safety
/// As for [`wake_watch`].
pub(crate) unsafe fn plan_watch(handle: Handle, at: u64) {
    // SAFETY: type-stable, by the caller.
    let state = State(unsafe { &*handle.watch() }.state.load(Ordering::SeqCst));
    // SAFETY: as the caller's.
    unsafe { wake_watch_slow(handle, Events::IN, state, at.max(SOON)) };
}

/// # Safety
/// As for [`wake_watch`].
#[inline(never)]
unsafe fn wake_watch_slow(handle: Handle, events: Events, mut state: State, at: u64) -> bool {
    let pointer = handle.watch();
    // SAFETY: type-stable, by the caller.
    let watch = unsafe { &*pointer };
    let concerns = |state: State| {
        let mask = state.mask();
        let key = events.bits() & 0xffff;
        let is_same = state.generation() == handle.generation() || mutant!("wake_any_generation");
        is_same && mask != 0 && (key == 0 || key & mask != 0)
    };
    if !concerns(state) {
        return false;
    }
    // SAFETY: see `wake_watch`.
    let set = unsafe { &*watch.set.load(Ordering::Relaxed) };
    if set.ready_list() != ReadyList::LockFree {
        // SAFETY: as the caller's.
        #[cfg(feature = "bench-ready-lists")]
        if unsafe { locked_list::mark_and_push(set, handle, concerns) } {
            return told(set, state, events, at);
        }
        return wake_queued(set, at);
    }
    while !state.is_queued() {
        let marked = state.queued();
        step!(mark_before);
        match watch.state.compare_exchange(
            state.0,
            marked.0,
            Ordering::SeqCst,
            ordering!(SeqCst, "mark_retry_relaxed"),
        ) {
            Ok(_) => {
                step!(marked);
                // SAFETY: we turned QUEUED on. The generation that `state` was of has lasted, so
                // `set` is its set.
                unsafe { set.incoming.push(pointer) };
                step!(pushed);
                probe!(wake, u64 set.waiters.addr(), u64 pointer.addr(), u32 events.bits());
                let taken = told(set, state, events, at);
                finish(watch, marked);
                return taken;
            }
            Err(now) => {
                state = State(now);
                if !concerns(state) {
                    return false;
                }
            }
        }
    }
    if !state.is_listed() && !mutant!("queued_is_listed") {
        step!(attention_needed);
        // Another waker is between its mark and its end, and may be stopped there.
        set.incoming.call_attention();
        set.waiters.kick();
    }
    wake_queued(set, at)
}

/// What a wake does that finds the watch queued. Never counts as taken.
fn wake_queued(set: &WakeSide, at: u64) -> bool {
    if at != NOW && !mutant!("set_again_untold") {
        set.note_set_again();
        kick_until(set, at);
    }
    // On the list already: its own waiters have been told or will look before they sleep, but a set
    // around this one may have harvested an edge since.
    set.wake_outer();
    false
}

/// Says that the wake is done, unless the mark has been taken off since.
fn finish(watch: &Watch, marked: State) {
    let mut state = marked;
    while state.is_marked_like(marked) || mutant!("finish_any_mark") && state.is_queued() {
        step!(listed_before);
        // Release: a thread that sees it may rely on the push and the kick.
        match watch.state.compare_exchange(
            state.0,
            state.listed().0,
            Ordering::SeqCst,
            Ordering::Relaxed,
        ) {
            Ok(_) => break,
            Err(now) => state = State(now),
        }
    }
    step!(listed);
}

/// Wakes one waiter of the set, if there is one that may sleep beyond `at`.
#[inline(always)]
fn kick_until(set: &WakeSide, at: u64) {
    if at != NOW {
        // The push, or the note, before the deadline.
        after_publishing(mutant!("kick_without_fence"));
    }
    // A deadline that the holder of the scan lock is about to replace by a later one is no reason
    // to tell nobody: it looks at the list after that.
    if at == NOW || at < set.waiters.deadline() && !mutant!("earlier_kicks_nobody") {
        set.waiters.kick();
    }
}

/// After a push: one waiter of the set, and the sets around it.
#[inline(always)]
fn told(set: &WakeSide, state: State, events: Events, at: u64) -> bool {
    // A timer's time concerns all: each set looks at the clock for itself.
    let is_exclusive = at == NOW && state.flags().contains(Events::EXCLUSIVE);
    let taken = if is_exclusive {
        set.waiters.kick_exclusive() || mutant!("exclusive_is_taken_unheard")
    } else {
        kick_until(set, at);
        false
    };
    step!(kicked);
    if !mutant!("wake_ends_inside") {
        set.wake_outer();
    }
    step!(outer_told);
    // Linux counts an exclusive wake as taken when the set had a waiter and the change is what was
    // asked for.
    let change = events.bits() & (Events::IN | Events::OUT).bits();
    taken && (change == 0 || change & state.mask() != 0)
}
