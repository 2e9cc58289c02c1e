//! eventfd(2) and its read and write.

use crate::fork::watch_forks;
use crate::io::{ws_read, ws_write};
use crate::outcome::returned;
use core::ffi::{c_int, c_uint};
use wakeset_fd::counter;

/// eventfd(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_eventfd(initial: c_uint, flags: c_int) -> c_int {
    watch_forks();
    returned(counter::eventfd(initial, flags).map(|fd| fd as isize)) as c_int
}

/// eventfd_read(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_eventfd_read(fd: c_int, value: *mut u64) -> c_int {
    // SAFETY: the caller gives memory for 8 bytes.
    if unsafe { ws_read(fd, value.cast(), 8) } == 8 { 0 } else { -1 }
}

/// eventfd_write(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_eventfd_write(fd: c_int, value: u64) -> c_int {
    // SAFETY: 8 bytes of ours.
    if unsafe { ws_write(fd, (&raw const value).cast(), 8) } == 8 { 0 } else { -1 }
}
