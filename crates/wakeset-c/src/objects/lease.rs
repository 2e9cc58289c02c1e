//! Leases: removals that say whether an event of the watch is in use.

use super::{boxed, created, unboxed};
use crate::argument::limit_of;
use crate::outcome::{fail, returned, returned_unit};
use core::ffi::c_int;
use core::ptr;
use libc::{epoll_event, timespec};
use wakeset::Timeout;
use wakeset_fd::Errno;
use wakeset_fd::lease::{self, Removal};

/// `ws_lease` of the header.
#[derive(Debug)]
pub struct Lease(lease::Lease);

/// `ws_lease_holders` of the header.
#[derive(Debug)]
pub struct LeaseHolders(lease::LeaseHolders);

/// Makes a lease of the events of a set.
#[unsafe(no_mangle)]
pub extern "C" fn ws_lease_create(epfd: c_int) -> *mut Lease {
    created(lease::Lease::new(epfd), Lease)
}

/// epoll_wait(2) that leases what it reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_wait(
    lease: *mut Lease,
    events: *mut epoll_event,
    capacity: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let Some(lease) = (unsafe { lease.as_mut() }) else { return fail(libc::EINVAL) as c_int };
    // SAFETY: as above.
    returned(unsafe { lease.0.wait(events, capacity, timeout) }.map(|n| n as isize)) as c_int
}

/// Releases everything that is leased.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_release(lease: *mut Lease) {
    // SAFETY: the caller's contract.
    if let Some(lease) = unsafe { lease.as_mut() } {
        lease.0.release();
    }
}

/// `EPOLL_CTL_MOD` that releases the event of that watch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_mod(
    lease: *mut Lease,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(lease), Some(event)) = (unsafe { lease.as_mut() }, unsafe { event_of(event) }) else {
        return fail(libc::EFAULT) as c_int;
    };
    returned_unit(lease.0.modify(fd, &event))
}

/// # Safety
/// `event` is null or valid.
unsafe fn event_of(event: *const epoll_event) -> Option<epoll_event> {
    // SAFETY: by the caller.
    (!event.is_null()).then(|| unsafe { event.read_unaligned() })
}

/// Frees the lease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_destroy(lease: *mut Lease) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(lease) };
}

/// `EPOLL_CTL_DEL` that says whether an event of the watch is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_epoll_retire(
    epfd: c_int,
    fd: c_int,
    holders: *mut *mut LeaseHolders,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { removed(|| lease::retire(epfd, fd), holders) }
}

/// [`ws_epoll_retire`] by a thread that may have leased the event itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_retire(
    lease: *mut Lease,
    fd: c_int,
    holders: *mut *mut LeaseHolders,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let Some(lease) = (unsafe { lease.as_ref() }) else { return fail(libc::EINVAL) as c_int };
    // SAFETY: as above.
    unsafe { removed(|| lease.0.retire(fd), holders) }
}

/// What a function that removes a watch returns for the removal.
///
/// # Safety
/// `holders` is null or memory for a pointer.
unsafe fn removed(
    remove: impl FnOnce() -> Result<Removal, Errno>,
    holders: *mut *mut LeaseHolders,
) -> c_int {
    if holders.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    let (answer, found) = match remove() {
        Ok(Removal::Idle) => (0, ptr::null_mut()),
        Ok(Removal::InUse(found)) => match boxed(LeaseHolders(found)) {
            // No memory to pass them on in: it cannot be said any more.
            found if found.is_null() => (3, found),
            found => (1, found),
        },
        Ok(Removal::Disarmed) => (2, ptr::null_mut()),
        Ok(Removal::Unknown) => (3, ptr::null_mut()),
        Err(error) => return fail(error.into_raw()) as c_int,
    };
    // SAFETY: by the caller.
    unsafe { holders.write_unaligned(found) };
    answer
}

/// Waits until no lease has an event of the removed watch any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_holders_wait(
    holders: *mut LeaseHolders,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(holders), Some(limit)) = (unsafe { holders.as_ref() }, unsafe { limit_of(limit) })
    else {
        return fail(libc::EINVAL) as c_int;
    };
    c_int::from(holders.0.wait(Timeout::from(limit)))
}

/// Frees the holders.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_lease_holders_free(holders: *mut LeaseHolders) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(holders) };
}
