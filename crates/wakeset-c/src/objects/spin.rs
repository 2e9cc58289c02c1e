//! How long threads spin before they sleep.

use crate::outcome::fail;
use core::ffi::c_int;
use wakeset::{LONGEST_SPIN, set_spin_limit};

/// Microseconds in each wait; -1 for as long as it saves processor time.
#[unsafe(no_mangle)]
pub extern "C" fn ws_spin_limit(microseconds: c_int) -> c_int {
    let limit = match u32::try_from(microseconds) {
        Ok(limit) if limit <= LONGEST_SPIN => Some(limit),
        Err(_) if microseconds == -1 => None,
        _ => return fail(libc::EINVAL) as c_int,
    };
    set_spin_limit(limit);
    0
}
