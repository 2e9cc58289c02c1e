//! close(2), dup(2), fcntl(2), ioctl(2), and other calls about descriptors as such.

use super::instruction;
use super::room;
use super::socket::migrate_pair;
use crate::listeners::{around_close, has_left as is_left_listener};
use crate::{flags, uffd};
use core::ffi::{c_int, c_long, c_uint, c_ulong};
use core::ptr;
use wakeset_fd::interpose::{
    after_fcntl, after_ioctl, answered_int, answered_unit, fail, returned_unit,
};
use wakeset_fd::listeners::held;
use wakeset_fd::stats::Stat;
use wakeset_fd::{Verdict, descriptor, duplicate, listeners, migrate, pipe, user};

/// close(2). Nothing stands between the real call and the return to the program, which costs more
/// after a system call than elsewhere.
#[inline(always)]
pub(super) fn close(fd: c_int, call: impl FnOnce(c_int) -> c_int) -> c_int {
    if is_left_listener(fd) {
        return around_close(fd, || close_number(fd, call));
    }
    close_number(fd, call)
}

#[inline(always)]
fn close_number(fd: c_int, call: impl FnOnce(c_int) -> c_int) -> c_int {
    listeners::forget(fd);
    held::note_close(fd);
    uffd::before_close(fd);
    match descriptor::close(fd) {
        Verdict::Kernel => call(fd),
        Verdict::Done(result) => returned_unit(result),
    }
}

/// close_range(2).
pub(super) fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    call: impl FnOnce(c_uint, c_uint, c_int) -> c_int,
) -> c_int {
    /// They stay open until an exec.
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    listeners::forget_range(first, last);
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        held::note_close_range(first, last);
    }
    uffd::before_close_range(first, last, flags);
    answered_unit(descriptor::close_range(first, last, flags), || call(first, last, flags))
}

/// closefrom(3).
pub(super) fn closefrom(first: c_int, call: impl FnOnce(c_int)) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0, |_, _, _| {
        call(first);
        0
    });
}

/// dup(2).
pub(super) fn dup(fd: c_int, call: impl Fn(c_int) -> c_int) -> c_int {
    listeners::end_alone(fd);
    let call = || made(room::number(|| call(fd), |number| number));
    answered_int(duplicate::dup(fd), call)
}

/// A number that the kernel has just given out, or an error.
fn made(fd: c_int) -> c_int {
    migrate::number_is_new(fd);
    fd
}

/// pidfd_getfd(2). The number that is copied may be one of this process.
pub(super) fn pidfd_getfd(
    process: usize,
    fd: usize,
    flags: usize,
    call: impl FnOnce(usize, usize, usize) -> usize,
) -> usize {
    migrate::fd_for(fd as c_int, Stat::MigratedUnmodelled, c"pidfd_getfd");
    let result = call(process, fd, flags);
    made(result as c_int);
    result
}

/// Before `old` gets a further number `new`.
fn before_dup_to(old: c_int, new: c_int) {
    listeners::forget(new);
    if old != new {
        listeners::end_alone(old);
        held::note_close(new);
    }
    uffd::before_dup_to(old, new);
}

/// dup2(2).
pub(super) fn dup2(old: c_int, new: c_int, call: impl FnOnce(c_int, c_int) -> c_int) -> c_int {
    around_close(new, || {
        before_dup_to(old, new);
        let call = || duplicate::onto(old, new, 0, || call(old, new));
        answered_int(duplicate::dup2(old, new), call)
    })
}

/// dup3(2).
pub(super) fn dup3(
    old: c_int,
    new: c_int,
    flags: c_int,
    call: impl FnOnce(c_int, c_int, c_int) -> c_int,
) -> c_int {
    around_close(new, || {
        before_dup_to(old, new);
        let call = || duplicate::onto(old, new, flags, || call(old, new, flags));
        answered_int(duplicate::dup3(old, new, flags), call)
    })
}

/// fcntl(2). The third argument is passed on as it is: on x86-64 an int, a long and a pointer
/// travel alike.
pub(super) fn fcntl(
    fd: c_int,
    command: c_int,
    argument: c_long,
    call: impl Fn(c_int, c_int, c_long) -> c_int,
) -> c_int {
    if descriptor::is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        listeners::end_alone(fd);
        let closes_on_exec = command == libc::F_DUPFD_CLOEXEC;
        // The kernel takes it for an unsigned int.
        let verdict = duplicate::dup_above(fd, argument as c_uint as usize, closes_on_exec);
        let call = || made(room::number(|| call(fd, command, argument), |number| number));
        return answered_int(verdict, call);
    }
    if !matches!(command, libc::F_GETFL | libc::F_GETFD | libc::F_SETFD) {
        descriptor::before_change(fd);
    }
    if !fcntl_leaves_bytes_alone(command, argument) {
        migrate_pair(fd);
    }
    let result = call(fd, command, argument);
    if result >= 0 && descriptor::is_hidden(fd) {
        // One of ours has got the number since the look.
        return fail(libc::EBADF) as c_int;
    }
    if after_fcntl(fd, command, argument as usize, result) {
        forget_flags(fd);
    }
    result
}

