//! poll(2) and ppoll(2). A call that names an object is answered in process
//! ([`wakeset_fd::poll`]). A wait for listening sockets ([`listeners`]) or for a userfaultfd
//! ([`uffd`]) takes its turn; objects that such a call names migrate first.

use super::row::{Registers, replaced};
use crate::listeners::{self, Outcome};
use crate::{signals, uffd};
use core::cell::Cell;
use core::ffi::{c_int, c_long};
use core::ptr;
use core::time::Duration;
use libc::{nfds_t, pollfd, sigset_t, timespec};
use wakeset::{Deadline, Timeout};
use wakeset_fd::interpose::{self, TimeLimit, milliseconds_of, returned, timespec_of};
use wakeset_fd::{poll as in_process, user};

/// How a program's call is made again.
#[derive(Clone, Copy)]
pub(super) enum Again {
    /// With the limit that the program gave.
    Unchanged,
    /// With this much time.
    Within(Option<Duration>),
}

/// A call that names objects, as far as it is answered in process.
///
/// # Safety
/// As ppoll(2).
#[inline(always)]
unsafe fn poll_objects(
    fds: *mut pollfd,
    n: nfds_t,
    limit: TimeLimit,
    mask: *const sigset_t,
) -> in_process::Outcome {
    // SAFETY: any bits are a pollfd.
    let entries = (0..n as usize).map_while(|i| unsafe { user::load(fds.wrapping_add(i)) });
    let takes_turns = |entry: pollfd| {
        let connections = entry.events & (libc::POLLIN | libc::POLLRDNORM) != 0;
        uffd::is_known(entry.fd) || connections && listeners::take_turns_beside_objects(entry.fd)
    };
    match limit.timeout() {
        // SAFETY: the caller's contract.
        Some(Timeout::Now) => unsafe { in_process::poll(fds, n, Timeout::Now, mask) },
        // SAFETY: as above.
        Some(timeout) if !{ entries }.any(takes_turns) => unsafe {
            in_process::poll(fds, n, timeout, mask)
        },
        _ => in_process::Outcome::Unchanged,
    }
}

/// The first entry for which the call may not be the kernel's alone; `None`: it is, and can be
/// passed on.
///
/// # Safety
/// As ppoll(2).
#[inline(always)]
unsafe fn first_unsure(fds: *mut pollfd, n: nfds_t, may_sleep: bool) -> Option<usize> {
    if listeners::has_told() || may_sleep && uffd::any() {
        return Some(0);
    }
    // SAFETY: the caller's contract.
    unsafe { in_process::first_unsure(fds, n, may_sleep) }
}

/// Answers a call that has no time and no mask, if that takes no more than a look.
///
/// # Safety
/// As poll(2).
#[inline(always)]
unsafe fn look_quickly(fds: *mut pollfd, n: nfds_t) -> Option<c_int> {
    if listeners::has_told() {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { in_process::look_quickly(fds, n) }.map(|result| returned(result) as c_int)
}

/// What poll(2) and ppoll(2) have in common. The entries before `first` are the kernel's.
///
/// # Safety
/// As ppoll(2).
#[inline]
unsafe fn poll_with(
    fds: *mut pollfd,
    n: nfds_t,
    first: usize,
    limit: TimeLimit,
    mask: *const sigset_t,
    call: &mut impl FnMut(Again) -> c_int,
) -> c_int {
    listeners::before_wait();
    // SAFETY: the caller's contract.
    if unsafe { in_process::names_object(fds.wrapping_add(first), n - first as nfds_t) } {
        // SAFETY: as above.
        let outcome = unsafe { poll_objects(fds, n, limit, mask) };
        if let in_process::Outcome::Done(result) = outcome {
            return returned(result) as c_int;
        }
        // SAFETY: as above.
        unsafe { interpose::before_poll(fds, n) };
        if let in_process::Outcome::Rest(left) = outcome {
            return call(Again::Within(left));
        }
    }
    let limit = match limit {
        TimeLimit::Zero | TimeLimit::Invalid => return call(Again::Unchanged),
        TimeLimit::Forever => None,
        TimeLimit::After(limit) => Some(limit),
    };
    // SAFETY: as above.
    let taken = unsafe { uffd::poll(fds, n, limit, mask, &mut |left| call(Again::Within(left))) };
    if let Some(result) = taken {
        return result;
    }
    // SAFETY: as above.
    match unsafe { listeners::poll(fds, n, limit, mask) } {
        Outcome::Unchanged => call(Again::Unchanged),
        Outcome::Done(result) => returned(result) as c_int,
        Outcome::Rest(left) => call(Again::Within(left)),
    }
}

/// poll(2).
///
/// # Safety
/// As poll(2).
pub(super) unsafe fn poll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: c_int,
    call: impl Fn(*mut pollfd, nfds_t, c_int) -> c_int,
) -> c_int {
    if timeout != 0 {
        // SAFETY: the caller's contract.
        return unsafe { poll_in_time(fds, n, timeout, call) };
    }
    // SAFETY: as above.
    match unsafe { first_unsure(fds, n, false) } {
        // Nothing comes after it, so it is a jump and costs no second return.
        None => call(fds, n, timeout),
        // SAFETY: as above.
        Some(first) => unsafe { poll_now(fds, n, first, call) },
    }
}

