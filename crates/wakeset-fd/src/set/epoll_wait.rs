//! epoll_wait(2) and its kin: each call checks its arguments and then runs one [`Wait`].

use crate::kernel_half::listeners::baton;
use crate::migrate;
use crate::set::wait::{Limit, Mask, Rest, Wait};
use crate::set::{FdSet, doorbell, home};
use crate::stats::Stat;
use crate::stats::count::{count, count_served, count_wait};
use crate::sys::cancel;
use crate::sys::handled;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno, SIGSET_BYTES};
use crate::table::{self, Entry, Using};
use core::cell::{Cell, OnceCell};
use core::ffi::c_int;
use libc::epoll_event;

/// The most events that the kernel accepts as `maxevents`.
const MOST_EVENTS: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// epoll_wait(2), epoll_pwait(2) and epoll_pwait2(2) as far as they concern in-process objects.
///
/// # Safety
/// As those: `events` has room for `maxevents` events, `limit` and `mask` are valid.
pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Limit,
    mask: Mask,
) -> Verdict<c_int> {
    // SAFETY: the caller's contract.
    unsafe { epoll_wait_into(None, epfd, events, maxevents, limit, mask) }
}

/// [`epoll_wait`] whose lease, of the set that `epfd` stands for, holds what the in-process half
/// reports.
///
/// # Safety
/// As [`epoll_wait`].
pub(crate) unsafe fn epoll_wait_into(
    lease: Option<&wakeset::Lease<'static>>,
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Limit,
    mask: Mask,
) -> Verdict<c_int> {
    loop {
        let found = match table::find_for_wait::<FdSet>(epfd) {
            Ok(found) => found,
            // SAFETY: the caller's contract.
            Err(()) => match unsafe { wait_away(lease, epfd, events, maxevents, limit, mask) } {
                Some(verdict) => return verdict,
                None => continue,
            },
        };
        let Some(set) = found else {
            return match table::get(epfd) {
                // SAFETY: the caller's contract.
                Entry::Doorbell => Done(unsafe { wait_on_closed(events, maxevents, limit, mask) }),
                Entry::Kernel | Entry::Object(_) => Kernel,
            };
        };
        // SAFETY: any bits are a mask.
        let bad_mask =
            || mask.bytes != SIGSET_BYTES || unsafe { user::load_u64(mask.set.cast()) }.is_none();
        if maxevents <= 0 || maxevents > MOST_EVENTS || (!mask.set.is_null() && bad_mask()) {
            // EINVAL or EFAULT; the kernel half will know.
            return Kernel;
        }
        // SAFETY: the caller's contract. EINVAL and EFAULT are the kernel's to say.
        let Some(timeout) = (unsafe { limit.timeout() }) else { return Kernel };
        if !sys::is_user(events, maxevents as usize * size_of::<epoll_event>()) {
            // EFAULT before any check, unless the machine has more user memory than most.
            migrate::fd(epfd, Stat::MigratedOddArgument);
            return Kernel;
        }
        let Some(set) = Using::begin(epfd, set) else { continue };
        let version = set.rotation.begin_wait();
        let wait = Wait {
            lease,
            mask,
            handled: Cell::new(set.rotation.any().then(handled::any)),
            ..Wait::new(&set, events, maxevents, limit, timeout)
        };
        let result = match wait.run() {
            Ok(0) if wait.faulted.get() => Err(Errno::EFAULT),
            result => result,
        };
        set.rotation.note_wait(version, result.unwrap_or(-1), maxevents);
        count_result(&wait, epfd as u32, result);
        return Done(result);
    }
}

/// Counts a wait on this number that ends with this.
#[inline]
fn count_result(wait: &Wait<'_>, number: u32, result: Result<c_int, Errno>) {
    let counted = &wait.set.counted;
    match result {
        _ if !wait.counted.get() => count_served(counted, number, result.unwrap_or(0) as usize),
        Ok(n) => count_wait(counted, number, n as usize),
        Err(_) => {}
    }
}

