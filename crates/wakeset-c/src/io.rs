//! read(2) and write(2), and calls that give descriptors away: what those name migrates before they
//! are made.

use crate::outcome::{answered, fail, whole};
use core::ffi::{c_int, c_void};
use libc::{iovec, msghdr, size_t, ssize_t};
use wakeset_fd::interpose::vectored;
use wakeset_fd::{counter, descriptor, pipe};

mod real {
    use super::*;
    unsafe extern "C-unwind" {
        pub(super) fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
        pub(super) fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
        pub(super) fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t;
        pub(super) fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t;
        pub(super) fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    }
}

/// read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is read's.
    match unsafe { counter::read_fast(fd, buffer.cast(), len) } {
        // SAFETY: as above.
        0 => unsafe { read_slow(fd, buffer, len) },
        8 => 8,
        errno => fail(-errno as i32),
    }
}

#[cold]
#[inline(never)]
unsafe fn read_slow(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is read's.
    whole(|| unsafe {
        answered(counter::read(fd, buffer.cast(), len), || real::read(fd, buffer, len))
    })
}

/// write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is write's.
    if unsafe { counter::write_fast(fd, buffer.cast(), len) } {
        return 8;
    }
    // SAFETY: as above.
    unsafe { write_slow(fd, buffer, len) }
}

#[cold]
#[inline(never)]
unsafe fn write_slow(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is write's.
    whole(|| unsafe {
        answered(counter::write(fd, buffer.cast(), len), || real::write(fd, buffer, len))
    })
}

/// readv(2). One buffer is a read; with several an in-process object other than a pipe migrates.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_readv(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t {
    if n > 1 && pipe::is_end_for_buffers(fd) {
        // SAFETY: the caller's contract is readv's.
        return whole(|| unsafe {
            answered(pipe::readv(fd, vectors, n), || real::readv(fd, vectors, n))
        });
    }
    // SAFETY: the caller's contract is readv's, here and below.
    let single = |buffer, len| unsafe { ws_read(fd, buffer, len) };
    // SAFETY: as above.
    whole(|| vectored(fd, vectors, n, single, || unsafe { real::readv(fd, vectors, n) }))
}

/// writev(2). One buffer is a write; with several an in-process object other than a pipe migrates.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_writev(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t {
    if n > 1 && pipe::is_end_for_buffers(fd) {
        // SAFETY: the caller's contract is writev's.
        return whole(|| unsafe {
            answered(pipe::writev(fd, vectors, n), || real::writev(fd, vectors, n))
        });
    }
    // SAFETY: the caller's contract is writev's, here and below.
    let single = |buffer: *mut c_void, len| unsafe { ws_write(fd, buffer, len) };
    // SAFETY: as above.
    whole(|| vectored(fd, vectors, n, single, || unsafe { real::writev(fd, vectors, n) }))
}

/// sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's contract.
    whole(|| unsafe {
        descriptor::before_sendmsg(message);
        if !pipe::is_end(fd) {
            return real::sendmsg(fd, message, flags);
        }
        answered(pipe::sendmsg(fd, message, flags), || real::sendmsg(fd, message, flags))
    })
}
