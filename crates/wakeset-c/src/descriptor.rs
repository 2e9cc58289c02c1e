//! close, dup, fcntl, and leaving descriptors to the kernel.

use crate::outcome::{answered_int, answered_unit, fail, returned_unit, whole};
use core::ffi::{c_int, c_long, c_uint, c_ulong};
use wakeset_fd::interpose::{after_fcntl, after_ioctl, returned};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, duplicate, migrate};

mod real {
    use super::{c_int, c_long};
    unsafe extern "C-unwind" {
        pub(super) fn close(fd: c_int) -> c_int;
        pub(super) fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    }
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ws_close(fd: c_int) -> c_int {
    // SAFETY: closing a number is the caller's to do.
    whole(|| answered_unit(descriptor::close(fd), || unsafe { real::close(fd) }))
}

/// close_range(2). Not through libc, which has it only since glibc 2.34.
#[unsafe(no_mangle)]
pub extern "C" fn ws_close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    let call = || unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } as c_int;
    answered_unit(descriptor::close_range(first, last, flags), call)
}

/// dup(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_dup(fd: c_int) -> c_int {
    // SAFETY: numbers only.
    answered_int(duplicate::dup(fd), || unsafe { libc::dup(fd) })
}

/// dup2(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: numbers only.
    let call = || duplicate::onto(old, new, 0, || unsafe { libc::dup2(old, new) });
    answered_int(duplicate::dup2(old, new), call)
}

/// dup3(2).
#[unsafe(no_mangle)]
pub extern "C" fn ws_dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    let call = || duplicate::onto(old, new, flags, || unsafe { libc::dup3(old, new, flags) });
    answered_int(duplicate::dup3(old, new, flags), call)
}

/// fcntl(2). C declares the third argument as variadic; on x86-64 an int, a long and a pointer
/// travel there as a third argument does.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ws_fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    whole(|| {
        if descriptor::is_hidden(fd) {
            return fail(libc::EBADF) as c_int;
        }
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            let closes_on_exec = command == libc::F_DUPFD_CLOEXEC;
            let verdict = duplicate::dup_above(fd, argument as c_uint as usize, closes_on_exec);
            if let wakeset_fd::Verdict::Done(result) = verdict {
                return returned(result) as c_int;
            }
        }
        // SAFETY: the caller's contract.
        let result = unsafe { real::fcntl(fd, command, argument) };
        if result >= 0 && descriptor::is_hidden(fd) {
            // One of ours has got the number since the look.
            return fail(libc::EBADF) as c_int;
        }
        after_fcntl(fd, command, argument as usize, result);
        result
    })
}

/// ioctl(2), of which `FIONBIO` is about eventfds. The third argument as for fcntl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
    if descriptor::is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    // SAFETY: the caller's contract.
    let result = unsafe { libc::ioctl(fd, request as _, argument) };
    // SAFETY: the kernel has just answered.
    unsafe { after_ioctl(fd, request as u32, argument as usize, result) };
    result
}

/// Leaves an eventfd or a set to the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ws_release(fd: c_int) -> c_int {
    returned_unit(migrate::release(fd))
}

/// Leaves to the kernel what a new program inherits.
#[unsafe(no_mangle)]
pub extern "C" fn ws_release_inherited() {
    descriptor::before_exec(Stat::MigratedExec);
}
