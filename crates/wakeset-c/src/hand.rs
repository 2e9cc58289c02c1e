//! Hands: removals that say who has an event of the watch.

use crate::listener::{boxed, limit_of, unboxed};
use crate::outcome::{fail, returned, returned_unit};
use core::ffi::c_int;
use core::ptr;
use libc::{epoll_event, timespec};
use wakeset::Timeout;
use wakeset_fd::Errno;
use wakeset_fd::hand::{self, Told};

/// `ws_hand` of the header.
#[derive(Debug)]
pub struct Hand(hand::Hand);

/// `ws_holders` of the header.
#[derive(Debug)]
pub struct Holders(hand::Holders);

/// A hand for the events of a set.
#[unsafe(no_mangle)]
pub extern "C" fn ws_hand_create(epfd: c_int) -> *mut Hand {
    match hand::Hand::new(epfd) {
        Ok(hand) => boxed(Hand(hand)),
        Err(error) => {
            fail(error.into_raw());
            ptr::null_mut()
        }
    }
}

/// epoll_wait(2), with what is reported in this hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_hand_wait(hand: *mut Hand, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let Some(hand) = (unsafe { hand.as_mut() }) else { return fail(libc::EINVAL) as c_int };
    // SAFETY: as above.
    returned(unsafe { hand.0.wait(events, room, timeout) }.map(|n| n as isize)) as c_int
}

/// Done with all that is in the hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_hand_put_down(hand: *mut Hand) {
    // SAFETY: the caller's contract.
    if let Some(hand) = unsafe { hand.as_mut() } {
        hand.0.put_down();
    }
}

/// `EPOLL_CTL_MOD`, which gives back the event of that watch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_hand_mod(hand: *mut Hand, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(hand), Some(event)) = (unsafe { hand.as_mut() }, unsafe { event_of(event) }) else {
        return fail(libc::EFAULT) as c_int;
    };
    returned_unit(hand.0.modify(fd, &event))
}

/// # Safety
/// `event` is null or valid.
unsafe fn event_of(event: *const epoll_event) -> Option<epoll_event> {
    // SAFETY: by the caller.
    (!event.is_null()).then(|| unsafe { event.read_unaligned() })
}

/// Drops the hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_hand_destroy(hand: *mut Hand) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(hand) };
}

/// `EPOLL_CTL_DEL` that says where an event of the watch is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_epoll_del_telling(epfd: c_int, fd: c_int, holders: *mut *mut Holders) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { told(|| hand::remove_telling(epfd, fd), holders) }
}

/// The same by a thread that may have the event itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_hand_del_telling(hand: *mut Hand, fd: c_int, holders: *mut *mut Holders) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let Some(hand) = (unsafe { hand.as_ref() }) else { return fail(libc::EINVAL) as c_int };
    // SAFETY: as above.
    unsafe { told(|| hand.0.remove_telling(fd), holders) }
}

/// What a removal says.
///
/// # Safety
/// `holders` is null or a place for a pointer.
unsafe fn told(remove: impl FnOnce() -> Result<Told, Errno>, holders: *mut *mut Holders) -> c_int {
    if holders.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    let (answer, found) = match remove() {
        Ok(Told::Free) => (0, ptr::null_mut()),
        Ok(Told::InHand(found)) => match boxed(Holders(found)) {
            // No memory to hand them over: it cannot be said any more.
            place if place.is_null() => (3, place),
            place => (1, place),
        },
        Ok(Told::Disarmed) => (2, ptr::null_mut()),
        Ok(Told::Unknown) => (3, ptr::null_mut()),
        Err(error) => return fail(error.into_raw()) as c_int,
    };
    // SAFETY: by the caller.
    unsafe { holders.write_unaligned(found) };
    answer
}

/// Waits until no hand has an event of the removed watch any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_holders_wait(holders: *mut Holders, limit: *const timespec) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(holders), Some(limit)) = (unsafe { holders.as_ref() }, unsafe { limit_of(limit) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    c_int::from(holders.0.wait(Timeout::from(limit)))
}

/// Forgets them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_holders_free(holders: *mut Holders) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(holders) };
}
