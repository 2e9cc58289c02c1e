//! pipe, socketpair, the calls of sockets, and open, which reaches a pipe by its name in `/proc`.

use crate::outcome::{answered, returned};
use crate::real::real;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, escape, pipe, user};

/// pipe(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe(fds: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    returned(unsafe { pipe::pipe2(fds, 0) }.map(|()| 0_isize)) as c_int
}

/// pipe2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(fds: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    returned(unsafe { pipe::pipe2(fds, flags) }.map(|()| 0_isize)) as c_int
}

/// glibc's other name for pipe(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pipe(fds: *mut c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { pipe(fds) }
}

/// socketpair(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    returned(unsafe { pipe::socketpair(domain, kind, protocol, fds) }.map(|()| 0_isize)) as c_int
}

type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type Recv = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;

/// send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's contract, here and below.
    let call = || unsafe { real!(send: Send)(fd, buffer, len, flags) };
    match pipe::is_end(fd) {
        // SAFETY: as above.
        true => answered(unsafe { pipe::send(fd, buffer.cast(), len, flags) }, call),
        false => call(),
    }
}

/// glibc's other name for send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { send(fd, buffer, len, flags) }
}

/// recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's contract, here and below.
    let call = || unsafe { real!(recv: Recv)(fd, buffer, len, flags) };
    match pipe::is_end(fd) {
        // SAFETY: as above.
        true => answered(unsafe { pipe::recv(fd, buffer.cast(), len, flags) }, call),
        false => call(),
    }
}

/// recv(2) with a buffer whose size the compiler knew (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len <= room {
        // SAFETY: the same contract.
        return unsafe { recv(fd, buffer, len, flags) };
    }
    type Checked = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t;
    // SAFETY: libc reports the overflow and ends the program.
    unsafe { real!(__recv_chk: Checked)(fd, buffer, len, room, flags) }
}

/// sendto(2). Without an address it is send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    type SendTo =
        unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    if pipe::is_end(fd) {
        if address.is_null() && address_len == 0 {
            // SAFETY: the caller's contract.
            return unsafe { send(fd, buffer, len, flags) };
        }
        escape::fd(fd, Stat::MovedOddArgument);
    }
    // SAFETY: the caller's contract.
    unsafe { real!(sendto: SendTo)(fd, buffer, len, flags, address, address_len) }
}

/// recvfrom(2). Without a place for the address it is recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    type RecvFrom =
        unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    if pipe::is_end(fd) {
        if address.is_null() {
            // SAFETY: the caller's contract.
            return unsafe { recv(fd, buffer, len, flags) };
        }
        escape::fd(fd, Stat::MovedOddArgument);
    }
    // SAFETY: the caller's contract.
    unsafe { real!(recvfrom: RecvFrom)(fd, buffer, len, flags, address, address_len) }
}

/// recvfrom(2) with a buffer whose size the compiler knew (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    if len <= room {
        // SAFETY: the same contract.
        return unsafe { recvfrom(fd, buffer, len, flags, address, address_len) };
    }
    type Checked = unsafe extern "C-unwind" fn(
        c_int,
        *mut c_void,
        size_t,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t;
    // SAFETY: libc reports the overflow and ends the program.
    unsafe { real!(__recvfrom_chk: Checked)(fd, buffer, len, room, flags, address, address_len) }
}

/// recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    type RecvMsg = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> ssize_t;
    move_end(fd);
    // SAFETY: the caller's contract.
    unsafe { real!(recvmsg: RecvMsg)(fd, message, flags) }
}

/// recvmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    type RecvMmsg = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    move_end(fd);
    // SAFETY: the caller's contract.
    unsafe { real!(recvmmsg: RecvMmsg)(fd, messages, n, flags, limit) }
}

/// shutdown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    type Shutdown = unsafe extern "C" fn(c_int, c_int) -> c_int;
    move_end(fd);
    // SAFETY: the caller's contract.
    unsafe { real!(shutdown: Shutdown)(fd, how) }
}

/// setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    type Set = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    move_end(fd);
    // SAFETY: the caller's contract.
    unsafe { real!(setsockopt: Set)(fd, level, name, value, len) }
}

/// The option whose answer depends on what is in a socket: `SO_MEMINFO`.
pub(super) const DEPENDS: c_int = 55;

/// getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    type Get = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    if name == DEPENDS {
        move_end(fd);
    }
    // SAFETY: the caller's contract.
    unsafe { real!(getsockopt: Get)(fd, level, name, value, len) }
}

/// Moves a pair into the kernel by one of its ends.
pub(super) fn move_end(fd: c_int) {
    if pipe::is_end(fd) {
        escape::fd(fd, Stat::MovedUnmodelled);
    }
}

