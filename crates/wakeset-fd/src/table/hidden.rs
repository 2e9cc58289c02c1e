//! Descriptors of ours that the program does not see: to it their numbers are closed.

use crate::sys;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{self, Entry};
use core::ffi::c_int;

/// Numbers to stay above if the limit allows, so that the program's own come out as they would
/// without us.
const ABOVE: usize = 400;
/// Else a number this near the limit, which the program comes to last.
const NEAR: usize = 16;

/// Gives a descriptor of ours a number that the program is not likely to want, and hides it; the
/// old number is closed.
pub(crate) fn hide(low: c_int) -> c_int {
    if let Some(high) = hidden_duplicate(low) {
        let _ = sys::close(low);
        return high;
    }
    table::put_doorbell(low);
    low
}

/// A hidden duplicate of a descriptor. `None`: there is no number for it.
pub(crate) fn hidden_duplicate(fd: c_int) -> Option<c_int> {
    lifecycle::sign_up(&HIDDEN);
    duplicate(fd).inspect(|high| table::put_doorbell(*high))
}

/// A hidden number, which no doorbell has, is about to be closed.
pub(crate) fn disclose(fd: c_int) {
    table::forget_doorbell(fd);
}

/// A duplicate under a number that the program is not likely to want.
pub(crate) fn duplicate(fd: c_int) -> Option<c_int> {
    let above = |number| sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, number).ok();
    above(ABOVE).or_else(|| {
        let limit = sys::number_limit();
        (limit.saturating_sub(NEAR)..limit).rev().find_map(above)
    })
}

static HIDDEN: Participant =
    Participant { rank: Rank::Hidden, begin_anew: close_all, renumber: None, before_close: None };

/// Closes all hidden descriptors: a forked child has its own.
fn close_all() {
    for fd in table::numbers() {
        if matches!(table::get(fd), Entry::Doorbell) {
            let _ = sys::close(fd);
        }
    }
}
