//! Listener groups: threads and processes that share a listening socket.

use crate::outcome::{fail, whole};
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{sockaddr, socklen_t, timespec};
use std::alloc::{Layout, alloc, dealloc};
use wakeset::{Deadline, Timeout};
use wakeset_group::Order;
use wakeset_group::listener::{Group, Waiter};

/// `ws_listener_waiter` of the header.
#[derive(Debug)]
pub struct ListenerWaiter {
    listener: c_int,
    waiter: Waiter,
}

/// Who is woken next, as C says it; `None` for a number that means nothing.
pub(crate) fn order_of(order: c_int) -> Option<Option<Order>> {
    match order {
        0 => Some(Some(Order::Fifo)),
        1 => Some(Some(Order::Lifo)),
        2 => Some(None),
        3 => Some(Some(Order::Turns)),
        _ => None,
    }
}

/// A time limit, null for none; `None` for an invalid one.
///
/// # Safety
/// `limit` is null or valid.
pub(crate) unsafe fn limit_of(limit: *const timespec) -> Option<Option<Duration>> {
    if limit.is_null() {
        return Some(None);
    }
    // SAFETY: by the caller.
    let timespec { tv_sec, tv_nsec } = unsafe { limit.read_unaligned() };
    match (u64::try_from(tv_sec), u32::try_from(tv_nsec)) {
        (Ok(seconds), Ok(nanos @ 0..=999_999_999)) => Some(Some(Duration::new(seconds, nanos))),
        _ => None,
    }
}

/// Puts a value into memory of its own; null, and ENOMEM, when there is none.
pub(crate) fn boxed<T>(value: T) -> *mut T {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let place = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        fail(libc::ENOMEM);
        return place;
    }
    // SAFETY: fresh memory of that layout.
    unsafe { place.write(value) };
    place
}

/// Ends a value made by [`boxed`]; null is none.
///
/// # Safety
/// `place` is null, or came from [`boxed`] and is not used any more.
pub(crate) unsafe fn unboxed<T>(place: *mut T) {
    if !place.is_null() {
        // SAFETY: by the caller.
        unsafe {
            ptr::drop_in_place(place);
            dealloc(place.cast(), Layout::new::<T>());
        }
    }
}

/// Joins those who wait for connections to a listener.
#[unsafe(no_mangle)]
pub extern "C" fn ws_listener_join(listener: c_int, order: c_int) -> *mut ListenerWaiter {
    let Some(order) = order_of(order) else {
        fail(libc::EINVAL);
        return ptr::null_mut();
    };
    let group = match order {
        Some(order) => Group::new(listener, order),
        None => Group::unordered(listener),
    };
    match group {
        Ok(group) => boxed(ListenerWaiter { listener, waiter: group.waiter() }),
        Err(error) => {
            fail(error.into_raw());
            ptr::null_mut()
        }
    }
}

/// Sleeps until it is this waiter's turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_listener_wait(waiter: *mut ListenerWaiter, limit: *const timespec) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(waiter), Some(limit)) = (unsafe { waiter.as_mut() }, unsafe { limit_of(limit) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    match waiter.waiter.wait(limit) {
        Ok(ready) => c_int::from(ready),
        Err(error) => fail(error.into_raw()) as c_int,
    }
}

mod real {
    use super::{c_int, sockaddr, socklen_t};
    unsafe extern "C-unwind" {
        pub(super) fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    }
}

/// Sleeps until it is this waiter's turn, and accepts.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_listener_accept(
    waiter: *mut ListenerWaiter,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
    limit: *const timespec,
) -> c_int {
    whole(|| {
        // SAFETY: the caller's contract, here and below.
        let (Some(waiter), Some(limit)) = (unsafe { waiter.as_mut() }, unsafe { limit_of(limit) }) else {
            return fail(libc::EINVAL) as c_int;
        };
        let deadline = Deadline::of(Timeout::from(limit));
        loop {
            match waiter.waiter.wait(deadline.map(Deadline::remaining)) {
                Ok(true) => {}
                Ok(false) => return fail(libc::EAGAIN) as c_int,
                Err(error) => return fail(error.into_raw()) as c_int,
            }
            // SAFETY: the caller's contract.
            let fd = unsafe { real::accept4(waiter.listener, address, len, flags) };
            // Another was faster: it is nobody's turn.
            if fd >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
                return fd;
            }
        }
    })
}

/// Leaves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_listener_leave(waiter: *mut ListenerWaiter) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(waiter) }
}
