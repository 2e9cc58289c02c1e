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
use crate::table;
use core::ffi::c_int;
use libc::epoll_event;

/// Takes the events of doorbells, batons and alarms out of what the kernel reported of a number
/// that stands for no object of ours; how many are left.
///
/// The kernel half of a set has its doorbell for a moment before its number stands for it, and for
/// a moment after.
///
/// # Safety
/// There are `found` events.
pub(crate) unsafe fn strike(epfd: c_int, events: *mut epoll_event, found: c_int) -> c_int {
    let is_ours = |data: u64| {
        data & 1 == 1 && table::has_slot(epfd, (install::slot_cookie(data) & !1) as usize)
    };
    // SAFETY: the caller's contract.
    unsafe { take_out(events, found, is_ours) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::FdSet;
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