/// Requests of ioctl(2) that have to do with neither what is in a pipe nor who is told of it.
pub(super) fn is_about_descriptor(request: u32) -> bool {
    let request = u64::from(request);
    matches!(request, libc::FIONBIO | libc::FIOCLEX | libc::FIONCLEX | libc::TCGETS | libc::TIOCGWINSZ)
}

/// ioctl(2) on an end of a pair: `FIONREAD` is answered, what concerns its bytes moves it. `None`: the kernel answers.
///
/// # Safety
/// As ioctl(2).
pub(super) unsafe fn ioctl(fd: c_int, request: u32, argument: usize) -> Option<c_int> {
    if !pipe::is_end(fd) || is_about_descriptor(request) {
        return None;
    }
    if u64::from(request) == libc::FIONREAD
        && let Some(bytes) = pipe::bytes_in(fd)
    {
        let place = core::ptr::with_exposed_provenance_mut::<c_int>(argument);
        // SAFETY: the caller gives a place for an int.
        let stored = unsafe { user::store_int(place, bytes) };
        return Some(if stored { 0 } else { crate::outcome::fail(libc::EFAULT) as c_int });
    }
    escape::fd(fd, Stat::MovedUnmodelled);
    None
}

/// Before fcntl(2): moves an end of a pair if the command concerns what is in it or who is told of it.
pub(super) fn before_fcntl(fd: c_int, command: c_int, argument: usize) {
    if !pipe::is_end(fd) {
        return;
    }
    let harmless = match command {
        // Packets; signals.
        libc::F_SETFL => argument as c_int & (libc::O_DIRECT | libc::O_ASYNC) == 0,
        libc::F_GETFL | libc::F_GETFD | libc::F_SETFD | libc::F_GETPIPE_SZ | libc::F_GETOWN => true,
        _ => false,
    };
    if !harmless {
        escape::fd(fd, Stat::MovedUnmodelled);
    }
}

/// Before a file is opened by name: a name of a descriptor gives a second way to a pipe.
///
/// # Safety
/// `path` is a C string, or the kernel will say EFAULT.
pub(super) unsafe fn before_open(path: *const c_char) {
    // SAFETY: the caller's contract.
    if descriptor::any() && unsafe { names_descriptor(path) } {
        escape::pipes(Stat::MovedUnmodelled);
    }
}

/// Whether a path may be a name of a descriptor.
///
/// # Safety
/// As [`before_open`].
pub(super) unsafe fn names_descriptor(path: *const c_char) -> bool {
    // Without what says nothing in a path: a second slash, and a component of one dot.
    let (mut name, mut len) = ([0_u8; 48], 0);
    for i in 0..libc::PATH_MAX as usize {
        // SAFETY: any byte is a part of a path.
        let byte = unsafe { user::load_u8(path.cast::<u8>().wrapping_add(i)) }.unwrap_or(0);
        if byte == b'/' && name[..len].ends_with(b"/.") {
            len -= 1;
        }
        if byte == 0 || len == name.len() {
            break;
        }
        if byte == b'/' && name[..len].ends_with(b"/") {
            continue;
        }
        name[len] = byte;
        len += 1;
        // Most names are told by their beginning.
        if len == 6 && byte != b'.' && !name.starts_with(b"/dev/") && !name.starts_with(b"/proc/") {
            return false;
        }
    }
    let name = &name[..len];
    name.starts_with(b"/dev/fd/")
        || name.starts_with(b"/dev/std")
        || name.starts_with(b"/proc/") && name.windows(4).any(|part| part == b"/fd/")
}

/// Defines hooks for functions that open the file whose name is the argument at the given position.
macro_rules! opening {
    ($($(#[$doc:meta])* $name:ident [$position:literal];)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(a: usize, b: usize, c: usize, d: usize) -> usize {
            type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> usize;
            // SAFETY: the caller's contract; further argument registers are not looked at.
            unsafe {
                before_open(core::ptr::with_exposed_provenance([a, b, c, d][$position]));
                real!($name: Function)(a, b, c, d)
            }
        }
    )+};
}

opening! {
    /// open(2).
    open[0];
    /// open(2).
    open64[0];
    /// glibc's other name for open(2).
    __open[0];
    /// glibc's other name for open(2).
    __open64[0];
    /// open(2) with `_FORTIFY_SOURCE`.
    __open_2[0];
    /// open(2) with `_FORTIFY_SOURCE`.
    __open64_2[0];
    /// openat(2).
    openat[1];
    /// openat(2).
    openat64[1];
    /// openat(2) with `_FORTIFY_SOURCE`.
    __openat_2[1];
    /// openat(2) with `_FORTIFY_SOURCE`.
    __openat64_2[1];
    /// creat(2).
    creat[0];
    /// creat(2).
    creat64[0];
    /// fopen(3).
    fopen[0];
    /// fopen(3).
    fopen64[0];
    /// glibc's other name for fopen(3).
    _IO_fopen[0];
    /// freopen(3).
    freopen[0];
    /// freopen(3).
    freopen64[0];
}
