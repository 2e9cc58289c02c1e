//! readv(2), writev(2), recvmsg(2) and sendmsg(2) on an end of a pair: reads and writes by way of
//! several buffers. With an address, or with control data to send, the call is the kernel's.

use super::FdPipe;
use super::buffers::{self, Buffers};
use super::io::{MODELLED, on_socket, on_socket_or, read_into, write_away, write_from};
use crate::migrate;
use crate::objects::home;
use crate::stats::Stat;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::table::{self, Bytes, Entry, away};
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::offset_of;
use libc::{MSG_CMSG_CLOEXEC, MSG_DONTWAIT, iovec, msghdr};

/// Does something with the buffers that are in the caller's memory. Without any byte in them, or
/// where an address or number is the kernel's to judge, the pair migrates.
fn with_buffers(
    fd: c_int,
    vectors: *const iovec,
    n: usize,
    call: impl FnOnce(Buffers<'_>) -> Option<Verdict<usize>>,
) -> Option<Verdict<usize>> {
    if let Some((loaded, n)) = buffers::load(vectors, n)
        && let Some(loaded) = loaded.get(..n)
        && let Some(buffers) = Buffers::of(loaded).filter(|buffers| buffers.len() != 0)
    {
        return call(buffers);
    }
    migrate::fd(fd, Stat::MigratedOddArgument);
    Some(Kernel)
}

/// As `on_socket_or`, of pipes as well.
fn on_end(
    fd: c_int,
    call: impl Fn(&'static FdPipe) -> Option<Verdict<usize>>,
    away: impl Fn() -> Option<Verdict<usize>>,
) -> Verdict<usize> {
    loop {
        let (found, _held) = table::get_held_for_bytes(fd);
        let end = match found {
            Bytes::Entry(Entry::Doorbell) => return Done(Err(Errno::EBADF)),
            Bytes::Entry(entry) => entry.downcast::<FdPipe>(),
            Bytes::Away if away::kind(fd) == Some(table::PIPE) => match away() {
                Some(verdict) => return verdict,
                None => continue,
            },
            Bytes::Away => table::get(fd).downcast::<FdPipe>(),
        };
        let Some(end) = end else { return Kernel };
        if let Some(verdict) = call(end) {
            return verdict;
        }
    }
}

/// readv(2) as far as it concerns pipes and pairs.
///
/// # Safety
/// As readv(2): the buffers are the caller's to give, if they are there.
pub unsafe fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> Verdict<usize> {
    let call = |end| {
        with_buffers(fd, vectors, n as usize, |buffers| {
            // SAFETY: the caller's contract.
            unsafe { read_into(fd, end, buffers, true, |number| buffers.read(number)) }
        })
    };
    on_end(fd, call, || home::read(fd, || sys::raw!(readv, fd, vectors, n)))
}

/// writev(2) as far as it concerns pipes and pairs.
///
/// # Safety
/// As [`readv`].
pub unsafe fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> Verdict<usize> {
    let call = |end| {
        with_buffers(fd, vectors, n as usize, |buffers| {
            // SAFETY: the caller's contract.
            unsafe { write_from(fd, end, Some(buffers), buffers.len(), 0) }
        })
    };
    on_end(fd, call, || write_away(fd, || sys::raw!(writev, fd, vectors, n)))
}

/// sendmsg(2) as far as it concerns pairs.
///
/// # Safety
/// As sendmsg(2): the message is null or the caller's to give, if it is there.
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Verdict<usize> {
    // SAFETY: any bits are a msghdr.
    let head = unsafe { user::load(message) };
    let head = head.filter(|head| head.msg_name.is_null() && head.msg_controllen == 0);
    let Some(head) = head.filter(|_| flags & !MODELLED == 0) else {
        return on_socket(fd, false, |_| Some(Kernel));
    };
    let call = |end| {
        with_buffers(fd, head.msg_iov, head.msg_iovlen, |buffers| {
            // SAFETY: the caller's contract.
            unsafe { write_from(fd, end, Some(buffers), buffers.len(), flags) }
        })
    };
    on_socket_or(fd, true, call, || write_away(fd, || sys::raw!(sendmsg, fd, message, flags)))
}

/// recvmsg(2) as far as it concerns pairs. Nothing comes with the bytes of a pair that is here,
/// because what sends it migrates the pair first.
///
/// # Safety
/// As [`sendmsg`].
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Verdict<usize> {
    // SAFETY: any bits are a msghdr.
    let head = unsafe { user::load(message.cast_const()) };
    let head = head.filter(|head| head.msg_name.is_null());
    let Some(head) = head.filter(|_| flags & !(MODELLED | MSG_CMSG_CLOEXEC) == 0) else {
        return on_socket(fd, false, |_| Some(Kernel));
    };
    let is_kernels = Cell::new(false);
    let kept = |number: c_int| {
        is_kernels.set(true);
        sys::raw!(recvmsg, number, message, flags)
    };
    let call = |end| {
        with_buffers(fd, head.msg_iov, head.msg_iovlen, |buffers| {
            // SAFETY: the caller's contract.
            unsafe { read_into(fd, end, buffers, flags & MSG_DONTWAIT == 0, kept) }
        })
    };
    // The kernel says what came with the bytes.
    let verdict = on_socket_or(fd, true, call, || home::read(fd, || kept(fd)));
    let Done(Ok(_)) = verdict else { return verdict };
    // SAFETY: the caller's contract.
    if is_kernels.get() || unsafe { tell(message, flags & MSG_CMSG_CLOEXEC) } {
        return verdict;
    }
    // As in Linux, what was read is gone.
    Done(Err(Errno::EFAULT))
}

/// What recvmsg(2) says of a message with which nothing came. `false`: it cannot be stored.
///
/// # Safety
/// As [`recvmsg`].
unsafe fn tell(message: *mut msghdr, flags: c_int) -> bool {
    let place = |offset| message.wrapping_byte_add(offset);
    // SAFETY: the caller's contract.
    unsafe {
        user::store_int(place(offset_of!(msghdr, msg_flags)).cast(), flags)
            && user::store_u64(place(offset_of!(msghdr, msg_controllen)).cast(), 0)
    }
}
