//! A look at an exported set by the loop that has its number, before that sleeps.
//!
//! Such a loop sleeps in a kernel call of its own, so that the adaptive spin of a wait is not for
//! it. Here it has one: it looks, spins if its last sleeps say that this gains something, and looks
//! once more. The last look is what a loop without a spin does alone, and what it may sleep after:
//! whatever comes later rings the doorbell, for which the loop is counted for good.

use crate::set::wait::{Limit, Wait};
use crate::set::{FdSet, complete};
use crate::stats::Stat;
use crate::stats::count::{count, count_wait};
use crate::sys::Errno;
use crate::table::{self, Using};
use core::cell::Cell;
use core::ffi::c_int;
use core::time::Duration;
use libc::epoll_event;
use wakeset::{Deadline, EventPoll, Timeout};

/// What an [exported](crate::set::export) set has to report to the loop that has its number, into a
/// slice; 0 if that is to sleep now. Before it says 0 it looks for as long as
/// [`set_spin_limit`](wakeset::set_spin_limit) says, if the last sleeps were short enough for that
/// to save processor time.
///
/// `asleep` is where it keeps when it last said 0, from which the next call knows how long the
/// loop has slept: one for each set, `None` at first.
///
/// # Errors
/// As epoll_wait(2): EBADF, EINVAL. EINVAL also for an empty slice.
pub fn look_before_sleep(
    epfd: c_int,
    events: &mut [epoll_event],
    asleep: &mut Option<Deadline>,
) -> Result<usize, Errno> {
    let capacity = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    if capacity == 0 {
        return Err(Errno::EINVAL);
    }
    loop {
        let Some(set) = table::find::<FdSet>(epfd) else {
            // An epoll of the kernel's.
            return complete::wait(epfd, events, Some(Duration::ZERO));
        };
        let Some(set) = Using::begin(epfd, set) else { continue };
        if let Some(began) = asleep.take() {
            set.set.note_sleep(began);
        }
        count(Stat::Waits, 1);
        let events = events.as_mut_ptr();
        let look = |timeout| wait(&set, events, capacity, timeout);
        let result = match look(Timeout::Now).run() {
            Ok(0) => match look(Timeout::Never).spin_for_loop() {
                Ok(0) => look(Timeout::Now).run(),
                result => result,
            },
            result => result,
        };
        if let Ok(found) = result {
            count_wait(&set.counted, epfd as u32, found as usize);
        }
        if result == Ok(0) {
            *asleep = EventPoll::begin_sleep();
        }
        return result.map(|found| found as usize);
    }
}

fn wait(set: &FdSet, events: *mut epoll_event, capacity: c_int, timeout: Timeout) -> Wait<'_> {
    let milliseconds = if timeout == Timeout::Now { 0 } else { -1 };
    let limit = Limit::Milliseconds(milliseconds);
    // By its caller.
    Wait { counted: Cell::new(true), ..Wait::new(set, events, capacity, limit, timeout) }
}
