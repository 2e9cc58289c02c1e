//! The doorbell of a set is what it is in every build; no thread borrows one, and no number
//! changes.

#[path = "../../src/set/doorbell/install.rs"]
mod install;

pub(crate) use install::{
    admit, alarm_cookie, baton_cookie, cookie, has_ever_been_in, install, install_held, is_ours,
    remove, ring, ring_of, take_out,
};

use core::ffi::c_int;
use libc::epoll_event;

/// No other set has the number.
pub(crate) unsafe fn leave_to_another(
    _: c_int,
    _: *mut epoll_event,
    found: c_int,
) -> (c_int, bool) {
    (found, false)
}
