//! Doorbells: how a waker reaches a waiter that sleeps in the kernel half of its set.
//!
//! A doorbell is an eventfd of ours in that kernel half, edge-triggered, so each ring wakes one
//! waiter and needs no reading. A set gets one when it first mixes both halves, or when a wait
//! brings a signal mask. The program does not see them: to it their numbers are closed.
//!
//! A doorbell whose set has gone is the next set's, and a late waker of the old set may still ring
//! it: a waiter of the new one then wakes once for nothing. But the program may put a file of its
//! own under the number, by dup2(2), and no waker may write into that. So a waker asks the set for
//! the number just before it rings, and is counted from then on; and the number is given to the
//! program when no waker is counted any more.
//!
//! | file | what |
//! |---|---|
//! | this one | their events in what the kernel reported of a number that is no object's |
//! | `install` | the doorbell of a set: how it comes and goes, how it is rung, which event is its own |
//! | `lent` | what else has one: a thread that sleeps in poll(2) |
//! | `renumber` | what becomes of them when the program wants their numbers |

mod install;
mod lent;
mod renumber;

pub(crate) use self::install::{
    admit, alarm_cookie, baton_cookie, begin_without, cookie, has_ever_been_in, install,
    install_held, is_ours, remove, ring, ring_of, take_out,
};
pub(crate) use self::lent::set_poller_recall;
pub use self::lent::{Lent, Unlent, lend, set_recall};
pub use self::renumber::make_room;
pub(crate) use self::renumber::make_way;

use self::install::make;
use crate::set::FdSet;
use crate::sys::process::is_foreign;
use crate::table::{self, SlotHead};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use libc::epoll_event;
use wakeset::mutated;

/// The set whose doorbell, baton or alarm has this data, if one of its numbers is, or was, this.
fn set_of(epfd: c_int, data: u64) -> Option<&'static FdSet> {
    let address = (install::slot_cookie(data) & !1) as usize;
    if data & 1 == 0 || !table::has_slot(epfd, address) {
        return None;
    }
    // SAFETY: it is a slot's address.
    unsafe { SlotHead::at(address) }.downcast()
}

/// Takes the events of doorbells, batons and alarms out of the `found` events. Those that `wakes`
/// says of wake the waiters of their set in place of the thread that was told: it was told by
/// edges, as one of them would have been. How many events are left, and whether the thread is to
/// pass the baton on.
///
/// An alarm is a level: the kernel has woken the next one for it.
///
/// # Safety
/// There are `found` events.
unsafe fn leave_to(
    epfd: c_int,
    events: *mut epoll_event,
    found: c_int,
    wakes: impl Fn(&FdSet) -> bool,
) -> (c_int, bool) {
    let passes = Cell::new(false);
    let is_ours = |data: u64| {
        let Some(set) = set_of(epfd, data) else { return false };
        // In a child the doorbell's number may be another file.
        let wakes = wakes(set) && !is_foreign();
        if wakes && data == cookie(set) && !mutated!("anothers_ring_is_kept") {
            ring_of(set);
        }
        if wakes && data == baton_cookie(set) && !mutated!("anothers_baton_is_kept") {
            passes.set(true);
        }
        true
    };
    // SAFETY: the caller's contract.
    let kept = unsafe { take_out(events, found, is_ours) };
    (kept, passes.get())
}

/// What is left of the `found` events of a wait in a set that is closed, whose number may be
/// another set's: what is not told to the program wakes that set's waiters, because the wait does
/// nothing for it. Whether the wait is to pass the baton on comes with it.
///
/// # Safety
/// There are `found` events.
#[cold]
pub(crate) unsafe fn leave_to_another(
    epfd: c_int,
    events: *mut epoll_event,
    found: c_int,
) -> (c_int, bool) {
    if mutated!("anothers_ring_is_told") {
        return (found, false);
    }
    // SAFETY: the caller's contract.
    unsafe { leave_to(epfd, events, found, |_| true) }
}

/// What is left of what the kernel reported of a number that stood for no object of ours, and
/// whether the thread is to pass the baton on.
///
/// The kernel half of a set has its doorbell for a moment before its number stands for it, and for
/// a moment after. If the number stands for it by now the set's waiters are woken: the call may end
/// with other events.
///
/// # Safety
/// There are `found` events.
pub(crate) unsafe fn strike(epfd: c_int, events: *mut epoll_event, found: c_int) -> (c_int, bool) {
    let is_here = |set: &FdSet| table::find::<FdSet>(epfd).is_some_and(|here| ptr::eq(here, set));
    // SAFETY: the caller's contract.
    unsafe { leave_to(epfd, events, found, is_here) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use crate::sys::sync::Ordering;
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
            let (kept, _) = unsafe { strike(fd, events.as_mut_ptr(), events.len() as c_int) };
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

    /// What the kernel says of a number now: the first event's data, if there is one.
    fn told(epfd: c_int) -> Option<u64> {
        let mut event = epoll_event { events: 0, u64: 0 };
        let found = sys::epoll_pwait(epfd, &raw mut event, 1, 0, ptr::null(), 0).unwrap();
        (found == 1).then_some(event.u64)
    }

    /// A call that had begun before the number was the set's, and that ended with another event,
    /// took the ring along.
    #[test]
    fn a_ring_that_is_struck_out_is_the_sets_again() {
        let _alone = alone();
        let fd = crate::epoll_create1(0).unwrap();
        let Some(set) = table::find::<FdSet>(fd) else { panic!("{fd} is a kernel epoll") };
        assert_eq!(install(set), Ok(true));
        ring_of(set);
        assert_eq!(told(fd), Some(cookie(set)));
        assert_eq!(told(fd), None, "it is an edge");
        let mut event = epoll_event { events: 1, u64: cookie(set) };
        // SAFETY: one event.
        assert_eq!(unsafe { strike(fd, &raw mut event, 1) }, (0, false));
        assert_eq!(told(fd), Some(cookie(set)));
        event.u64 = baton_cookie(set);
        // SAFETY: as above.
        assert_eq!(unsafe { strike(fd, &raw mut event, 1) }, (0, true));
        crate::close(fd).unwrap();
        event.u64 = cookie(set);
        // SAFETY: as above.
        assert_eq!(unsafe { strike(fd, &raw mut event, 1) }, (0, false), "there is nobody");
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

    /// It went into the next set of the number, whose program was given the event.
    #[test]
    fn a_closed_set_gets_no_doorbell() {
        let _alone = alone();
        let fd = crate::epoll_create1(0).unwrap();
        let Some(set) = table::find::<FdSet>(fd) else { panic!("{fd} is a kernel epoll") };
        let wait = Using::begin(fd, set).unwrap();
        crate::close(fd).unwrap();
        assert_eq!(install(&wait), Ok(true));
        assert!(wait.doorbell.load(Ordering::SeqCst) < 0);
        drop(wait);
    }
}
