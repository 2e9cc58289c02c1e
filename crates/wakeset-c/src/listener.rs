//! Listener groups: threads and processes that share a listening socket.

use crate::outcome::{fail, whole};
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{sockaddr, socklen_t, timespec};
use std::alloc::{Layout, alloc, dealloc};
use wakeset::{Deadline, Timeout};
use wakeset_fd::interpose::TimeLimit;
use wakeset_group::Order;
use wakeset_group::listener::{Group, Waiter};

/// `ws_listener_waiter` of the header.
#[derive(Debug)]
pub struct ListenerWaiter {
    listener: c_int,
    waiter: Waiter,
}

/// Which waiter is woken next, as C says it; `None` for a number that means nothing.
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
    // SAFETY: by the caller.
    match unsafe { TimeLimit::of_timespec(limit) } {
        TimeLimit::Forever => Some(None),
        TimeLimit::After(limit) => Some(Some(limit)),
        TimeLimit::Zero => Some(Some(Duration::ZERO)),
        TimeLimit::Invalid => None,
    }
}

/// Puts a value into memory of its own; null, and ENOMEM, when there is none.
pub(crate) fn boxed<T>(value: T) -> *mut T {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if memory.is_null() {
        fail(libc::ENOMEM);
        return memory;
    }
    // SAFETY: fresh memory of that layout.
    unsafe { memory.write(value) };
    memory
}

/// Ends a value made by [`boxed`]; null is allowed.
///
/// # Safety
/// `memory` is null, or came from [`boxed`] and is not used any more.
pub(crate) unsafe fn unboxed<T>(memory: *mut T) {
    if !memory.is_null() {
        // SAFETY: by the caller.
        unsafe {
            ptr::drop_in_place(memory);
            dealloc(memory.cast(), Layout::new::<T>());
        }
    }
}

/// Joins the waiters for connections to a listener.
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
pub unsafe extern "C" fn ws_listener_wait(
    waiter: *mut ListenerWaiter,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(waiter), Some(limit)) = (unsafe { waiter.as_mut() }, unsafe { limit_of(limit) })
    else {
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
        pub(super) fn accept4(
            fd: c_int,
            address: *mut sockaddr,
            len: *mut socklen_t,
            flags: c_int,
        ) -> c_int;
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
        let (Some(waiter), Some(limit)) = (unsafe { waiter.as_mut() }, unsafe { limit_of(limit) })
        else {
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
            // Another waiter was faster.
            if fd >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
                return fd;
            }
        }
    })
}

/// Leaves the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_listener_leave(waiter: *mut ListenerWaiter) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(waiter) }
}
