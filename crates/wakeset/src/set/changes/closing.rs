//! The close of a source: every set that watches it forgets it.
//!
//! The methods are the wait queue's; they stand here because they take the scan locks of the
//! watching sets, of which the wake path knows nothing.

use crate::events::Events;
use crate::set::base::scan::hash;
use crate::set::base::set_core::SetCore;
use crate::wake::watch::{guarded, shared};

use crate::sync::Ordering;
use crate::wake::handle::Handle;
use crate::wake::state::State;
use crate::wake::wait_queue::WaitQueue;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ptr;

impl WaitQueue {
    /// As `each_set`, of all, with what [`EventPoll::set_owner`](crate::EventPoll::set_owner) has
    /// set.
    #[doc(hidden)]
    pub fn each_owner(&self, mut f: impl FnMut(usize)) {
        self.each_set(|set| {
            f(SetCore::of(set).owner());
            true
        });
    }

    /// Closes the queue: removes every watch from its set and lets no further one in. What the last
    /// close of a description does; [`Description`](crate::Description) calls it.
    ///
    /// Takes the scan lock of one watching set after the other, never two, and costs O(watches
    /// here).
    #[inline]
    pub fn close(&self) {
        if self.refuse_watches() {
            self.remove_each(&mut |_| {});
        }
    }

    /// Removes every watch like [`close`](Self::close), calling `take` for each with the scan lock
    /// of its set held, so that the set is never seen with both the old watch and what `take`
    /// puts in its place. The oldest comes first, as far as there is memory to sort them.
    #[doc(hidden)]
    pub fn detach_watches(&self, mut take: impl FnMut(DetachedWatch)) {
        if !self.refuse_watches() {
            return;
        }
        let now = self.now();
        let mut by_age = Vec::new();
        self.each(|handle, stamp| {
            let room = by_age.try_reserve(1).is_ok();
            if room {
                by_age.push((now.wrapping_sub(stamp), handle));
            }
            room
        });
        by_age.sort_unstable_by_key(|(age, _)| Reverse(*age));
        for (_, handle) in by_age {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { remove_watch(handle, &mut take) };
        }
        // Those there was no memory for.
        self.remove_each(&mut take);
    }

    /// Removes every watch of a queue that lets none in, in slot order.
    fn remove_each(&self, take: &mut impl FnMut(DetachedWatch)) {
        // None comes any more, so looking at each slot once is enough, without the lock, which a
        // removal takes.
        self.each(|handle, _| {
            // SAFETY: handles in a queue of this engine lead to type-stable watches.
            unsafe { remove_watch(handle, &mut *take) };
            true
        });
        // Whoever emptied a slot just before we looked may still hold the lock, which goes with the
        // source.
        self.wait_for_detach();
    }
}

/// A watch on its way out of its set.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct DetachedWatch {
    /// The owner of the set.
    pub owner: usize,
    /// The descriptor half of the key.
    pub fd: i32,
    /// What it asks for; no readiness bit when it is disarmed.
    pub interest: Events,
    /// The caller's 64 bits.
    pub data: u64,
    /// It is on the ready list: an edge has not been reported yet.
    pub pending: bool,
}

/// Removes the watch a wait queue's handle leads to, if it is still that watch: the close of a
/// source. `last_look` sees it before, with the scan lock of its set held.
///
/// # Safety
/// The handle comes from a wait queue, so its watch is type-stable memory of an engine that is
/// alive.
pub(crate) unsafe fn remove_watch(handle: Handle, mut last_look: impl FnMut(DetachedWatch)) {
    // SAFETY: by the caller.
    let watch = unsafe { shared(handle.watch()) };
    let set = watch.set.load(Ordering::Acquire);
    if set.is_null() {
        return;
    }
    // SAFETY: sets are type-stable as well.
    let set = unsafe { &*set.cast::<SetCore>() };
    let mut scan = set.scan.lock();
    // What time has made ready is on its way to be told: an edge that would be lost with the watch.
    set.queue_due(&mut scan);
    let state = State(watch.state.load(Ordering::SeqCst));
    // Checked under the lock: another generation, another set, or removed already.
    let same_life = state.generation() == handle.generation() && !state.is_dead();
    if (same_life || mutant!("close_without_look"))
        && ptr::eq(watch.set.load(Ordering::Relaxed).cast(), set)
    {
        // SAFETY: it is this set's watch and we hold the lock.
        let (fd, source, data) = unsafe {
            let fields = guarded(handle.watch());
            (fields.fd, fields.source, fields.data)
        };
        let there = scan.find(hash(fd, source.cast()), fd, source.cast()) == Some(handle.watch());
        if there || mutant!("close_without_look") {
            last_look(DetachedWatch {
                owner: set.owner(),
                fd,
                interest: state.interest(),
                data,
                pending: state.is_queued(),
            });
            set.forget(&mut scan, handle.watch());
            set.end_removal(scan);
        }
    }
}
