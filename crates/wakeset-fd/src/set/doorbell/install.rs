//! The doorbell of a set: how it comes and goes, how it is rung, and which event is its own.
//!
//! Installing one is a publish-then-check against the waker, who pushes a watch, then looks for
//! remote waiters, and then for a doorbell:
//!
//! | installing thread | waker |
//! |---|---|
//! | puts the doorbell into the kernel half, then publishes it | puts the watch on the list |
//! | looks for remote waiters | looks for remote waiters |
//! | one is there: rings | one is there: rings the doorbell, if there is one |
//!
//! Beside a close of the set it is another: the closing thread says that the set is closed, then
//! takes out the doorbell if there is one; the installing thread publishes it, then takes it out if
//! the set is closed. A set that is closed by the time that the doorbell is in the kernel half gets
//! none: the number may be another's already, whose waits would report its rings.
//!
//! A remote waiter that the installing thread does not see counts itself in later, and looks at
//! the list after that (`enter_remote`). Under loom this file runs as it is.

use crate::set::FdSet;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step, step_lock};
use crate::sys::{self, Errno};
use crate::table::{self, gate, hidden};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLIN, epoll_event,
};
use wakeset::{mutant, mutated};

/// The data that marks the doorbell's event: an address the program cannot have. Odd, so it is no
/// object's.
pub(crate) fn cookie(set: &FdSet) -> u64 {
    ptr::from_ref(set).addr() as u64 | 1
}

/// The data that marks the baton's event, as [`cookie`] the doorbell's.
pub(crate) fn baton_cookie(set: &FdSet) -> u64 {
    cookie(set) | BATON
}

/// The same for the alarm's.
pub(crate) fn alarm_cookie(set: &FdSet) -> u64 {
    cookie(set) | ALARM
}

/// Whether an event is the doorbell's, the baton's or the alarm's.
#[inline(always)]
pub(crate) fn is_ours(set: &FdSet, data: u64) -> bool {
    slot_cookie(data) == cookie(set)
}

/// The cookie of the set whose doorbell, baton or alarm has this data.
pub(super) fn slot_cookie(data: u64) -> u64 {
    data & !(BATON | ALARM)
}

/// The bits that tell the baton's event, and the alarm's, from the doorbell's.
const BATON: u64 = 2;
const ALARM: u64 = 4;
const _: () = assert!(align_of::<FdSet>() > (ALARM | BATON | 1) as usize);

/// The kernel half may report something of ours from now on.
pub(crate) fn admit(set: &FdSet) {
    let _ = set.doorbell.compare_exchange(NEVER, GONE, Ordering::SeqCst, Ordering::SeqCst);
}

/// Whether the kernel half may report a doorbell or the baton, or a wait may hold such a report.
pub(crate) fn has_ever_been_in(set: &FdSet) -> bool {
    set.doorbell.load(Ordering::SeqCst) != NEVER
}

/// The set has had none.
const NEVER: c_int = -1;
/// It has had one, whose event a waiter may still hold; or it has, or has had, the baton.
const GONE: c_int = -2;

/// Takes out of `found` events those with data of which `is_doorbell` holds; how many are left, in
/// their order.
///
/// # Safety
/// There are `found` events.
pub(crate) unsafe fn take_out(
    events: *mut epoll_event,
    found: c_int,
    is_doorbell: impl Fn(u64) -> bool,
) -> c_int {
    let mut kept = 0;
    for i in 0..usize::try_from(found).unwrap_or(0) {
        // SAFETY: the caller's contract.
        unsafe {
            let event = events.add(i).read_unaligned();
            if is_doorbell(event.u64) {
                continue;
            }
            if kept < i {
                events.add(kept).write_unaligned(event);
            }
        }
        kept += 1;
    }
    kept as c_int
}

/// Rings a doorbell, by its number, which nobody may take away meanwhile. Async-signal-safe.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // A full counter (EAGAIN) is 2^64 rings away.
    let _ = sys::write(fd, (&raw const one).cast(), 8);
}

/// Rings the doorbell that a set may have. Async-signal-safe.
pub(crate) fn ring_of(set: &FdSet) {
    // No handler comes in between: one that wants the number waits for this thread.
    let _guard = SignalGuard::enter_unless_fast();
    set.rings.fetch_add(1, Ordering::SeqCst);
    step_lock!(Locked, &set.rings);
    // After the count. Where the number goes, it is changed before the count is checked.
    let doorbell = set.doorbell.load(Ordering::SeqCst);
    step!(doorbell_before_ring);
    // Without one there is nobody to wake: the set has migrated, or is closed.
    if doorbell >= 0 {
        ring(doorbell);
    }
    step!(doorbell_rung);
    set.rings.fetch_sub(1, Ordering::SeqCst);
    step_lock!(Unlocked, &set.rings);
}