/// A wait on a set that is away. `None`: look the number up again.
///
/// # Safety
/// As [`epoll_wait_into`].
#[cold]
unsafe fn wait_away(
    lease: Option<&wakeset::Lease<'static>>,
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Limit,
    mask: Mask,
) -> Option<Verdict<c_int>> {
    let rest = Rest::of(limit);
    // SAFETY: the caller's contract, here and below.
    let call = || unsafe { kernels_wait(epfd, events, maxevents, limit, mask) };
    let verdict = home::wait(epfd, call);
    let Some(Done(Ok(found))) = verdict else { return verdict };
    // SAFETY: the kernel has just written so many.
    Some(Done(unsafe {
        match reported(epfd, events, found) {
            Some(kept) => Ok(kept),
            None => wait_whole(lease, epfd, events, maxevents, rest.limit(), mask),
        }
    }))
}

/// The wait as a complete function: what the kernel has to answer is asked of it.
///
/// # Errors
/// As epoll_wait(2).
///
/// # Safety
/// As [`epoll_wait_into`].
pub(crate) unsafe fn wait_whole(
    lease: Option<&wakeset::Lease<'static>>,
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Limit,
    mask: Mask,
) -> Result<c_int, Errno> {
    let mut limit = limit;
    let begun = OnceCell::new();
    loop {
        // SAFETY: the caller's contract, here and below.
        let verdict = unsafe { epoll_wait_into(lease, epfd, events, maxevents, limit, mask) };
        if let Done(result) = verdict {
            return result;
        }
        let rest = begun.get_or_init(|| Rest::of(limit));
        // SAFETY: as above.
        let call = || unsafe { kernels_wait(epfd, events, maxevents, limit, mask) };
        let found = cancel::point(call)?;
        // SAFETY: the kernel has just written so many.
        if let Some(kept) = unsafe { reported(epfd, events, found) } {
            return Ok(kept);
        }
        // SAFETY: the kernel has accepted it.
        limit = unsafe { rest.limit() };
    }
}

/// What a wait in the kernel epoll has found for the program, and counts it. `None`: nothing, but
/// something of ours, so the time is not up.
///
/// # Safety
/// There are `found` events.
unsafe fn reported(epfd: c_int, events: *mut epoll_event, found: c_int) -> Option<c_int> {
    let (kept, passes) = match found {
        0 => (0, false),
        // SAFETY: the caller's contract.
        _ => unsafe { doorbell::strike(epfd, events, found) },
    };
    if passes {
        baton::pass();
    }
    if kept == 0 && found > 0 {
        return None;
    }
    count(Stat::Waits, 1);
    count(Stat::WaitsOfKernelSets, 1);
    count(Stat::Events, kept as usize);
    count(Stat::EventsFromKernel, kept as usize);
    Some(kept)
}

/// The system call as the program made it.
///
/// # Safety
/// As [`epoll_wait`].
unsafe fn kernels_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Limit,
    mask: Mask,
) -> Result<c_int, Errno> {
    match limit {
        Limit::Milliseconds(milliseconds) => {
            sys::epoll_pwait(epfd, events, maxevents, milliseconds, mask.set, mask.bytes)
        }
        Limit::Timespec(limit) if limit.is_null() => {
            sys::epoll_pwait2(epfd, events, maxevents, None, mask.set, mask.bytes)
        }
        // SAFETY: any bits are a timespec.
        Limit::Timespec(limit) => match unsafe { user::load(limit) } {
            Some(limit) => {
                sys::epoll_pwait2(epfd, events, maxevents, Some(&limit), mask.set, mask.bytes)
            }
            None => Err(Errno::EFAULT),
        },
    }
}

/// What the kernel says to a wait on a closed number: EBADF, unless something else is wrong that it
/// sees first.
///
/// # Safety
/// As [`epoll_wait`].
unsafe fn wait_on_closed(
    events: *mut epoll_event,
    maxevents: c_int,
    limit: Limit,
    mask: Mask,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's contract.
    unsafe { kernels_wait(-1, events, maxevents, limit, mask) }
}

/// A wait in the kernel after [`epoll_wait`] gave [`Kernel`]. `call` returns the number of events,
/// or -1. `None`: it has reported only doorbells, which the program does not know of. Then look the
/// number up again, with the [`Rest`] of the time, because a set may have come under it.
///
/// # Safety
/// `call` writes as many events to `events` as it returns.
pub(crate) unsafe fn in_kernel(
    epfd: c_int,
    events: *mut epoll_event,
    call: impl FnOnce() -> c_int,
) -> Option<c_int> {
    match call() {
        found if found < 0 => Some(found),
        // SAFETY: the caller's contract.
        found => unsafe { reported(epfd, events, found) },
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
