//! The way home of a set that is a kernel epoll by now: its number stands for a set again, all of
//! whose watches are in the kernel half. What it watches comes home by itself, after it.

use crate::objects::home;
use crate::set::create;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::verdict::Verdict;
use crate::sys::{Errno, kind};
use crate::table::{self, away};
use core::ffi::c_int;
use wakeset::mutated;

/// A wait in a set that is away: has it come home, or makes the call on the kernel epoll. `None`:
/// look the number up again.
pub(super) fn wait<T>(fd: c_int, call: impl FnOnce() -> Result<T, Errno>) -> Option<Verdict<T>> {
    if has_come(fd) { None } else { home::counted(fd, call) }
}

/// The same of epoll_ctl(2), which is no cancellation point.
pub(super) fn change<T>(fd: c_int, call: impl FnOnce() -> Result<T, Errno>) -> Option<Verdict<T>> {
    if has_come(fd) { None } else { home::counted_whole(fd, call) }
}

fn has_come(fd: c_int) -> bool {
    away::is_due(fd) && home::come([fd], |_| comes(fd).into())
}

/// Makes a set of it. The caller holds the migrations lock.
fn comes(fd: c_int) -> bool {
    // A wait that began before the migration may sleep in the kernel epoll: it would hear nothing
    // of what comes home later.
    let mut is_free = true;
    table::each_slot(fd, |slot| is_free &= slot.kind() != table::SET || !slot.is_used());
    if !is_free && !mutated!("set_comes_home_beside_a_wait") {
        return false;
    }
    // Another one would be taken for this one, and be as good.
    let has_come = kind::is_epoll(fd) && create::begin(fd, true);
    if has_come {
        count(Stat::HomeFork, 1);
    }
    has_come
}
