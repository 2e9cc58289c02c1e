//! The program's io_urings and its asynchronous I/O: what it submits is looked at before the kernel
//! gets it, and the objects that it names migrate. `docs/design/program-rings.md` has the whole of
//! it.
//!
//! | file | concept |
//! |---|---|
//! | this one | the calls |
//! | `enter` | what io_uring_enter(2) submits |
//! | `named` | what becomes of what an entry names |
//! | `commands` | epoll_ctl(2) as a request, which is answered here |

mod commands;
mod enter;
mod named;

use super::{descriptor, instruction, path};
use crate::dispatch;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use enter::Request;
use named::{Hooks, leave, migrate_each, migrate_number};
use wakeset_fd::program_rings::{self, SetUp, setup_flags};
use wakeset_fd::stats::Stat;
use wakeset_fd::{fork, migrate, user};

/// io_uring_setup(2).
///
/// # Safety
/// As io_uring_setup(2).
pub(super) unsafe fn io_uring_setup(
    entries: usize,
    parameters: usize,
    call: impl Fn(usize, usize) -> c_int,
) -> c_int {
    if migrate::is_for_good() || fork::is_foreign() {
        return call(entries, parameters);
    }
    // SAFETY: the caller's contract.
    if unsafe { setup_flags(parameters) } == Some(false) {
        leave();
        return call(entries, parameters);
    }
    let number = super::room::number(|| call(entries, parameters), |number| number);
    migrate::number_is_new(number);
    if number >= 0 {
        // SAFETY: the kernel has just filled it in.
        let set_up = unsafe { SetUp::load(parameters) };
        if !set_up.is_some_and(|set_up| program_rings::note_setup(number, &set_up)) {
            leave();
        }
    }
    number
}

/// Before a function of liburing's that sets up an io_uring: it makes its system calls by
/// instruction, and they must be caught from here on.
pub(super) fn before_library_setup() {
    instruction::before_object();
    if !dispatch::is_armed() {
        leave();
    }
}

const HOOKS: Hooks = Hooks {
    // SAFETY: a C string, or the kernel will say EFAULT.
    open: |path| unsafe { path::before_open(ptr::with_exposed_provenance(path)) },
    close: |number| _ = descriptor::close(number, |_| 0),
};

/// io_uring_enter(2).
///
/// # Safety
/// As io_uring_enter(2).
pub(super) unsafe fn io_uring_enter(
    fd: c_int,
    count: c_uint,
    wanted: c_uint,
    flags: c_uint,
    argument: usize,
    size: usize,
    call: impl Fn(c_int, c_uint, c_uint, c_uint, usize, usize) -> c_int,
) -> c_int {
    let request = Request { fd, count, wanted, flags, argument, size, hooks: HOOKS };
    enter::enter(request, |it| call(it.fd, it.count, it.wanted, it.flags, it.argument, it.size))
}

/// Before an io_uring_enter(2) that is made by instruction.
pub(crate) fn before_caught_enter(fd: c_int, count: c_uint, flags: c_uint) {
    let request = Request { fd, count, wanted: 0, flags, argument: 0, size: 0, hooks: HOOKS };
    enter::before_caught(request);
}

/// Operations of io_uring_register(2).
mod op {
    pub(super) const FILES: u32 = 2;
    pub(super) const EVENTFD: u32 = 4;
    pub(super) const FILES_UPDATE: u32 = 6;
    pub(super) const EVENTFD_ASYNC: u32 = 7;
    pub(super) const RESTRICTIONS: u32 = 11;
    pub(super) const FILES2: u32 = 13;
    pub(super) const FILES_UPDATE2: u32 = 14;
    pub(super) const RING_FDS: u32 = 20;
    pub(super) const UNREGISTER_RING_FDS: u32 = 21;
    pub(super) const RESIZE_RINGS: u32 = 33;
    /// The last of Linux 6.18.
    pub(super) const QUERY: u32 = 35;
    /// The number is an index of the thread's.
    pub(super) const BY_INDEX: u32 = 1 << 31;
}

/// Whether something is noted after an operation of io_uring_register(2). They do not block.
pub(crate) fn is_noted_after(operation: usize) -> bool {
    let operation = operation as u32 & !op::BY_INDEX;
    matches!(operation, op::RING_FDS | op::UNREGISTER_RING_FDS)
}

