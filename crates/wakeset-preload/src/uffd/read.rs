//! read(2) on a userfaultfd.

use super::groups::{USED, is_off, recognise};
use super::using::{Place, Using};
use crate::flags;
use crate::real::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use libc::{pollfd, size_t, ssize_t};
use wakeset_fd::count::count;
use wakeset_fd::interpose::fail;
use wakeset_fd::stats::Stat;
use wakeset_fd::{user, waits};
use wakeset_group::leader::{Waiter, Woken};

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;

/// The size of `struct uffd_msg`.
const MESSAGE: size_t = 32;

pub(super) fn errno() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// read(2) on a userfaultfd; `None` for another descriptor, or a call that is the kernel's.
///
/// # Safety
/// As read(2).
#[inline]
pub(crate) unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> Option<ssize_t> {
    if USED.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { read_in_group(&Using::begin(fd)?, buffer, len) }
}

unsafe fn read_in_group(using: &Using, buffer: *mut c_void, len: size_t) -> Option<ssize_t> {
    // SAFETY: the caller's contract.
    let call = || unsafe { real!(read: Read)(using.fd(), buffer, len) };
    let version = flags::version();
    if len < MESSAGE || using.is_nonblocking() {
        let got = call();
        after_read_without_turn(using, buffer, got);
        return Some(got);
    }
    loop {
        let waiter = Waiter::without_limit();
        let mut place = using.join(&waiter);
        loop {
            if is_off() {
                // The thread that switched it off may have looked at the queue before we were in.
                using.give_up(&waiter, place);
                return None;
            }
            if place != Place::Queued {
                break;
            }
            place = match waiter.sleep(None) {
                Woken::Heir | Woken::Out => using.take(&waiter),
                Woken::Interrupted | Woken::TimedOut => {
                    using.leave(&waiter);
                    return Some(fail(libc::EINTR));
                }
            };
        }
        if place == Place::Out {
            continue;
        }
        let got = call();
        let error = errno();
        using.finish(false);
        count(Stat::UffdWakes, usize::from(got > 0));
        note_messages(buffer, got);
        if got < 0 {
            let set_here = flags::version() != version;
            if error == libc::EAGAIN && (set_here || !using.ask_nonblocking()) {
                // It blocked when the call began, and in Linux that is what counts.
                wait_for_message(using.fd());
                continue;
            }
            if error == libc::EAGAIN {
                // It did not: another process, which has it too, has set the flag.
                flags::forget();
            }
            fail(error);
        }
        return Some(got);
    }
}

/// After a read that takes no turn, with so many bytes or an error.
fn after_read_without_turn(using: &Using, buffer: *const c_void, got: ssize_t) {
    let is_empty = got < 0 && errno() == libc::EAGAIN;
    if got > 0 || is_empty {
        note_messages(buffer, got);
        using.note_taken(is_empty);
    }
}

/// Notes what a read has brought. The message of a fork brings the child's userfaultfd, which is
/// one, too.
fn note_messages(buffer: *const c_void, got: ssize_t) {
    /// `UFFD_EVENT_FORK`.
    const FORK: u8 = 0x13;
    let messages = usize::try_from(got).unwrap_or(0) / MESSAGE;
    count(Stat::UffdMessages, messages);
    for i in 0..messages {
        let message = buffer.wrapping_byte_add(i * MESSAGE);
        // SAFETY: any bits are a message.
        let Some(words) = (unsafe { user::load(message.cast::<[u64; 2]>()) }) else { return };
        if words[0].to_ne_bytes()[0] == FORK {
            recognise(words[1] as c_int);
        }
    }
}

fn wait_for_message(fd: c_int) {
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, no limit, no mask.
    let _ = unsafe { waits::ppoll(&raw mut entry, 1, None, core::ptr::null()) };
}

/// After a read into `buffer` that is the kernel's in any case: readv(2).
pub(crate) fn after_read(fd: c_int, buffer: *const c_void, got: ssize_t) {
    if USED.load(Ordering::Acquire) != 0
        && let Some(using) = Using::begin(fd)
    {
        after_read_without_turn(&using, buffer, got);
    }
}
