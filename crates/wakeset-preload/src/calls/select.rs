//! select(2) and pselect(2). As for poll(2), a call that names an object is answered in process,
//! and a wait for listening sockets takes its turn.

use super::poll::{Again, MASK_BYTES, TimeLeft};
use super::row::Registers;
use crate::listeners::{self, Outcome};
use crate::signals;
use core::ffi::{c_int, c_long};
use core::ptr;
use libc::{fd_set, sigset_t, timespec, timeval};
use wakeset::{Deadline, Timeout};
use wakeset_fd::interpose::{self, TimeLimit, returned, timespec_of, timeval_of};
use wakeset_fd::{poll as in_process, user};

/// A call that names objects, as far as it is answered in process.
///
/// # Safety
/// As pselect(2).
#[inline(always)]
unsafe fn select_objects(
    n: c_int,
    sets: [*mut fd_set; 3],
    limit: TimeLimit,
    mask: *const sigset_t,
) -> in_process::Outcome {
    let Some(timeout) = limit.timeout() else { return in_process::Outcome::Unchanged };
    // SAFETY: the caller's contract.
    let takes_turns = || unsafe {
        in_process::set_has(
            n.min(libc::FD_SETSIZE as c_int),
            sets[0],
            listeners::take_turns_beside_objects,
        )
    };
    if timeout != Timeout::Now && takes_turns() {
        return in_process::Outcome::Unchanged;
    }
    // SAFETY: as above.
    unsafe { in_process::select(n, sets, timeout, mask) }
}

/// Whether the call is surely the kernel's alone, and can be passed on. A part of its caller, but
/// in a build for tests, where it would keep its stack while the call goes on.
///
/// # Safety
/// As pselect(2).
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn is_kernels(n: c_int, sets: [*mut fd_set; 3], may_sleep: bool) -> bool {
    // SAFETY: the caller's contract.
    !listeners::has_told()
        && unsafe {
            in_process::sets_are_kernels(n, sets.map(<*mut fd_set>::cast_const), may_sleep)
        }
}

/// Answers a call that has no time and no mask, if that takes no more than a look.
///
/// # Safety
/// As select(2).
#[inline(always)]
unsafe fn select_quickly(n: c_int, sets: [*mut fd_set; 3]) -> Option<c_int> {
    if listeners::has_told() {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { in_process::select_quickly(n, sets) }.map(|result| returned(result) as c_int)
}

/// What select(2) and pselect(2) have in common.
///
/// # Safety
/// As pselect(2).
#[inline]
unsafe fn select_with(
    n: c_int,
    sets: [*mut fd_set; 3],
    limit: TimeLimit,
    mask: *const sigset_t,
    call: &mut impl FnMut(Again) -> c_int,
) -> c_int {
    listeners::before_wait();
    let read_only = sets.map(<*mut fd_set>::cast_const);
    // SAFETY: the caller's contract.
    if unsafe { in_process::sets_name_object(n, read_only) } {
        // SAFETY: as above.
        let outcome = unsafe { select_objects(n, sets, limit, mask) };
        if let in_process::Outcome::Done(result) = outcome {
            return returned(result) as c_int;
        }
        // SAFETY: as above.
        unsafe { interpose::before_select(n, read_only) };
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
    match unsafe { listeners::select(n, sets, limit, mask) } {
        Outcome::Unchanged => call(Again::Unchanged),
        Outcome::Done(result) => returned(result) as c_int,
        Outcome::Rest(left) => call(Again::Within(left)),
    }
}

/// select(2), which writes back the time that is left.
///
/// # Safety
/// As select(2).
pub(super) unsafe fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
    call: impl Fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        // Nothing comes after them, so they are jumps, which leave them the stack.
        match interpose::is_no_time(timeout.cast_const().cast()) {
            true => select_without_time(n, read, write, except, timeout, call),
            false => select_in_time(n, read, write, except, timeout, call),
        }
    }
}

/// [`select`] of a call that has no time.
///
/// # Safety
/// As select(2).
#[inline(never)]
unsafe fn select_without_time(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
    call: impl Fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if is_kernels(n, [read, write, except], false) {
            // A jump as well, which costs no second return.
            return call(n, read, write, except, timeout);
        }
        select_now(n, read, write, except, timeout, call)
    }
}

/// [`select`] of a call that has time.
///
/// # Safety
/// As select(2).
#[inline(never)]
unsafe fn select_in_time(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
    call: impl Fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if is_kernels(n, [read, write, except], true) {
            return call(n, read, write, except, timeout);
        }
        select_unsure(n, read, write, except, timeout, call)
    }
}

/// [`select`] of a call that has no time, and names something of ours.
///
/// # Safety
/// As select(2).
#[inline(never)]
unsafe fn select_now(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
    call: impl Fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        match select_quickly(n, [read, write, except]) {
            Some(found) => found,
            None => select_unsure(n, read, write, except, timeout, call),
        }
    }
}

