//! poll and select. An eventfd or set that is polled becomes the kernel's: these calls wait in the kernel, on all descriptors
//! at once, and must find the state there.

use crate::real::real;
use core::ffi::{c_int, c_void};
use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, escape, user};

/// Moves what an array of pollfd names.
///
/// # Safety
/// `fds` is valid for `n` entries, or the kernel will say EFAULT.
pub(super) unsafe fn before_poll(fds: *const pollfd, n: nfds_t) {
    if !descriptor::any() {
        return;
    }
    for i in 0..n as usize {
        // SAFETY: any bits are a pollfd.
        let Some(entry) = (unsafe { user::load(fds.wrapping_add(i)) }) else { return };
        escape::fd(entry.fd, Stat::MovedPoll);
    }
}

/// Moves what up to three fd_sets name.
///
/// # Safety
/// Each set is null or valid for `n` bits.
pub(super) unsafe fn before_select(n: c_int, sets: [*const fd_set; 3]) {
    if !descriptor::any() {
        return;
    }
    for set in sets {
        if set.is_null() {
            continue;
        }
        for word in 0..(n.max(0) as usize).div_ceil(64) {
            // SAFETY: any bits are a word of a set.
            let Some(mut bits) = (unsafe { user::load(set.cast::<u64>().wrapping_add(word)) }) else { return };
            while bits != 0 {
                escape::fd((word * 64) as c_int + bits.trailing_zeros() as c_int, Stat::MovedPoll);
                bits &= bits - 1;
            }
        }
    }
}

type Poll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type Select = unsafe extern "C-unwind" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;

/// poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_poll(fds, n);
        real!(poll: Poll)(fds, n, timeout)
    }
}

/// glibc's other name for poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { poll(fds, n, timeout) }
}

/// poll(2) with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, room: usize) -> c_int {
    type Checked = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int, usize) -> c_int;
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_poll(fds, n.min((room / size_of::<pollfd>()) as nfds_t));
        real!(__poll_chk: Checked)(fds, n, timeout, room)
    }
}

/// ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Ppoll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_poll(fds, n);
        real!(ppoll: Ppoll)(fds, n, timeout, mask)
    }
}

/// ppoll(2) with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    type Checked = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int;
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_poll(fds, n.min((room / size_of::<pollfd>()) as nfds_t));
        real!(__ppoll_chk: Checked)(fds, n, timeout, mask, room)
    }
}

/// select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_select(n, [read, write, except]);
        real!(select: Select)(n, read, write, except, timeout)
    }
}

/// glibc's other name for select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { select(n, read, write, except, timeout) }
}

/// pselect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const c_void,
    mask: *const sigset_t,
) -> c_int {
    type Pselect = unsafe extern "C-unwind" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const c_void,
        *const sigset_t,
    ) -> c_int;
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_select(n, [read, write, except]);
        real!(pselect: Pselect)(n, read, write, except, timeout, mask)
    }
}
