//! System calls that [`kernel`] answers.

use super::kernel::KERNEL;
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event, timespec};
pub(crate) use syscalls::Errno;

pub(crate) const SIGSET_BYTES: usize = 8;

pub(crate) fn epoll_ctl(_: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Result<(), Errno> {
    match op {
        EPOLL_CTL_ADD => {
            // SAFETY: an addition brings an event.
            let event = unsafe { event.read_unaligned() };
            KERNEL.add(fd, event.events, event.u64)
        }
        EPOLL_CTL_DEL => KERNEL.remove(fd),
        _ => unreachable!("nobody changes a watch in the kernel"),
    }
}

pub(crate) fn epoll_pwait(
    _: c_int,
    events: *mut epoll_event,
    room: c_int,
    milliseconds: c_int,
    _: *const u8,
    _: usize,
) -> Result<c_int, Errno> {
    assert!(milliseconds <= 0, "time stands still");
    let found = KERNEL.wait(room as usize, milliseconds < 0);
    for (i, (bits, data)) in found.iter().enumerate() {
        // SAFETY: room for as many.
        unsafe { events.add(i).write_unaligned(epoll_event { events: *bits, u64: *data }) };
    }
    Ok(found.len() as c_int)
}

pub(crate) fn epoll_pwait2(
    _: c_int,
    _: *mut epoll_event,
    _: c_int,
    _: Option<&timespec>,
    _: *const u8,
    _: usize,
) -> Result<c_int, Errno> {
    Err(Errno::ENOSYS)
}

pub(crate) fn wait_for_nothing(_: Option<&timespec>, _: *const u8, _: usize) -> Result<c_int, Errno> {
    unreachable!("no wait outlives the number")
}

pub(crate) fn is_thread(_: c_int) -> bool {
    true
}

pub(crate) fn sched_yield() {
    loom::thread::yield_now();
}
