//! read(2), write(2), their vectored forms, and the two functions of eventfds that libc has.

use super::row::Registers;
use super::table;
use crate::uffd;
use core::ffi::{c_int, c_long, c_void};
use core::ptr;
use libc::{iovec, size_t, ssize_t};
use wakeset_fd::interpose::{answered, fail, vectored};
use wakeset_fd::{count, counter, descriptor, migrate, pipe};

/// read(2). What an in-process eventfd or pipe answers at once takes the fast path.
///
/// # Safety
/// As read(2).
#[inline(always)]
pub(super) unsafe fn read(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    call: impl FnOnce(c_int, *mut c_void, size_t) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's contract.
    match unsafe { counter::read_fast(fd, buffer.cast(), len) } {
        // SAFETY: as above.
        0 => match unsafe { pipe::read_fast(fd, buffer.cast(), len) } {
            0 if descriptor::is_kernels(fd) && !uffd::any() => call(fd, buffer, len),
            // SAFETY: as above.
            0 => unsafe { read_slow(fd, buffer, len, call) },
            n => n as ssize_t,
        },
        8 => 8,
        errno => fail(-errno as i32),
    }
}

#[cold]
#[inline(never)]
unsafe fn read_slow(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    call: impl FnOnce(c_int, *mut c_void, size_t) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's contract is read's, here and below.
    answered(unsafe { counter::read(fd, buffer.cast(), len) }, || {
        // SAFETY: as above.
        unsafe { uffd::read(fd, buffer, len) }.unwrap_or_else(|| call(fd, buffer, len))
    })
}

/// read(2) by its number: the same without the fast path, whose code is in the hook alone.
///
/// # Safety
/// As read(2).
pub(super) unsafe fn raw_read(
    registers: Registers,
    call: impl FnOnce(Registers) -> c_long,
) -> c_long {
    let [fd, buffer, len, ..] = registers;
    let buffer = ptr::with_exposed_provenance_mut(buffer);
    // SAFETY: the caller's contract.
    unsafe { read_slow(fd as c_int, buffer, len, |_, _, _| call(registers) as ssize_t) as c_long }
}

/// write(2). What an in-process eventfd or pipe takes at once goes the fast path.
///
/// # Safety
/// As write(2).
#[inline(always)]
pub(super) unsafe fn write(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    call: impl FnOnce(c_int, *const c_void, size_t) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's contract.
    if unsafe { counter::write_fast(fd, buffer.cast(), len) } {
        return 8;
    }
    // SAFETY: as above.
    if unsafe { pipe::write_fast(fd, buffer.cast(), len) } {
        return len as ssize_t;
    }
    if descriptor::is_kernels(fd) && !count::is_on() {
        return call(fd, buffer, len);
    }
    // SAFETY: as above.
    unsafe { write_slow(fd, buffer, len, call) }
}

#[cold]
#[inline(never)]
unsafe fn write_slow(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    call: impl FnOnce(c_int, *const c_void, size_t) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's contract is write's.
    answered(unsafe { counter::write(fd, buffer.cast(), len) }, || call(fd, buffer, len))
}

/// write(2) by its number: the same without the fast path, whose code is in the hook alone.
///
/// # Safety
/// As write(2).
pub(super) unsafe fn raw_write(
    registers: Registers,
    call: impl FnOnce(Registers) -> c_long,
) -> c_long {
    let [fd, buffer, len, ..] = registers;
    let buffer = ptr::with_exposed_provenance(buffer);
    // SAFETY: the caller's contract.
    unsafe { write_slow(fd as c_int, buffer, len, |_, _, _| call(registers) as ssize_t) as c_long }
}

/// readv(2).
///
/// # Safety
/// As readv(2).
pub(super) unsafe fn readv(
    fd: c_int,
    vectors: *const iovec,
    n: c_int,
    call: impl FnOnce(c_int, *const iovec, c_int) -> ssize_t,
) -> ssize_t {
    if n > 1 && pipe::is_end_for_buffers(fd) {
        // SAFETY: the caller's contract.
        return answered(unsafe { pipe::readv(fd, vectors, n) }, || call(fd, vectors, n));
    }
    // SAFETY: the caller's contract.
    let single = |buffer, len| unsafe { table::read(fd, buffer, len) };
    vectored(fd, vectors, n, single, || {
        let got = call(fd, vectors, n);
        // Where a message may lie in pieces, only that there was one is noted.
        uffd::after_read(fd, ptr::null(), got);
        got
    })
}

/// writev(2).
///
/// # Safety
/// As writev(2).
pub(super) unsafe fn writev(
    fd: c_int,
    vectors: *const iovec,
    n: c_int,
    call: impl FnOnce(c_int, *const iovec, c_int) -> ssize_t,
) -> ssize_t {
    let in_kernel = || {
        pipe::count_kernel_send(fd);
        call(fd, vectors, n)
    };
    if n > 1 && pipe::is_end_for_buffers(fd) {
        // SAFETY: the caller's contract.
        return answered(unsafe { pipe::writev(fd, vectors, n) }, in_kernel);
    }
    // SAFETY: the caller's contract.
    let single = |buffer: *mut c_void, len| unsafe { table::write(fd, buffer, len) };
    vectored(fd, vectors, n, single, in_kernel)
}

/// eventfd_read(3).
///
/// # Safety
/// As eventfd_read(3).
pub(super) unsafe fn eventfd_read(
    fd: c_int,
    value: *mut u64,
    call: impl FnOnce(c_int, *mut u64) -> c_int,
) -> c_int {
    if migrate::is_for_good() && !descriptor::is_hidden(fd) {
        return call(fd, value);
    }
    // SAFETY: the caller gives memory for 8 bytes.
    if unsafe { table::read(fd, value.cast(), 8) } == 8 { 0 } else { -1 }
}

/// eventfd_write(3).
///
/// # Safety
/// As eventfd_write(3).
pub(super) unsafe fn eventfd_write(
    fd: c_int,
    value: u64,
    call: impl FnOnce(c_int, u64) -> c_int,
) -> c_int {
    if migrate::is_for_good() && !descriptor::is_hidden(fd) {
        return call(fd, value);
    }
    // SAFETY: 8 bytes of our own.
    if unsafe { table::write(fd, ptr::from_ref(&value).cast(), 8) } == 8 { 0 } else { -1 }
}
