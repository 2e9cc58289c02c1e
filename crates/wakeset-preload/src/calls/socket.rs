//! The calls of sockets: messages of in-process pairs, and what listeners have to know.

use super::{instruction, table};
use crate::listeners;
use core::ffi::{c_int, c_uint, c_void};
use libc::{MSG_CMSG_CLOEXEC, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use wakeset_fd::interpose::{answered, answered_unit};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, migrate, pipe};

/// send(2).
///
/// # Safety
/// As send(2).
pub(super) unsafe fn send(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    call: impl FnOnce(c_int, *const c_void, size_t, c_int) -> ssize_t,
) -> ssize_t {
    if !pipe::is_end_for_bytes(fd, flags) {
        pipe::count_kernel_send(fd);
        return call(fd, buffer, len, flags);
    }
    // SAFETY: the caller's contract.
    let verdict = unsafe { pipe::send(fd, buffer.cast(), len, flags) };
    answered(verdict, || call(fd, buffer, len, flags))
}

/// recv(2).
///
/// # Safety
/// As recv(2).
pub(super) unsafe fn recv(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    call: impl FnOnce(c_int, *mut c_void, size_t, c_int) -> ssize_t,
) -> ssize_t {
    if !pipe::is_end_for_bytes(fd, flags) {
        return call(fd, buffer, len, flags);
    }
    // SAFETY: the caller's contract.
    let verdict = unsafe { pipe::recv(fd, buffer.cast(), len, flags) };
    answered(verdict, || call(fd, buffer, len, flags))
}

/// sendto(2). Without an address it is send(2).
///
/// # Safety
/// As sendto(2).
pub(super) unsafe fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
    call: impl FnOnce(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
) -> ssize_t {
    if !address.is_null() || address_len != 0 {
        migrate_odd(fd);
    } else if pipe::is_end_for_bytes(fd, flags) {
        // SAFETY: the caller's contract.
        return unsafe { table::send(fd, buffer, len, flags) };
    }
    call(fd, buffer, len, flags, address, address_len)
}

/// recvfrom(2). Without memory for the address it is recv(2).
///
/// # Safety
/// As recvfrom(2).
pub(super) unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
    call: impl FnOnce(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
) -> ssize_t {
    if !address.is_null() {
        migrate_odd(fd);
    } else if pipe::is_end_for_bytes(fd, flags) {
        // SAFETY: the caller's contract.
        return unsafe { table::recv(fd, buffer, len, flags) };
    }
    call(fd, buffer, len, flags, address, address_len)
}

/// Migrates an in-process pair for an address.
fn migrate_odd(fd: c_int) {
    if pipe::is_end(fd) {
        migrate::fd(fd, Stat::MigratedOddArgument);
    }
}

/// shutdown(2).
pub(super) fn shutdown(fd: c_int, how: c_int, call: impl FnOnce(c_int, c_int) -> c_int) -> c_int {
    if !pipe::is_end(fd) {
        return call(fd, how);
    }
    answered_unit(pipe::shutdown(fd, how), || call(fd, how))
}

/// Migrates an in-process pair by one of its ends, or a pipe.
pub(super) fn migrate_pair(fd: c_int) {
    if pipe::is_end(fd) {
        migrate::fd(fd, Stat::MigratedUnmodelled);
    }
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
pub(super) unsafe fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
    call: impl FnOnce(c_int, *const msghdr, c_int) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe { descriptor::before_sendmsg(message) };
    let in_kernel = || {
        pipe::count_kernel_send(fd);
        call(fd, message, flags)
    };
    if !pipe::is_end_for_bytes(fd, flags) {
        return in_kernel();
    }
    // SAFETY: as above.
    answered(unsafe { pipe::sendmsg(fd, message, flags) }, in_kernel)
}

/// Migrates what the messages pass on.
///
/// # Safety
/// As sendmmsg(2).
pub(super) unsafe fn before_sendmmsg(messages: *const mmsghdr, n: c_uint) {
    // The kernel sends no more than UIO_MAXIOV at once.
    for i in 0..n.min(1024) as usize {
        // SAFETY: the caller's contract. The header comes first in a mmsghdr.
        unsafe { descriptor::before_sendmsg(messages.wrapping_add(i).cast()) };
    }
}

/// recvmsg(2).
///
/// # Safety
/// As recvmsg(2).
pub(super) unsafe fn recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    call: impl FnOnce(c_int, *mut msghdr, c_int) -> ssize_t,
) -> ssize_t {
    let result = if pipe::is_end_for_bytes(fd, flags & !MSG_CMSG_CLOEXEC) {
        // SAFETY: the caller's contract.
        answered(unsafe { pipe::recvmsg(fd, message, flags) }, || call(fd, message, flags))
    } else {
        call(fd, message, flags)
    };
    if result >= 0 {
        // SAFETY: it has just been filled in.
        unsafe { descriptor::each_passed(message, migrate::number_is_new) };
    }
    result
}

/// recvmmsg(2).
///
/// # Safety
/// As recvmmsg(2).
pub(super) unsafe fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
    limit: *mut timespec,
    call: impl FnOnce(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int,
) -> c_int {
    migrate_pair(fd);
    let result = call(fd, messages, n, flags, limit);
    for i in 0..result.max(0) as usize {
        let message = messages.wrapping_add(i).cast::<msghdr>();
        // SAFETY: as above. The header comes first in a mmsghdr.
        unsafe { descriptor::each_passed(message, migrate::number_is_new) };
    }
    result
}

/// Before getsockopt(2).
pub(super) fn before_getsockopt(fd: c_int, name: c_int) {
    /// The option whose answer depends on what is in a socket.
    const SO_MEMINFO: c_int = 55;
    if name == SO_MEMINFO {
        migrate_pair(fd);
    }
}

/// accept(2).
pub(super) fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    call: impl Fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
) -> c_int {
    made(listeners::accept(fd, &mut || call(fd, address, len)))
}

/// A number that the kernel has just given out, or an error.
fn made(fd: c_int) -> c_int {
    migrate::number_is_new(fd);
    fd
}

/// accept4(2).
pub(super) fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
    call: impl Fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int,
) -> c_int {
    let mut call = || call(fd, address, len, flags);
    if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return call();
    }
    made(listeners::accept(fd, &mut call))
}

/// listen(2).
pub(super) fn listen(fd: c_int, backlog: c_int, call: impl FnOnce(c_int, c_int) -> c_int) -> c_int {
    instruction::before_object();
    let result = call(fd, backlog);
    wakeset_fd::listeners::forget_kind(fd);
    if result == 0 {
        // Before a fork, so that the workers share it.
        wakeset_fd::listeners::baton::share(fd);
    }
    result
}

/// bind(2). A master may pass the socket to workers that it executes, and leave listen(2) to them.
pub(super) fn bind(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
    call: impl FnOnce(c_int, *const sockaddr, socklen_t) -> c_int,
) -> c_int {
    let result = call(fd, address, len);
    if result == 0 && wakeset_fd::listeners::is_stream(fd) {
        wakeset_fd::listeners::begin_alone(fd);
        wakeset_fd::listeners::baton::share(fd);
    }
    result
}

/// Before connect(2). A listener may become a client: connecting it to `AF_UNSPEC` ends its
/// listening.
pub(super) fn before_connect(fd: c_int) {
    wakeset_fd::listeners::forget_listener(fd);
}
