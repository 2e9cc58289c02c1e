//! The first listener of a set, for threads that sleep in its kernel half already.
//!
//! A set with listeners looks at them once in a while, because a connection may have woken a worker
//! that died ([`rotation`](crate::kernel_half::listeners::rotation)). A thread that went to sleep
//! before there was any sleeps without that limit, so it is woken once, and sleeps again with it.
//! Each thread that is woken wakes the next, before it sleeps again.
//!
//! With three such threads or more, one that sleeps again already may be woken in place of the
//! last, which then sleeps without the limit until something else ends its sleep. That matters only
//! to a connection whose worker has died, while no other thread waits in the set: one that comes
//! for this set ends the sleep as ever.
//!
//! | the thread that adds | a thread that goes to sleep |
//! |---|---|
//! | the listener joins, then the count of remote waiters | counts itself, then checks for listeners |

use crate::kernel_half::listeners::rotation::can_join;
use crate::kernel_half::listeners::{baton, is_listener, order};
use crate::set::{FdSet, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::sys::sync::{Ordering, fence};
use crate::table::gate;
use core::ffi::c_int;
use wakeset::{Events, mutant};

/// Before a watch for these events is added, with no lock held: the first listener that a process
/// waits for needs the baton.
#[inline]
pub(super) fn before_add(fd: c_int, events: Events) {
    if baton::number() < 0 && can_join(events) && order().is_some() && is_listener(fd) {
        baton::make(fd);
    }
}

/// Wakes one of the threads that sleep in the kernel half: the set has its first listener, or one
/// of them was woken for it.
pub(super) fn tell_sleeper(set: &FdSet) {
    if !mutant!("listener_without_fence") {
        fence(Ordering::SeqCst);
    }
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
