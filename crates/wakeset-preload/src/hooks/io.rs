//! read, write and their vectored, fortified and eventfd forms; timerfds.

use super::uffd;
use crate::outcome::{answered, answered_unit, fail, returned};
use crate::real::real;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use libc::{iovec, itimerspec, size_t, ssize_t};
use wakeset_fd::stats::Stat;
use wakeset_fd::{counter, descriptor, escape, pipe, timer, user};

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type Vectored = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;

/// read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is read's.
    match unsafe { counter::read_fast(fd, buffer.cast(), len) } {
        // SAFETY: as above.
        0 => match unsafe { pipe::read_fast(fd, buffer.cast(), len) } {
            // SAFETY: as above.
            0 => unsafe { read_slow(fd, buffer, len) },
            n => n as ssize_t,
        },
        8 => 8,
        errno => fail(-errno as i32),
    }
}

#[cold]
#[inline(never)]
unsafe fn read_slow(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is read's, here and below.
    answered(unsafe { counter::read(fd, buffer.cast(), len) }, || unsafe {
        uffd::read(fd, buffer, len).unwrap_or_else(|| real!(read: Read)(fd, buffer, len))
    })
}

/// write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is write's.
    if unsafe { counter::write_fast(fd, buffer.cast(), len) } {
        return 8;
    }
    // SAFETY: as above.
    if unsafe { pipe::write_fast(fd, buffer.cast(), len) } {
        return len as ssize_t;
    }
    // SAFETY: as above.
    unsafe { write_slow(fd, buffer, len) }
}

#[cold]
#[inline(never)]
unsafe fn write_slow(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract is write's, here and below.
    answered(unsafe { counter::write(fd, buffer.cast(), len) }, || unsafe { real!(write: Write)(fd, buffer, len) })
}

/// glibc's other name for read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { read(fd, buffer, len) }
}

/// glibc's other name for write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { write(fd, buffer, len) }
}

/// read(2) with a buffer whose size the compiler knew (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    if len <= room {
        // SAFETY: the same contract.
        return unsafe { read(fd, buffer, len) };
    }
    type Checked = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    // SAFETY: libc reports the overflow and ends the program.
    unsafe { real!(__read_chk: Checked)(fd, buffer, len, room) }
}

/// The lengths of one buffer that mean the same to read(2) as to readv(2). The latter takes none as nothing to do, and shortens
/// what is too long before it looks whether it is there.
const FIT: core::ops::RangeInclusive<usize> = 1..=0x7fff_f000;

/// readv(2). One buffer is a read; several on an object of ours are left to the kernel's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t {
    if descriptor::is_in_process(fd) {
        // SAFETY: any bits are an iovec.
        if let (1, Some(iovec { iov_base, iov_len })) = (n, unsafe { user::load(vectors) })
            && FIT.contains(&iov_len)
        {
            // SAFETY: the caller's contract is readv's.
            return unsafe { read(fd, iov_base, iov_len) };
        }
        escape::fd(fd, Stat::MovedOddArgument);
    }
    // SAFETY: the caller's contract.
    let got = unsafe { real!(readv: Vectored)(fd, vectors, n) };
    // Where a message may lie in pieces, only that there was one is noted.
    uffd::after_read(fd, core::ptr::null(), got);
    got
}

/// writev(2). One buffer is a write; several on an object of ours are left to the kernel's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t {
    if descriptor::is_in_process(fd) {
        // SAFETY: any bits are an iovec.
        if let (1, Some(iovec { iov_base, iov_len })) = (n, unsafe { user::load(vectors) })
            && FIT.contains(&iov_len)
        {
            // SAFETY: the caller's contract is writev's.
            return unsafe { write(fd, iov_base, iov_len) };
        }
        escape::fd(fd, Stat::MovedOddArgument);
    }
    // SAFETY: the caller's contract.
    unsafe { real!(writev: Vectored)(fd, vectors, n) }
}

/// eventfd(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd(initial: c_uint, flags: c_int) -> c_int {
    returned(counter::eventfd(initial, flags).map(|fd| fd as isize)) as c_int
}

/// eventfd_read(3). glibc's own does not go through `read`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn eventfd_read(fd: c_int, value: *mut u64) -> c_int {
    // SAFETY: the caller gives a place for 8 bytes.
    if unsafe { read(fd, value.cast(), 8) } == 8 { 0 } else { -1 }
}

/// eventfd_write(3). glibc's own does not go through `write`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn eventfd_write(fd: c_int, value: u64) -> c_int {
    // SAFETY: 8 bytes of our own.
    if unsafe { write(fd, ptr::from_ref(&value).cast(), 8) } == 8 { 0 } else { -1 }
}

/// timerfd_create(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
    returned(timer::timerfd_create(clock, flags).map(|fd| fd as isize)) as c_int
}

/// timerfd_settime(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    type Settime = unsafe extern "C" fn(c_int, c_int, *const itimerspec, *mut itimerspec) -> c_int;
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_settime(fd, flags, new, old) };
    // SAFETY: as above.
    answered_unit(verdict, || unsafe { real!(timerfd_settime: Settime)(fd, flags, new, old) } as isize) as c_int
}

/// timerfd_gettime(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> c_int {
    type Gettime = unsafe extern "C" fn(c_int, *mut itimerspec) -> c_int;
    // SAFETY: the caller's contract.
    let verdict = unsafe { timer::timerfd_gettime(fd, current) };
    // SAFETY: as above.
    answered_unit(verdict, || unsafe { real!(timerfd_gettime: Gettime)(fd, current) } as isize) as c_int
}
