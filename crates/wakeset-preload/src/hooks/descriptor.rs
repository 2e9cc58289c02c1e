//! close, dup, fcntl, ioctl, and passing descriptors over sockets.

use super::{pipe, uffd};
use crate::outcome::{answered, answered_unit, fail};
use crate::real::real;
use core::ffi::{c_int, c_long, c_uint, c_ulong};
use libc::{mmsghdr, msghdr, ssize_t};
use wakeset_fd::stats::Stat;
use wakeset_fd::{counter, descriptor, escape, listeners};

type OneFd = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Fcntl = unsafe extern "C-unwind" fn(c_int, c_int, c_long) -> c_int;

/// close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    listeners::forget(fd);
    uffd::before_close(fd);
    // SAFETY: the caller's contract.
    answered_unit(descriptor::close(fd), || unsafe { real!(close: OneFd)(fd) } as isize) as c_int
}

/// glibc's other name for close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { close(fd) }
}

/// close_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    type Range = unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;
    listeners::forget_range(first, last);
    uffd::before_close_range(first, last, flags);
    // SAFETY: the caller's contract.
    let call = || unsafe { real!(close_range: Range)(first, last, flags) } as isize;
    answered_unit(descriptor::close_range(first, last, flags), call) as c_int
}

/// closefrom(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    type From = unsafe extern "C" fn(c_int);
    listeners::forget_range(first.max(0) as c_uint, c_uint::MAX);
    uffd::before_close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    let verdict = descriptor::close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    answered_unit(verdict, || {
        // SAFETY: the caller's contract.
        unsafe { real!(closefrom: From)(first) };
        0
    });
}

/// dup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's contract.
    answered(descriptor::before_dup(fd).map(|fd| fd as isize), || unsafe { real!(dup: OneFd)(fd) } as isize) as c_int
}

/// dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
    listeners::forget(new);
    uffd::before_dup_to(old, new);
    let verdict = descriptor::before_dup_to(old, new, 0).map(|fd| fd as isize);
    // SAFETY: the caller's contract.
    answered(verdict, || unsafe { real!(dup2: Dup2)(old, new) } as isize) as c_int
}

/// glibc's other name for dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { dup2(old, new) }
}

/// dup3(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    type Dup3 = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    listeners::forget(new);
    uffd::before_dup_to(old, new);
    let verdict = descriptor::before_dup_to(old, new, flags).map(|fd| fd as isize);
    // SAFETY: the caller's contract.
    answered(verdict, || unsafe { real!(dup3: Dup3)(old, new, flags) } as isize) as c_int
}

/// fcntl(2). The third argument is passed on as it is: on x86-64 an int, a long and a pointer travel alike.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { fcntl_with(fd, command, argument, real!(fcntl: Fcntl)) }
}

/// fcntl(2) with 64-bit file offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { fcntl_with(fd, command, argument, real!(fcntl64: Fcntl)) }
}

/// glibc's other name for fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the same contract.
    unsafe { fcntl(fd, command, argument) }
}

unsafe fn fcntl_with(fd: c_int, command: c_int, argument: c_long, call: Fcntl) -> c_int {
    if descriptor::is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        escape::fd(fd, Stat::MovedUnmodelled);
    }
    pipe::before_fcntl(fd, command, argument as usize);
    // SAFETY: the caller's contract.
    let result = unsafe { call(fd, command, argument) };
    if command == libc::F_SETFL && result == 0 {
        uffd::forget_flags();
        counter::note_nonblocking(fd, argument as c_int & libc::O_NONBLOCK != 0);
    }
    result
}

/// The classes of ioctl (bits 8 to 15 of the request) that take no eventfd by number: terminals, sockets, file systems, block
/// devices, cloning, userfaultfd, perf events, name spaces, random.
const HARMLESS: [u8; 9] = [0x54, 0x89, 0x66, 0x12, 0x94, 0xaa, 0x24, 0xb7, 0x52];

/// A request of timerfds, of the class of terminals: makes up expirations.
pub(super) const TFD_IOC_SET_TICKS: u32 = 0x4008_5400;

/// ioctl(2). Drivers (KVM, VFIO, vhost…) take eventfds by number inside arguments that only they can read, so a request of
/// a class not known to be harmless moves everything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
    type Ioctl = unsafe extern "C" fn(c_int, c_ulong, c_long) -> c_int;
    if descriptor::is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    if request as u32 == TFD_IOC_SET_TICKS {
        escape::fd(fd, Stat::MovedUnmodelled);
    }
    if !HARMLESS.contains(&((request >> 8) as u8)) {
        escape::everything(Stat::MovedUnmodelled);
        escape::open_gate();
    }
    // SAFETY: the caller's contract.
    if let Some(result) = unsafe { pipe::ioctl(fd, request as u32, argument as usize) } {
        return result;
    }
    // SAFETY: the caller's contract.
    let result = unsafe { real!(ioctl: Ioctl)(fd, request, argument) };
    uffd::after_ioctl(fd, request as u32, result.into());
    if request == libc::FIONBIO && result == 0 {
        // SAFETY: the kernel has just read an int there.
        let on = unsafe { (argument as *const c_int).read_unaligned() } != 0;
        uffd::forget_flags();
        counter::note_nonblocking(fd, on);
    }
    result
}

/// sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Send = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
    // SAFETY: the caller's contract, here and below.
    unsafe {
        descriptor::before_sendmsg(message);
        pipe::move_end(fd);
        real!(sendmsg: Send)(fd, message, flags)
    }
}

/// sendmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
    type Send = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_sendmmsg(messages, n);
        pipe::move_end(fd);
        real!(sendmmsg: Send)(fd, messages, n, flags)
    }
}

/// Moves what the messages pass on.
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