/// [`poll`] of a call that has no time, and names something of ours.
///
/// # Safety
/// As poll(2).
#[inline(never)]
unsafe fn poll_now(
    fds: *mut pollfd,
    n: nfds_t,
    first: usize,
    call: impl Fn(*mut pollfd, nfds_t, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    match unsafe { look_quickly(fds, n) } {
        Some(found) => found,
        // SAFETY: as above.
        None => unsafe { poll_from(fds, n, first, 0, call) },
    }
}

/// [`poll`] of a call that has time.
///
/// # Safety
/// As poll(2).
#[inline(never)]
unsafe fn poll_in_time(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: c_int,
    call: impl Fn(*mut pollfd, nfds_t, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    match unsafe { first_unsure(fds, n, true) } {
        None => call(fds, n, timeout),
        // SAFETY: as above.
        Some(first) => unsafe { poll_from(fds, n, first, timeout, call) },
    }
}

/// [`poll`] of what may not be the kernel's alone.
///
/// # Safety
/// As poll(2).
#[inline(never)]
unsafe fn poll_from(
    fds: *mut pollfd,
    n: nfds_t,
    first: usize,
    timeout: c_int,
    call: impl Fn(*mut pollfd, nfds_t, c_int) -> c_int,
) -> c_int {
    let limit = TimeLimit::of_milliseconds(timeout);
    let mut again = |again| match again {
        Again::Unchanged => call(fds, n, timeout),
        Again::Within(left) => call(fds, n, milliseconds_of(left)),
    };
    // SAFETY: the caller's contract.
    unsafe { poll_with(fds, n, first, limit, ptr::null(), &mut again) }
}

/// ppoll(2), the function: unlike the system call it leaves the limit as it is.
///
/// # Safety
/// As ppoll(2).
pub(super) unsafe fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    if !signals::passes_unchanged(mask) || !unsafe { interpose::is_no_time(timeout.cast()) } {
        // SAFETY: as above.
        return unsafe { ppoll_in_time(fds, n, timeout, mask, call) };
    }
    // SAFETY: as above.
    match unsafe { first_unsure(fds, n, false) } {
        None => call(fds, n, timeout, mask),
        // SAFETY: as above.
        Some(first) => unsafe { ppoll_now(fds, n, first, timeout, mask, call) },
    }
}

/// [`ppoll`] of a call that has no time, and names something of ours.
///
/// # Safety
/// As ppoll(2).
#[inline(never)]
unsafe fn ppoll_now(
    fds: *mut pollfd,
    n: nfds_t,
    first: usize,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let found = if mask.is_null() { unsafe { look_quickly(fds, n) } } else { None };
    match found {
        Some(found) => found,
        // SAFETY: as above.
        None => unsafe { ppoll_from(fds, n, first, timeout, mask, call) },
    }
}

/// [`ppoll`] of a call that has time, or a mask that may have to be changed.
///
/// # Safety
/// As ppoll(2).
#[inline(never)]
unsafe fn ppoll_in_time(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
) -> c_int {
    let first = match signals::passes_unchanged(mask) {
        // SAFETY: the caller's contract.
        true => unsafe { first_unsure(fds, n, true) },
        false => Some(0),
    };
    match first {
        None => call(fds, n, timeout, mask),
        // SAFETY: as above.
        Some(first) => unsafe { ppoll_from(fds, n, first, timeout, mask, call) },
    }
}

/// [`ppoll`] of what may not be the kernel's alone.
///
/// # Safety
/// As ppoll(2).
#[inline(never)]
unsafe fn ppoll_from(
    fds: *mut pollfd,
    n: nfds_t,
    first: usize,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let passed = unsafe { signals::PassedMask::of(mask) };
    let mask = passed.pointer();
    let mut again = |again| match again {
        Again::Unchanged => call(fds, n, timeout, mask),
        Again::Within(left) => {
            let left = left.map(timespec_of);
            call(fds, n, left.as_ref().map_or(ptr::null(), ptr::from_ref), mask)
        }
    };
    // SAFETY: the caller's contract.
    unsafe { poll_with(fds, n, first, TimeLimit::of_timespec(timeout), mask, &mut again) }
}

/// The size of the kernel's signal set. With another one, and a mask, the kernel says EINVAL.
pub(super) const MASK_BYTES: usize = 8;

/// ppoll(2), the system call, which has the size of the mask besides and writes back the time that
/// is left.
///
/// # Safety
/// As ppoll(2).
pub(super) unsafe fn raw_ppoll(registers: Registers, call: impl Fn(Registers) -> c_long) -> c_long {
    let [fds, n, timeout, mask, bytes, _] = registers;
    let fds = ptr::with_exposed_provenance_mut::<pollfd>(fds);
    let n = n as nfds_t;
    if mask != 0 && bytes != MASK_BYTES {
        // SAFETY: the caller's contract.
        unsafe { interpose::before_poll(fds, n) };
        return call(registers);
    }
    // SAFETY: the caller's contract.
    let left = unsafe { TimeLeft::of(timeout) };
    let again = |_, _, limit: *const timespec, _| {
        left.note_call(limit);
        call(replaced(registers, [registers[0], registers[1], limit.expose_provenance()])) as c_int
    };
    let (limit, mask) = (left.place, ptr::with_exposed_provenance(mask));
    // SAFETY: as above.
    let result = unsafe { ppoll(fds, n, limit, mask, again) };
    // SAFETY: as above.
    unsafe { left.write_back() };
    result.into()
}

/// What is left of the time of a system call that writes it back.
pub(super) struct TimeLeft {
    pub(super) place: *mut timespec,
    deadline: Option<Deadline>,
    /// The kernel has had the program's own limit, and has written it back.
    written: Cell<bool>,
}

impl TimeLeft {
    /// # Safety
    /// As [`TimeLimit::of_timespec`].
    pub(super) unsafe fn of(timeout: usize) -> Self {
        let place = ptr::with_exposed_provenance_mut(timeout);
        // SAFETY: the caller's contract.
        let deadline = match unsafe { TimeLimit::of_timespec(place) } {
            TimeLimit::After(limit) => Deadline::of(Timeout::After(limit)),
            _ => None,
        };
        Self { place, deadline, written: Cell::new(false) }
    }

    pub(super) fn note_call(&self, limit: *const timespec) {
        self.written.set(ptr::eq(limit, self.place));
    }

    /// # Safety
    /// The memory, if it is there, is the caller's to give.
    pub(super) unsafe fn write_back(&self) {
        let Some(deadline) = self.deadline.filter(|_| !self.written.get()) else { return };
        let left = timespec_of(deadline.remaining());
        let place = self.place.cast::<u64>();
        // SAFETY: the caller's contract. Linux ignores it, too, if the memory is not there.
        let _ = unsafe {
            user::store_u64(place, left.tv_sec as u64)
                && user::store_u64(place.wrapping_add(1), left.tv_nsec as u64)
        };
    }
}
