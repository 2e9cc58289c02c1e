//! Doorbells: how a waker reaches a waiter that sleeps in the kernel half of its set.
//!
//! A doorbell is an eventfd of ours in that kernel half, edge-triggered, so each ring wakes one
//! waiter and needs no reading. A set gets one when it first mixes both halves, or when a wait
//! brings a signal mask. The program does not see them: to it their numbers are closed.
//!
//! A doorbell whose set has gone is the next set's, and a late waker of the old set may still ring
//! it: a waiter of the new one then wakes once for nothing. But the program may put a file of its
//! own under the number, by dup2(2) ([`renumber`]), and no waker may write into that. So a waker
//! asks the set for the number just before it rings, and is counted from then on; and the number is
//! given to the program when no waker is counted any more.
//!
//! What else has one: a thread that sleeps in poll(2) ([`lent`]).

mod lent;
mod renumber;

pub use self::lent::{Lent, lend, set_recall};
pub(crate) use self::renumber::make_way;

use crate::set::FdSet;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step, step_lock, step_waited};
use crate::sys::{self, Errno};
use crate::table::{self, gate, hidden};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLIN, epoll_event,
};
use wakeset::{DoorbellFn, mutated};

/// The data that marks the doorbell's event: an address the program cannot have. Odd, so it is no
/// object's.
pub(crate) fn cookie(set: &FdSet) -> u64 {
    ptr::from_ref(set).addr() as u64 | 1
}

/// Whether the kernel half may report a doorbell, or a wait may hold such a report.
pub(crate) fn has_ever_been_in(set: &FdSet) -> bool {
    set.doorbell.load(Ordering::SeqCst) != NEVER
}

/// The set has had none.
const NEVER: c_int = -1;
/// It has had one, whose event a waiter may still hold.
const GONE: c_int = -2;

/// Takes the events of doorbells out of what the kernel reported of a number that stands for no
/// object of ours; how many are left.
///
/// The kernel half of a set has its doorbell for a moment before its number stands for it, and for
/// a moment after.
///
/// # Safety
/// There are `found` events.
pub(crate) unsafe fn strike(epfd: c_int, events: *mut epoll_event, found: c_int) -> c_int {
    let is_doorbell = |data: u64| data & 1 == 1 && table::has_slot(epfd, data as usize & !1);
    // SAFETY: the caller's contract.
    unsafe { take_out(events, found, is_doorbell) }
}

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
    let (ring, argument) = bell_of(set);
    ring(argument);
}

/// What a set asks its wakers to call: a `DoorbellFn` of the engine, for this set.
fn bell_of(set: &FdSet) -> (DoorbellFn, usize) {
    (ring_for, ptr::from_ref(set).expose_provenance())
}

/// Rings the doorbell of the set in the slot at `address`. Async-signal-safe.
fn ring_for(address: usize) {
    // No handler comes in between: one that wants the number waits for this thread.
    let _guard = SignalGuard::enter_unless_fast();
    // SAFETY: the address of a set's slot (`bell_of`), which is never freed.
    let set = unsafe { &*ptr::with_exposed_provenance::<FdSet>(address) };
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

/// Waits for the wakers that may know a number which no set has any more, of whatever set they are.
fn wait_for_wakers() {
    for number in table::numbers() {
        table::each_slot(number, |slot| {
            let Some(set) = slot.downcast::<FdSet>() else { return };
            while set.rings.load(Ordering::SeqCst) != 0 && !mutated!("wakers_ring_late") {
                step_lock!(Waiting, &set.rings);
                sys::sched_yield();
            }
            step_waited!();
        });
    }
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
    if set.state.is_in_kernel() {
        // It migrates meanwhile: the caller will see.
        return Ok(true);
    }
    let Some(doorbell) =
        table::take_spare_doorbell().inspect(|doorbell| silence(*doorbell)).or_else(make)
    else {
        return Ok(false);
    };
    // From here on a waiter may get its event.
    set.doorbell.store(GONE, Ordering::SeqCst);
    let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
    if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, doorbell, &raw const event) {
        table::spare_doorbell(doorbell);
        return Err(error);
    }
    step!(doorbell_in_kernel);
    // Published by SeqCst stores, and then the remote waiters are checked.
    set.doorbell.store(doorbell, Ordering::SeqCst);
    set.set.set_doorbell(Some(bell_of(set)));
    step!(doorbell_known);
    if set.set.has_remote_waiter() {
        // A waker that pushed before there was a doorbell found none to ring.
        ring(doorbell);
    }
    Ok(true)
}

/// Takes the doorbell out of a set that has migrated, or whose number is about to be
/// closed, and keeps it for the next one. Waits may still be in the set, and one of them may have
/// taken the doorbell's event and not looked at it yet.
pub(crate) fn remove(set: &FdSet) {
    let doorbell = set.doorbell.swap(GONE, Ordering::SeqCst);
    if doorbell >= 0 {
        set.set.set_doorbell(None);
        // The kernel epoll lives on, if only for a moment, in a wait of another thread.
        let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, doorbell, ptr::null());
        table::spare_doorbell(doorbell);
    }
}

/// For a new set, in which no wait has begun yet.
pub(crate) fn begin_without(set: &FdSet) {
    set.doorbell.store(NEVER, Ordering::SeqCst);
}

fn make() -> Option<c_int> {
    sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK).ok().map(hidden::hide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Using;
    use crate::table::alone::alone;
    extern crate std;
    use std::vec::Vec;

    /// Waits that begin while the number is being made or closed are the kernel's alone.
    #[test]
    fn what_the_kernel_says_of_a_doorbell_is_struck_out() {
        let _alone = alone();
        let fd = crate::epoll_create1(0).unwrap();
        let Some(set) = table::find::<FdSet>(fd) else { panic!("{fd} is a kernel epoll") };
        let doorbell = cookie(set);
        let struck = |data: &[u64]| {
            let mut events: Vec<_> =
                data.iter().map(|&u64| epoll_event { events: 1, u64 }).collect();
            // SAFETY: as many as there are.
            let kept = unsafe { strike(fd, events.as_mut_ptr(), events.len() as c_int) };
            events[..kept as usize].iter().map(|event| event.u64).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert_eq!(
                struck(&[1, doorbell, doorbell - 1, u64::MAX, doorbell]),
                [1, doorbell - 1, u64::MAX]
            );
            assert_eq!(struck(&[doorbell]), []);
            // Again when the number is closed: a file of the kernel's may have it.
            let _ = crate::close(fd);
        }
    }

    /// The wait took the doorbell's event for one of the program's: the close had made the set
    /// forget that it ever had one.
    #[test]
    fn a_wait_knows_the_doorbell_of_a_set_closed_meanwhile() {
        let _alone = alone();
        let fd = crate::epoll_create1(0).unwrap();
        let Some(set) = table::find::<FdSet>(fd) else { panic!("{fd} is a kernel epoll") };
        assert!(!has_ever_been_in(set));
        let wait = Using::begin(fd, set).unwrap();
        assert_eq!(install(&wait), Ok(true));
        crate::close(fd).unwrap();
        assert!(has_ever_been_in(&wait));
        drop(wait);
    }
}