/// After flags of a descriptor were set. A server sets them on each connection, which is no
/// listener.
fn forget_flags(fd: c_int) {
    if uffd::any() || !listeners::is_known_other(fd) {
        flags::forget();
    }
}

/// Whether a command of fcntl(2) concerns neither what is in a pipe nor who is signalled about it.
fn fcntl_leaves_bytes_alone(command: c_int, argument: c_long) -> bool {
    match command {
        // The two flags are about packets and about signals.
        libc::F_SETFL => argument as c_int & (libc::O_DIRECT | libc::O_ASYNC) == 0,
        libc::F_GETFL | libc::F_GETFD | libc::F_SETFD | libc::F_GETPIPE_SZ | libc::F_GETOWN => true,
        _ => false,
    }
}

/// The classes of ioctl(2) (bits 8 to 15 of the request) that take no eventfd by number.
const HARMLESS: [u8; 9] = [
    0x54, // terminals
    0x89, // sockets
    0x66, // file systems
    0x12, // block devices
    0x94, // cloning of files
    0xaa, // userfaultfd
    0x24, // perf events
    0xb7, // name spaces
    0x52, // random numbers
];

/// A request of timerfds, of the class of terminals: makes up expirations.
const TFD_IOC_SET_TICKS: u32 = 0x4008_5400;

/// ioctl(2). Drivers (KVM, VFIO, vhost…) take eventfds by number inside arguments that only they
/// can read, so a request of a class not known to be harmless migrates everything.
///
/// # Safety
/// As ioctl(2).
pub(super) unsafe fn ioctl(
    fd: c_int,
    request: c_ulong,
    argument: c_long,
    call: impl FnOnce(c_int, c_ulong, c_long) -> c_int,
) -> c_int {
    if descriptor::is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    // The kernel looks at no more of it.
    let number = request as u32;
    if !matches!(c_ulong::from(number), libc::FIOCLEX | libc::FIONCLEX | libc::FIONREAD) {
        descriptor::before_change(fd);
    }
    if number == TFD_IOC_SET_TICKS {
        migrate::fd_for(fd, Stat::MigratedUnmodelled, c"ioctl");
    }
    if !HARMLESS.contains(&((number >> 8) as u8)) {
        migrate::everything(Stat::MigratedUnmodelled);
        migrate::open_gate();
    }
    // SAFETY: the caller's contract.
    if let Some(result) = unsafe { ioctl_of_pair(fd, number, argument as usize) } {
        return result;
    }
    let result = call(fd, request, argument);
    uffd::after_ioctl(fd, number, result);
    // SAFETY: the kernel has just answered.
    if unsafe { after_ioctl(fd, number, argument as usize, result) } {
        forget_flags(fd);
    }
    result
}

/// Whether a request of ioctl(2) concerns neither what is in a pipe nor who is signalled about it.
fn ioctl_leaves_bytes_alone(request: u32) -> bool {
    matches!(
        c_ulong::from(request),
        libc::FIONBIO | libc::FIOCLEX | libc::FIONCLEX | libc::TCGETS | libc::TIOCGWINSZ
    )
}

/// ioctl(2) on an end of an in-process pipe or pair: `FIONREAD` is answered, what concerns its
/// bytes migrates it. `None`: the kernel answers.
///
/// # Safety
/// As ioctl(2).
unsafe fn ioctl_of_pair(fd: c_int, request: u32, argument: usize) -> Option<c_int> {
    // In this order: to be asked anything else keeps a pair in the kernel that may come home.
    if ioctl_leaves_bytes_alone(request) {
        return None;
    }
    if c_ulong::from(request) == libc::FIONREAD {
        let bytes = pipe::bytes_in(fd)?;
        let place = ptr::with_exposed_provenance_mut::<c_int>(argument);
        // SAFETY: the caller gives memory for an int.
        let stored = unsafe { user::store_int(place, bytes) };
        return Some(if stored { 0 } else { fail(libc::EFAULT) as c_int });
    }
    if pipe::is_end(fd) {
        migrate::fd_for(fd, Stat::MigratedUnmodelled, c"ioctl");
    }
    None
}

/// Before kcmp(2). `KCMP_EPOLL_TFD` asks whether a set watches a number: the kernel knows only its
/// own watches.
///
/// # Safety
/// As kcmp(2).
pub(super) unsafe fn before_kcmp(kind: usize, argument: usize) {
    const KCMP_EPOLL_TFD: c_int = 7;
    // SAFETY: any bits are a number.
    let load = || unsafe { user::load(ptr::with_exposed_provenance::<u32>(argument)) };
    if kind as c_int == KCMP_EPOLL_TFD
        && let Some(set) = load()
    {
        migrate::fd_for(set as c_int, Stat::MigratedUnmodelled, c"kcmp");
    }
}

/// userfaultfd(2).
pub(super) fn userfaultfd(flags: c_int, call: impl FnOnce(c_int) -> c_int) -> c_int {
    instruction::before_object();
    let fd = made(call(flags));
    uffd::recognise(fd);
    fd
}
