//! The locks that Linux has used for its ready list, so that the trade can be measured.
//!
//! Only with the feature `bench-ready-lists`. Both break the rule that a stopped waker stops no
//! other thread.

use crate::sync::spin::yield_now;
use crate::sync::{AtomicU32, Ordering};
use crate::testing::steps::step;
use crate::wake::handle::Handle;
use crate::wake::ready_list::ReadyList;
use crate::wake::state::State;
use crate::wake::wake_side::WakeSide;

/// Held by the harvester, or by the one waker of the spinlock.
const WRITER: u32 = 1 << 31;

/// The lock of a locked list: 0 free, `WRITER` held alone, else the number of sharers.
#[derive(Debug)]
pub(crate) struct ListLock {
    word: AtomicU32,
}

impl ListLock {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Runs `f` as a waker does: with the list locked against the harvester, and
    /// for the spinlock against the other wakers.
    fn by_waker<T>(&self, list: ReadyList, f: impl FnOnce() -> T) -> T {
        match list {
            ReadyList::LockFree => f(),
            ReadyList::Spinlock => self.exclusively(f),
            ReadyList::Rwlock => {
                loop {
                    let sharers = self.word.load(Ordering::Relaxed);
                    if (sharers & WRITER == 0 || mutant!("sharers_ignore_the_harvester"))
                        && self
                            .word
                            .compare_exchange_weak(
                                sharers,
                                sharers + 1,
                                ordering!(Acquire, "list_share_relaxed"),
                                Ordering::Relaxed,
                            )
                            .is_ok()
                    {
                        break;
                    }
                    relax();
                }
                let result = f();
                self.word.fetch_sub(1, ordering!(Release, "list_unshare_relaxed"));
                result
            }
        }
    }

    /// Runs `f` as the harvester does: alone.
    pub(crate) fn by_harvester<T>(&self, list: ReadyList, f: impl FnOnce() -> T) -> T {
        match list {
            ReadyList::LockFree => f(),
            ReadyList::Spinlock | ReadyList::Rwlock => self.exclusively(f),
        }
    }

    fn exclusively<T>(&self, f: impl FnOnce() -> T) -> T {
        while self
            .word
            .compare_exchange_weak(
                0,
                WRITER,
                ordering!(Acquire, "list_lock_relaxed"),
                Ordering::Relaxed,
            )
            .is_err()
        {
            relax();
        }
        let result = f();
        self.word.store(0, ordering!(Release, "list_unlock_relaxed"));
        result
    }
}

/// One turn of a spin: gives the CPU away, because the holder may be waiting for it. (The kernel's
/// own spinlocks are held with preemption off; user space has no such thing, which is one more
/// reason not to use these.)
fn relax() {
    yield_now();
}

/// Marks a watch and puts it on its set's locked list; whether this call did. Not if the change no
/// longer concerns it, by `concerns`, or if it is marked already.
///
/// # Safety
/// The handle comes from a wait queue, so its watch is type-stable memory of an engine that is
/// alive.
pub(crate) unsafe fn mark_and_push(
    set: &WakeSide,
    handle: Handle,
    concerns: impl Fn(State) -> bool,
) -> bool {
    let pointer = handle.watch();
    // SAFETY: type-stable, by the caller.
    let watch = unsafe { &*pointer };
    let pushed = set.incoming.lock.by_waker(set.ready_list(), || {
        loop {
            let state = State(watch.state.load(Ordering::SeqCst));
            if !concerns(state) || state.is_queued() {
                return false;
            }
            step!(locked_before_mark);
            // The lock makes the mark and the push one step.
            let marked = state.queued().listed();
            if watch
                .state
                .compare_exchange(state.0, marked.0, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
            {
                step!(locked_marked);
                // SAFETY: we turned QUEUED on.
                unsafe { set.incoming.push(pointer) };
                step!(locked_pushed);
                return true;
            }
        }
    });
    step!(locked_released);
    pushed
}

#[cfg(all(test, loom))]
mod models;