/// [`select`] of what may not be the kernel's alone.
///
/// # Safety
/// As select(2).
#[inline(never)]
unsafe fn select_unsure(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
    call: impl Fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's contract.
    let limit = unsafe { TimeLimit::of_timeval(timeout) };
    let deadline = match limit {
        TimeLimit::After(limit) => Deadline::of(Timeout::After(limit)),
        _ => None,
    };
    let mut written = false;
    let mut again = |again| match again {
        Again::Unchanged => {
            written = true;
            call(n, read, write, except, timeout)
        }
        Again::Within(left) => {
            let mut left = left.map(timeval_of);
            call(n, read, write, except, left.as_mut().map_or(ptr::null_mut(), ptr::from_mut))
        }
    };
    // SAFETY: the caller's contract.
    let result = unsafe { select_with(n, sets, limit, ptr::null(), &mut again) };
    if let Some(deadline) = deadline.filter(|_| !written) {
        let left = timeval_of(deadline.remaining());
        let place = timeout.cast::<u64>();
        // SAFETY: the caller's contract. Linux ignores it, too, if the memory is not there.
        let _ = unsafe {
            user::store_u64(place, left.tv_sec as u64)
                && user::store_u64(place.wrapping_add(1), left.tv_usec as u64)
        };
    }
    result
}

/// pselect(2), the function: unlike the system call it leaves the limit as it is.
///
/// # Safety
/// As pselect(2).
pub(super) unsafe fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !signals::passes_unchanged(mask) || !interpose::is_no_time(timeout.cast()) {
            return pselect_in_time(n, read, write, except, timeout, mask, call);
        }
        if is_kernels(n, [read, write, except], false) {
            return call(n, read, write, except, timeout, mask);
        }
        pselect_now(n, read, write, except, timeout, mask, call)
    }
}

/// [`pselect`] of a call that has time, or a mask that may have to be changed.
///
/// # Safety
/// As pselect(2).
#[inline(never)]
unsafe fn pselect_in_time(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if signals::passes_unchanged(mask) && is_kernels(n, [read, write, except], true) {
            return call(n, read, write, except, timeout, mask);
        }
        pselect_unsure(n, read, write, except, timeout, mask, call)
    }
}

/// [`pselect`] of a call that has no time, and names something of ours.
///
/// # Safety
/// As pselect(2).
#[inline(never)]
unsafe fn pselect_now(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let found = if mask.is_null() { select_quickly(n, [read, write, except]) } else { None };
        match found {
            Some(found) => found,
            None => pselect_unsure(n, read, write, except, timeout, mask, call),
        }
    }
}

/// [`pselect`] of what may not be the kernel's alone.
///
/// # Safety
/// As pselect(2).
#[inline(never)]
unsafe fn pselect_unsure(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl Fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's contract.
    let passed = unsafe { signals::PassedMask::of(mask) };
    let mask = passed.pointer();
    let mut again = |again| match again {
        Again::Unchanged => call(n, read, write, except, timeout, mask),
        Again::Within(left) => {
            let left = left.map(timespec_of);
            let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            call(n, read, write, except, left, mask)
        }
    };
    // SAFETY: the caller's contract.
    let limit = unsafe { TimeLimit::of_timespec(timeout) };
    // SAFETY: the caller's contract.
    unsafe { select_with(n, sets, limit, mask, &mut again) }
}

/// pselect6(2), the system call, which has the mask and its size behind one pointer and writes back
/// the time that is left.
///
/// # Safety
/// As pselect6(2).
pub(super) unsafe fn raw_pselect6(
    registers: Registers,
    call: impl Fn(Registers) -> c_long,
) -> c_long {
    let [n, read, write, except, timeout, masked] = registers;
    let sets = [read, write, except].map(ptr::with_exposed_provenance_mut::<fd_set>);
    let masked = match masked {
        0 => Some([0, 0]),
        // SAFETY: any bits are a pointer and a size.
        place => unsafe { user::load(ptr::with_exposed_provenance::<[usize; 2]>(place)) },
    };
    let Some([mask, _]) = masked.filter(|[mask, bytes]| *mask == 0 || *bytes == MASK_BYTES) else {
        // SAFETY: the caller's contract.
        unsafe { interpose::before_select(n as c_int, sets.map(<*mut fd_set>::cast_const)) };
        return call(registers);
    };
    // SAFETY: the caller's contract.
    let left = unsafe { TimeLeft::of(timeout) };
    let again = |_, _, _, _, limit: *const timespec, _| {
        left.note_call(limit);
        let mut again = registers;
        again[4] = limit.expose_provenance();
        call(again) as c_int
    };
    let ([read, write, except], limit) = (sets, left.place);
    let mask = ptr::with_exposed_provenance(mask);
    // SAFETY: as above.
    let result = unsafe { pselect(n as c_int, read, write, except, limit, mask, again) };
    // SAFETY: as above.
    unsafe { left.write_back() };
    result.into()
}
