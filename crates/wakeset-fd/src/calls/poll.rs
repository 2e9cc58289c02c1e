//! poll(2) and select(2) as complete calls.

use crate::calls::interpose::{TimeLimit, before_poll, before_select, timespec_of};
use crate::poll::{self, Outcome};
use crate::sys::{self, Errno, SIGSET_BYTES, user};
use core::ffi::c_int;
use core::ptr;
use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec};
use wakeset::Timeout;

/// The limit for the kernel, which writes back what is left: a copy, or the program's own pointer
/// if that leads to no time.
fn copied(limit: *const timespec, outcome: Outcome) -> (Option<timespec>, *const timespec) {
    if let Outcome::Rest(left) = outcome {
        return (left.map(timespec_of), ptr::null());
    }
    // SAFETY: any bits are a timespec.
    let copy = (!limit.is_null()).then(|| unsafe { user::load(limit) }).flatten();
    (copy, limit)
}

/// ppoll(2), the function: the limit stays as it is.
///
/// # Errors
/// As ppoll(2).
///
/// # Safety
/// As ppoll(2).
pub unsafe fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    let mut outcome = Outcome::Unchanged;
    // SAFETY: the caller's contract.
    unsafe {
        if poll::names_object(fds, n) {
            let timeout = TimeLimit::of_timespec(limit).timeout();
            if timeout == Some(Timeout::Now)
                && mask.is_null()
                && let Some(result) = poll::look_quickly(fds, n)
            {
                return result.map(|found| found as c_int);
            }
            if let Some(timeout) = timeout {
                outcome = poll::poll(fds, n, timeout, mask);
            }
            if let Outcome::Done(result) = outcome {
                return result.map(|found| found as c_int);
            }
            before_poll(fds, n);
        }
    }
    let (mut copy, place) = copied(limit, outcome);
    let place = copy.as_mut().map_or(place, |copy| ptr::from_mut(copy).cast_const());
    sys::raw!(ppoll, fds, n, place, mask, SIGSET_BYTES).map(|found| found as c_int)
}

/// pselect(2), the function: the limit stays as it is.
///
/// # Errors
/// As pselect(2).
///
/// # Safety
/// As pselect(2).
pub unsafe fn pselect(
    n: c_int,
    sets: [*mut fd_set; 3],
    limit: *const timespec,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    let read_only = sets.map(<*mut fd_set>::cast_const);
    let mut outcome = Outcome::Unchanged;
    // SAFETY: the caller's contract.
    unsafe {
        if poll::sets_name_object(n, read_only) {
            let timeout = TimeLimit::of_timespec(limit).timeout();
            if timeout == Some(Timeout::Now)
                && mask.is_null()
                && let Some(result) = poll::select_quickly(n, sets)
            {
                return result.map(|found| found as c_int);
            }
            if let Some(timeout) = timeout {
                outcome = poll::select(n, sets, timeout, mask);
            }
            if let Outcome::Done(result) = outcome {
                return result.map(|found| found as c_int);
            }
            before_select(n, read_only);
        }
    }
    let (mut copy, place) = copied(limit, outcome);
    let place = copy.as_mut().map_or(place, |copy| ptr::from_mut(copy).cast_const());
    let [read, write, except] = sets;
    let masked = [mask.expose_provenance(), SIGSET_BYTES];
    sys::raw!(pselect6, n, read, write, except, place, masked.as_ptr()).map(|found| found as c_int)
}
