//! poll(2), select(2) and their family.

use crate::outcome::whole;
use core::ffi::c_int;
use core::ptr;
use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use wakeset::{Deadline, Timeout};
use wakeset_fd::interpose::{
    TimeLimit, before_poll, before_select, milliseconds_of, returned, timespec_of, timeval_of,
};
use wakeset_fd::poll::{self as in_process, Outcome};
use wakeset_fd::user;

mod real {
    use super::*;
    unsafe extern "C-unwind" {
        pub(super) fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int;
        pub(super) fn ppoll(
            fds: *mut pollfd,
            n: nfds_t,
            timeout: *const timespec,
            mask: *const sigset_t,
        ) -> c_int;
        pub(super) fn select(
            n: c_int,
            read: *mut fd_set,
            write: *mut fd_set,
            except: *mut fd_set,
            timeout: *mut timeval,
        ) -> c_int;
        pub(super) fn pselect(
            n: c_int,
            read: *mut fd_set,
            write: *mut fd_set,
            except: *mut fd_set,
            timeout: *const timespec,
            mask: *const sigset_t,
        ) -> c_int;
    }
}

/// A call, in process as far as what it names is: an array of pollfd.
///
/// # Safety
/// As ppoll(2).
unsafe fn poll_here(
    fds: *mut pollfd,
    n: nfds_t,
    limit: TimeLimit,
    mask: *const sigset_t,
) -> Outcome {
    // SAFETY: the caller's contract, for all of it.
    unsafe {
        if !in_process::names_object(fds, n) {
            return Outcome::Unchanged;
        }
        let outcome = limit
            .timeout()
            .map_or(Outcome::Unchanged, |timeout| in_process::poll(fds, n, timeout, mask));
        if !matches!(outcome, Outcome::Done(_)) {
            before_poll(fds, n);
        }
        outcome
    }
}

/// The same for sets.
///
/// # Safety
/// As pselect(2).
unsafe fn select_here(
    n: c_int,
    sets: [*mut fd_set; 3],
    limit: TimeLimit,
    mask: *const sigset_t,
) -> Outcome {
    let read_only = sets.map(<*mut fd_set>::cast_const);
    // SAFETY: the caller's contract, for all of it.
    unsafe {
        if !in_process::sets_name_object(n, read_only) {
            return Outcome::Unchanged;
        }
        let outcome = limit
            .timeout()
            .map_or(Outcome::Unchanged, |timeout| in_process::select(n, sets, timeout, mask));
        if !matches!(outcome, Outcome::Done(_)) {
            before_select(n, read_only);
        }
        outcome
    }
}

/// poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's contract.
    whole(|| unsafe {
        match poll_here(fds, n, TimeLimit::of_milliseconds(timeout), ptr::null()) {
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Unchanged => real::poll(fds, n, timeout),
            Outcome::Rest(left) => real::poll(fds, n, milliseconds_of(left)),
        }
    })
}

/// ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's contract.
    whole(|| unsafe {
        match poll_here(fds, n, TimeLimit::of_timespec(timeout), mask) {
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Unchanged => real::ppoll(fds, n, timeout, mask),
            Outcome::Rest(left) => {
                let left = left.map(timespec_of);
                real::ppoll(fds, n, left.as_ref().map_or(ptr::null(), ptr::from_ref), mask)
            }
        }
    })
}

/// select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's contract.
    whole(|| unsafe {
        let limit = TimeLimit::of_timeval(timeout);
        let deadline = match limit {
            TimeLimit::After(limit) => Deadline::of(Timeout::After(limit)),
            _ => None,
        };
        let result = match select_here(n, [read, write, except], limit, ptr::null()) {
            Outcome::Unchanged => return real::select(n, read, write, except, timeout),
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Rest(left) => {
                let mut left = left.map(timeval_of);
                let left = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
                real::select(n, read, write, except, left)
            }
        };
        if let Some(deadline) = deadline {
            let left = timeval_of(deadline.remaining());
            let place = timeout.cast::<u64>();
            // Linux ignores it, too, if the memory is not there.
            let _ = user::store_u64(place, left.tv_sec as u64)
                && user::store_u64(place.wrapping_add(1), left.tv_usec as u64);
        }
        result
    })
}

/// pselect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's contract.
    whole(|| unsafe {
        match select_here(n, [read, write, except], TimeLimit::of_timespec(timeout), mask) {
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Unchanged => real::pselect(n, read, write, except, timeout, mask),
            Outcome::Rest(left) => {
                let left = left.map(timespec_of);
                let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
                real::pselect(n, read, write, except, left, mask)
            }
        }
    })
}