/// [`ring_of`] the set in the slot at `address`: a `DoorbellFn` of the engine.
fn ring_at(address: usize) {
    // SAFETY: `install_held` gives the address of a set, whose slot is never freed.
    ring_of(unsafe { &*ptr::with_exposed_provenance::<FdSet>(address) });
}

/// Empties a doorbell before it goes into its next set: what it was rung for in the last one would
/// make that set's number readable.
fn silence(doorbell: c_int) {
    let mut rings = 0_u64;
    let _ = sys::read(doorbell, (&raw mut rings).cast(), 8);
}

/// Gives the set a doorbell if it has none; `false` if there is no descriptor left for it.
///
/// # Errors
/// As epoll_ctl(2) for `EPOLL_CTL_ADD`: ENOSPC, ENOMEM. The kernel grants no watch to the
/// doorbell, nor would it to anything that migrated.
pub(crate) fn install(set: &FdSet) -> Result<bool, Errno> {
    if set.doorbell.load(Ordering::SeqCst) >= 0 {
        return Ok(true);
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    install_held(set)
}

/// [`install`] for a caller that holds the migrations lock.
pub(crate) fn install_held(set: &FdSet) -> Result<bool, Errno> {
    if set.doorbell.load(Ordering::SeqCst) >= 0 {
        return Ok(true);
    }
    // It migrates meanwhile: the caller will see. What is closed has no number any more: it may be
    // another set's by now.
    if set.state.is_in_kernel() || set.state.is_closed() {
        return Ok(true);
    }
    let Some(doorbell) =
        table::take_spare_doorbell().inspect(|doorbell| silence(*doorbell)).or_else(make)
    else {
        return Ok(false);
    };
    step!(doorbell_before_kernel);
    // From here on a waiter may get its event.
    admit(set);
    let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
    if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, doorbell, &raw const event) {
        table::spare_doorbell(doorbell);
        return Err(error);
    }
    step!(doorbell_in_kernel);
    if set.state.is_closed() && !mutated!("doorbell_in_anothers_set") {
        take_back(set, doorbell);
        return Ok(true);
    }
    // The close may take it at once. Beside that loom would place a plain store in two orders.
    set.doorbell.swap(doorbell, Ordering::SeqCst);
    // A publication with its barrier; then the remote waiters are checked.
    set.set.set_doorbell(Some((ring_at, ptr::from_ref(set).expose_provenance())));
    step!(doorbell_known);
    if set.state.is_closed() && !mutant!("installed_bell_outlives_its_set") {
        // One of the two removes it: the close has said so before it looked.
        remove(set);
        return Ok(true);
    }
    if set.set.has_remote_waiter() && !mutant!("installed_bell_is_silent") {
        // A waker that pushed before there was a doorbell found none to ring.
        ring(doorbell);
    }
    Ok(true)
}

/// Takes out a doorbell that nobody knows of yet, and nobody has rung, because the set was closed:
/// the number may have been another set's by the time that it was watched there. If it is not in
/// what has the number now, it is closed, and so is in no kernel epoll any more.
#[cold]
fn take_back(set: &FdSet, doorbell: c_int) {
    match sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, doorbell, ptr::null()) {
        Ok(()) => table::spare_doorbell(doorbell),
        Err(_) => _ = hidden::close(doorbell),
    }
}

/// Takes the doorbell out of a set that has migrated, or whose number is about to be
/// closed, and keeps it for the next one. Waits may still be in the set, and one of them may have
/// taken the doorbell's event and not looked at it yet.
pub(crate) fn remove(set: &FdSet) {
    hidden::spare_in(&set.doorbell, GONE, |doorbell| {
        set.set.set_doorbell(None);
        // The kernel epoll lives on, if only for a moment, in a wait of another thread.
        let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, doorbell, ptr::null());
    });
}

/// For a new set, in which no wait has begun yet.
pub(crate) fn begin_without(set: &FdSet) {
    set.doorbell.store(NEVER, Ordering::Release);
}

/// Whether there has been any doorbell.
#[cfg_attr(loom, allow(dead_code, reason = "no program runs out of numbers there"))]
pub(super) fn were_made() -> bool {
    MADE.load(Ordering::SeqCst)
}

static MADE: AtomicBool = AtomicBool::new(false);

/// A new one, or `None` where there is no descriptor left.
pub(super) fn make() -> Option<c_int> {
    MADE.store(true, Ordering::SeqCst);
    hidden::make(|| sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK).ok())
}
