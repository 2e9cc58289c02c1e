//! The first listener of a set, for threads that sleep in its kernel half already.
//!
//! A set with listeners looks at them once in a while, because a connection may have woken a worker
//! that died ([`rotation`](crate::kernel_half::listeners::rotation)). A thread that went to sleep
//! before there was any sleeps without that limit, so it is woken once, and sleeps again with it.
//! Each thread that is woken wakes the next: the kernel wakes those first that have slept longest,
//! so the last one that knew of no listener comes before the first that did.
//!
//! | the thread that adds | a thread that goes to sleep |
//! |---|---|
//! | the listener joins, then the count of remote waiters | counts itself, then checks for listeners |

use crate::kernel_half::listeners::baton;
use crate::set::{FdSet, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::table::gate;
use core::sync::atomic::{Ordering, fence};

/// After a change: the set had no listener before it, if it has one now.
pub(super) fn note_joined(set: &FdSet) {
    if set.rotation.any() {
        baton::make();
        tell_sleeper(set);
    }
}

/// Wakes one of the threads that sleep in the kernel half.
pub(super) fn tell_sleeper(set: &FdSet) {
    fence(Ordering::SeqCst);
    if !set.set.has_remote_waiter() {
        return;
    }
    match doorbell::install(set) {
        Ok(true) => doorbell::ring_of(set),
        // They cannot be reached: the listeners are watched plainly, which needs no rescue.
        Ok(false) | Err(_) => {
            let _guard = SignalGuard::enter();
            let _migrating = gate::hold_migrations();
            set.rotation.make_plain(set);
        }
    }
}
