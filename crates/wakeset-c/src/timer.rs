//! timerfd_create(2) and its two calls.

use crate::fork::watch_forks;
use crate::outcome::{answered_unit, returned};
use core::ffi::c_int;
use libc::itimerspec;
use wakeset_fd::timer;

/// timerfd_create(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_timerfd_create(clock: c_int, flags: c_int) -> c_int {
    watch_forks();
    returned(timer::timerfd_create(clock, flags).map(|fd| fd as isize)) as c_int
}

/// timerfd_settime(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_settime(fd, flags, new, old) };
    // SAFETY: as above.
    answered_unit(verdict, || unsafe { libc::timerfd_settime(fd, flags, new, old) })
}

/// timerfd_gettime(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_timerfd_gettime(fd: c_int, current: *mut itimerspec) -> c_int {
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_gettime(fd, current) };
    // SAFETY: as above.
    answered_unit(verdict, || unsafe { libc::timerfd_gettime(fd, current) })
}
