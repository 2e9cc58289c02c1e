//! Userfault handler pools: threads that serve one userfaultfd.

use super::{created, unboxed};
use crate::argument::{limit_of, order_of};
use crate::outcome::{fail, whole};
use core::ffi::c_int;
use core::slice;
use libc::timespec;
use wakeset_fd::Errno;
use wakeset_group::fault::{Message, Pool};

/// `ws_fault_pool` of the header.
#[derive(Debug)]
pub struct FaultPool(Pool);

/// A pool for a userfaultfd.
#[unsafe(no_mangle)]
pub extern "C" fn ws_fault_pool_create(uffd: c_int, order: c_int) -> *mut FaultPool {
    let pool = match order_of(order) {
        Some(Some(order)) => Pool::new(uffd, order),
        Some(None) => Pool::unordered(uffd),
        None => Err(Errno::EINVAL),
    };
    created(pool, FaultPool)
}

/// Waits for messages. `Message` is `struct uffd_msg`, byte for byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_fault_pool_next(
    pool: *const FaultPool,
    messages: *mut Message,
    capacity: c_int,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(pool), Some(limit)) = (unsafe { pool.as_ref() }, unsafe { limit_of(limit) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    let capacity = usize::try_from(capacity).unwrap_or(0);
    if capacity == 0 || messages.is_null() {
        return fail(libc::EINVAL) as c_int;
    }
    // SAFETY: memory for `capacity` messages, of which any bits are one.
    let messages = unsafe { slice::from_raw_parts_mut(messages, capacity) };
    match pool.0.next(messages, limit) {
        Ok(n) => c_int::try_from(n).unwrap_or(c_int::MAX),
        Err(error) => fail(error.into_raw()) as c_int,
    }
}

/// Ends the calls under way and all later ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_fault_pool_stop(pool: *const FaultPool) {
    // SAFETY: the caller's contract.
    if let Some(pool) = unsafe { pool.as_ref() } {
        whole(|| pool.0.stop());
    }
}

/// Frees a pool in which no call is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_fault_pool_destroy(pool: *mut FaultPool) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(pool) }
}
