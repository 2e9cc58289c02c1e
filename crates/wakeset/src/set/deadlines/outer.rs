//! What the sets around this one have to know of its deadline.

use crate::events::Events;
use crate::set::base::set_core::SetCore;
use crate::sync::Ordering;
use crate::wake::handle::Handle;
use crate::wake::state::State;
use crate::wake::waiters::Published;
use crate::wake::wake_side::SetRef;
use crate::wake::watch::shared;
use core::ptr::{self, NonNull};

impl SetCore {
    /// Plans the watches that other sets have on this one no later than its deadline, which a
    /// change of its interest list has made earlier. A wake would do that too, but every wake is an
    /// edge, and in Linux a set is not told of a timer that has not expired. The caller holds no
    /// scan lock.
    pub(in crate::set) fn plan_outer(&self) {
        if mutant!("change_plans_nothing_outside") {
            return;
        }
        // SAFETY: handles in a queue of this engine lead to type-stable watches.
        self.wake.queue.each_watch(|handle| unsafe { self.plan_outer_watch(handle) });
    }

    /// # Safety
    /// The handle comes from a wait queue, so its watch is type-stable memory of an engine that is
    /// alive.
    unsafe fn plan_outer_watch(&self, handle: Handle) {
        // SAFETY: type-stable, by the caller.
        let watch = unsafe { shared(handle.watch()) };
        let side = watch.set.load(Ordering::Acquire);
        let Some(found) = NonNull::new(side) else { return };
        // SAFETY: watches name sets by their first field, and sets are type-stable as well.
        let outer = SetCore::of(unsafe { SetRef::new(found) });
        let mut scan = outer.scan.lock();
        let state = State(watch.state.load(Ordering::SeqCst));
        // Checked under the lock: a later generation, another set, disarmed, or removed already.
        if state.generation() != handle.generation()
            || state.is_dead()
            || state.mask() & Events::IN.bits() == 0
            || !ptr::eq(watch.set.load(Ordering::Relaxed), side)
        {
            return;
        }
        let Some(node) = scan.plans.find(handle.watch()) else { return };
        // Read under the lock, so that the last of several changes has its way. An earlier plan
        // stays: it may be of a time that has come, and whose edge is not reported yet.
        let at = self.wake.waiters.deadline();
        if at < scan.plans.at(node) {
            scan.plans.set(node, at);
        }
        let published = outer.publish_deadline(&scan);
        drop(scan);
        outer.mind_published(published);
        if published == Published::Earlier {
            outer.plan_outer();
        }
    }
}
