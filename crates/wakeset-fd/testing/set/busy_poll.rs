//! In place of `set/wait/busy_poll.rs`: no file has a device here.

use crate::set::FdSet;

pub(super) fn tell(_: &FdSet) {}
