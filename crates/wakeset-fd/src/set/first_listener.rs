//! The first listener of a set, for threads that sleep in its kernel half already.
//!
//! A set with listeners looks at them once in a while, because a connection may have woken a worker
//! that died ([`rotation`](crate::kernel_half::listeners::rotation)). A thread that went to sleep
//! before there was any sleeps without that limit. So the set gets an alarm, which wakes one of its
//! threads once in a while, whatever that one knows, until none sleeps that may have slept then.
//!
//! One of these threads is also woken at once, and sleeps again with the limit. Each that is woken
//! wakes the next, before it sleeps again. So most of those that wait for long come to know of the
//! listener, but not all of them: one that sleeps again already may be woken in place of the next,
//! and a wait that only looks may take what it was to be woken by. The alarm is not over by that:
//! it lasts while any sleep beside the thread that takes it.
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

/// The set has its first listener: sets its alarm if threads sleep in the kernel half, and wakes
/// one of them. Without an alarm the listeners are watched plainly, which needs no rescue.
pub(super) fn tell_sleepers(set: &FdSet) {
    if !mutant!("listener_without_fence") {
        fence(Ordering::SeqCst);
    }
    if !set.set.has_remote_waiter() {
        return;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    if doorbell::install_held(set) == Ok(true) && set.rotation.set_alarm(set) {
        doorbell::ring_of(set);
    } else {
        set.rotation.make_plain(set);
    }
}

/// One of these threads has been woken: wakes another.
pub(super) fn tell_next(set: &FdSet) {
    if set.set.has_remote_waiter() {
        doorbell::ring_of(set);
    }
}