/// io_uring_register(2).
///
/// # Safety
/// As io_uring_register(2).
pub(super) unsafe fn io_uring_register(
    fd: c_int,
    operation: c_uint,
    argument: *mut c_void,
    count: c_uint,
    call: impl FnOnce(c_int, c_uint, *mut c_void, c_uint) -> c_int,
) -> c_int {
    if migrate::is_for_good() {
        return call(fd, operation, argument, count);
    }
    if fork::is_foreign() {
        leave();
    }
    let address = argument.expose_provenance();
    // SAFETY: the caller's contract.
    unsafe {
        match operation & !op::BY_INDEX {
            op::FILES => migrate_each(address, count),
            op::EVENTFD | op::EVENTFD_ASYNC => migrate_each(address, 1),
            op::FILES_UPDATE => migrate_each(pointer_at(address + 8), count),
            // `struct io_uring_rsrc_register` and `struct io_uring_rsrc_update2`.
            op::FILES2 => migrate_each(pointer_at(address + 16), word_at(address)),
            op::FILES_UPDATE2 => migrate_each(pointer_at(address + 8), word_at(address + 24)),
            op::RESTRICTIONS => program_rings::note_restricted(),
            op::RING_FDS | op::UNREGISTER_RING_FDS => {
                return ring_fds(fd, operation, argument, count, call);
            }
            op::RESIZE_RINGS => leave(),
            after if after > op::QUERY => leave(),
            _ => {}
        }
    }
    call(fd, operation, argument, count)
}

/// An address in the program's memory, 0 if the memory is not there.
unsafe fn pointer_at(address: usize) -> usize {
    // SAFETY: any bits are an address.
    unsafe { user::load(ptr::with_exposed_provenance::<usize>(address)) }.unwrap_or(0)
}

/// A number in the program's memory, 0 if the memory is not there.
unsafe fn word_at(address: usize) -> u32 {
    // SAFETY: any bits are a number.
    unsafe { user::load(ptr::with_exposed_provenance::<u32>(address)) }.unwrap_or(0)
}

/// `struct io_uring_rsrc_update`: an index, and the number that it is to stand for.
const UPDATE: usize = 16;
/// A thread has so many indices (`IO_RINGFD_REG_MAX`).
const INDICES: usize = 16;

/// `IORING_REGISTER_RING_FDS` and `IORING_UNREGISTER_RING_FDS`: notes each entry that the kernel
/// has served.
unsafe fn ring_fds(
    fd: c_int,
    operation: c_uint,
    argument: *mut c_void,
    count: c_uint,
    call: impl FnOnce(c_int, c_uint, *mut c_void, c_uint) -> c_int,
) -> c_int {
    let result = call(fd, operation, argument, count);
    let address = argument.expose_provenance();
    for update in (0..(result.max(0) as usize).min(INDICES)).map(|at| address + at * UPDATE) {
        // SAFETY: the caller's contract.
        let (index, number) = unsafe { (word_at(update), word_at(update + 8)) };
        if operation & !op::BY_INDEX == op::UNREGISTER_RING_FDS {
            program_rings::note_unregistered(index as c_int);
        } else if !program_rings::note_registered(number as c_int, index as c_int) {
            leave();
        }
    }
    result
}

/// Before io_submit(2): migrates what the requests name.
///
/// # Safety
/// As io_submit(2).
pub(super) unsafe fn before_io_submit(count: usize, requests: usize) {
    /// `struct iocb`.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Request {
        head: [u64; 2],
        operation: u16,
        priority: u16,
        fd: c_int,
        rest: [u64; 3],
        reserved: u64,
        flags: u32,
        eventfd: c_int,
    }
    const _: () = assert!(size_of::<Request>() == 64);
    /// `IOCB_FLAG_RESFD`.
    const HAS_EVENTFD: u32 = 1;
    if migrate::is_for_good() {
        return;
    }
    for place in 0..count {
        // SAFETY: any bits are a request; the caller's contract.
        let request = unsafe {
            let address = pointer_at(requests.wrapping_add(place * size_of::<usize>()));
            user::load(ptr::with_exposed_provenance::<Request>(address))
        };
        // The kernel takes none after this one.
        let Some(request) = request else { return };
        migrate_number(request.fd, Stat::MigratedAio, c"io_submit");
        if request.flags & HAS_EVENTFD != 0 {
            migrate_number(request.eventfd, Stat::MigratedAio, c"io_submit");
        }
    }
}
