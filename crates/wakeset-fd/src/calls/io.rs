//! read(2) and write(2) on a number, whatever object it stands for.

use crate::migrate;
use crate::objects::counter::{self, FdCounter};
use crate::objects::home;
use crate::objects::pipe::{self, FdPipe};
use crate::objects::timer::{self, FdTimer};
use crate::stats::Stat;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::table::{self, Bytes, Entry, away, left};
use core::ffi::c_int;

/// write(2) as far as it concerns in-process objects.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
#[inline]
pub unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Verdict<usize> {
    match table::get_for_bytes(fd) {
        Bytes::Entry(Entry::Kernel) => {
            left::count_write(fd);
            Kernel
        }
        // SAFETY: the same contract.
        Bytes::Entry(Entry::Object(_) | Entry::Doorbell) | Bytes::Away => unsafe {
            write_here(fd, buffer, len)
        },
    }
}

/// [`write()`] on a number of ours, apart from what most calls are about.
///
/// # Safety
/// As [`write()`].
#[inline(never)]
unsafe fn write_here(fd: c_int, buffer: *const u8, len: usize) -> Verdict<usize> {
    loop {
        // Until the operation is over.
        let (found, _held) = table::get_held_for_bytes(fd);
        let object = match found {
            Bytes::Entry(Entry::Object(object)) => object,
            Bytes::Entry(Entry::Doorbell) => return Done(Err(Errno::EBADF)),
            Bytes::Away => match home::write(fd, || sys::write(fd, buffer, len)) {
                None => continue,
                Some(verdict) => {
                    left::count_write(fd);
                    return verdict;
                }
            },
            Bytes::Entry(Entry::Kernel) => {
                left::count_write(fd);
                return Kernel;
            }
        };
        let verdict = if let Some(counter) = object.downcast::<FdCounter>() {
            if len < 8 {
                // EINVAL or EFAULT, whatever the state is: the kernel knows which comes first.
                return Kernel;
            }
            // SAFETY: the same contract.
            unsafe { counter::write(fd, counter, buffer, len) }
        } else if let Some(end) = object.downcast::<FdPipe>() {
            // SAFETY: the same contract.
            unsafe { pipe::write(fd, end, buffer, len, 0) }
        } else {
            // A timer and a set take no writes, as the kernel says.
            return Kernel;
        };
        if let Some(verdict) = verdict {
            if matches!(verdict, Kernel) {
                // What has migrated for this write, or during it.
                left::count_write(fd);
            }
            return verdict;
        }
    }
}

/// read(2) as far as it concerns in-process objects.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
#[inline]
pub unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Verdict<usize> {
    match table::get_for_bytes(fd) {
        Bytes::Entry(Entry::Kernel) => Kernel,
        // SAFETY: the same contract.
        Bytes::Entry(Entry::Object(_) | Entry::Doorbell) | Bytes::Away => unsafe {
            read_here(fd, buffer, len)
        },
    }
}

/// [`read()`] on a number of ours, apart from what most calls are about.
///
/// # Safety
/// As [`read()`].
#[inline(never)]
unsafe fn read_here(fd: c_int, buffer: *mut u8, len: usize) -> Verdict<usize> {
    loop {
        // Until the operation is over.
        let (found, _held) = table::get_held_for_bytes(fd);
        let object = match found {
            Bytes::Entry(Entry::Object(object)) => object,
            Bytes::Entry(Entry::Doorbell) => return Done(Err(Errno::EBADF)),
            Bytes::Entry(Entry::Kernel) => return Kernel,
            // SAFETY: the same contract.
            Bytes::Away => match unsafe { read_away(fd, buffer, len) } {
                None => continue,
                Some(verdict) => return verdict,
            },
        };
        let verdict = if let Some(end) = object.downcast::<FdPipe>() {
            // SAFETY: the same contract.
            unsafe { pipe::read(fd, end, buffer, len, true) }
        } else if len < 8 {
            // EINVAL or EFAULT, whatever the state is: the kernel knows which comes first.
            return Kernel;
        } else if let Some(counter) = object.downcast::<FdCounter>() {
            if !sys::is_plausible(buffer, len) {
                migrate::fd(fd, Stat::MigratedOddArgument);
                return Kernel;
            }
            // SAFETY: the same contract.
            unsafe { counter::read(fd, counter, buffer) }
        } else if let Some(timer) = object.downcast::<FdTimer>() {
            if !sys::is_plausible(buffer, len) {
                migrate::fd(fd, Stat::MigratedOddArgument);
                return Kernel;
            }
            // SAFETY: the same contract.
            unsafe { timer::read(fd, timer, buffer) }
        } else {
            return Kernel;
        };
        if let Some(verdict) = verdict {
            return verdict;
        }
    }
}

/// [`read()`] on a number of what may come home. `None`: look it up again.
///
/// # Safety
/// As [`read()`].
unsafe fn read_away(fd: c_int, buffer: *mut u8, len: usize) -> Option<Verdict<usize>> {
    if away::kind(fd) == Some(table::TIMER) && len >= 8 && sys::is_plausible(buffer, len) {
        // SAFETY: the same contract.
        return unsafe { timer::home::read(fd, buffer, len) };
    }
    home::read(fd, || sys::read(fd, buffer, len))
}

/// Takes note of a change of `O_NONBLOCK` that the kernel object has made: fcntl(`F_SETFL`),
/// ioctl(`FIONBIO`).
pub fn note_nonblocking(fd: c_int, nonblocking: bool) {
    loop {
        match table::get_held_for_bytes(fd) {
            (Bytes::Entry(Entry::Object(object)), _held) => {
                object.object().set_nonblocking(nonblocking);
            }
            // What comes home from now on finds the change in the kernel.
            (Bytes::Away, _) if !away::is_in_kernel(fd) => {
                migrate::wait_for_migrations();
                continue;
            }
            _ => {}
        }
        return;
    }
}
