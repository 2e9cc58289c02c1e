//! Listener groups: threads and processes that share a listening socket.

use super::{created, unboxed};
use crate::argument::{limit_of, order_of};
use crate::outcome::{fail, whole};
use core::ffi::c_int;
use libc::{sockaddr, socklen_t, timespec};
use wakeset::{Deadline, Timeout};
use wakeset_fd::Errno;
use wakeset_group::listener::{Group, Waiter};

/// `ws_listener_waiter` of the header.
#[derive(Debug)]
pub struct ListenerWaiter {
    listener: c_int,
    waiter: Waiter,
}

/// Joins the waiters for connections to a listener.
#[unsafe(no_mangle)]
pub extern "C" fn ws_listener_join(listener: c_int, order: c_int) -> *mut ListenerWaiter {
    let group = match order_of(order) {
        Some(Some(order)) => Group::new(listener, order),
        Some(None) => Group::unordered(listener),
        None => Err(Errno::EINVAL),
    };
    created(group, |group| ListenerWaiter { listener, waiter: group.waiter() })
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
