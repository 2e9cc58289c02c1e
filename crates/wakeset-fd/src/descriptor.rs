//! What happens to descriptors as such: close, duplication, inheritance, passing.

use crate::bell;
use crate::count::count;
use crate::escape;
use crate::section::Section;
use crate::stats::Stat;
use crate::steps::step_lock;
use crate::sys::{self, Errno};
use crate::table::{self, Entry};
use crate::user;
use crate::verdict::Verdict::{self, Done, Kernel};
use core::ffi::{c_int, c_uint};
use core::ptr;
use libc::{cmsghdr, msghdr};
use wakeset::mutated;

/// close(2) as far as it concerns in-process objects: forgets the object, so that the kernel may close the number.
pub fn close(fd: c_int) -> Verdict<()> {
    match table::get(fd) {
        Entry::Kernel => {
            if crate::polls::any() && !crate::fork::is_foreign() {
                crate::polls::before_close(fd);
            }
            return Kernel;
        }
        // To the program the number is closed.
        Entry::Bell => return Done(Err(Errno::EBADF)),
        // A number of the child's own table. Nothing can be moved by it: it may be another file here.
        _ if crate::fork::is_foreign() => return Kernel,
        _ => {}
    }
    forget(fd);
    Kernel
}

/// Ends the in-process object of a number that is about to be closed.
fn forget(fd: c_int) {
    let _section = Section::enter();
    let entry = table::get(fd);
    let slot = match entry {
        Entry::Counter(slot) => ptr::from_ref(slot).addr(),
        Entry::Timer(slot) => ptr::from_ref(slot).addr(),
        Entry::Set(slot) => ptr::from_ref(slot).addr(),
        Entry::Pipe(end) => {
            // What the other end is told of it is the kernel's to say.
            end.set_closing();
            if !mutated!("pipe_closed_in_secret") {
                escape::fd(fd, Stat::Closed);
            }
            return;
        }
        Entry::Kernel => {
            crate::polls::before_close(fd);
            return;
        }
        Entry::Bell => return,
    };
    // Vacant first: from here on calls with this number go to the kernel object, which is closed next.
    if !table::vacate(fd, slot) {
        return;
    }
    count(Stat::Closed, 1);
    step_lock!(Locked, &table::CLOSES);
    match entry {
        Entry::Counter(slot) => table::end(slot),
        Entry::Timer(slot) => table::end(slot),
        Entry::Set(slot) => table::end(slot),
        Entry::Pipe(_) | Entry::Kernel | Entry::Bell => {}
    }
    step_lock!(Unlocked, &table::CLOSES);
}

/// close_range(2) as far as it concerns in-process objects.
///
/// `Done` when it had to go around descriptors of ours that the program does not know.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Verdict<()> {
    const UNSHARE: c_int = 2;
    const CLOEXEC: c_int = 4;
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Kernel;
    }
    if flags & UNSHARE != 0 {
        // This thread gets a descriptor table of its own: numbers no longer mean one thing.
        escape::everything_for_good(Stat::MovedUnmodelled);
        return Kernel;
    }
    if flags & CLOEXEC != 0 || crate::fork::is_foreign() {
        return Kernel;
    }
    let ours = 0..table::numbers().end.max(crate::polls::numbers_end());
    let begin = c_int::try_from(first).unwrap_or(c_int::MAX).max(ours.start);
    let end = c_int::try_from(last).unwrap_or(c_int::MAX).saturating_add(1).min(ours.end);
    let mut next = first;
    let mut around = false;
    for fd in begin..end {
        forget(fd);
        if matches!(table::get(fd), Entry::Bell) {
            around = true;
            let fd = fd as c_uint;
            if fd > next
                && let Err(error) = sys::raw!(close_range, next, fd - 1, flags)
            {
                return Done(Err(error));
            }
            next = fd + 1;
        }
    }
    if !around {
        return Kernel;
    }
    if next > last || next == 0 {
        return Done(Ok(()));
    }
    Done(sys::raw!(close_range, next, last, flags).map(drop))
}

/// Before a descriptor is duplicated: a description with two descriptors lives in the kernel.
pub fn before_dup(fd: c_int) -> Verdict<c_int> {
    match table::get(fd) {
        Entry::Bell => return Done(Err(Errno::EBADF)),
        // The other number would tell of its kernel half only.
        Entry::Set(set) if set.is_fixed() => return Done(Err(Errno::EBUSY)),
        Entry::Kernel => return Kernel,
        _ if crate::fork::is_foreign() => return Kernel,
        _ => {}
    }
    escape::fd(fd, Stat::MovedUnmodelled);
    Kernel
}

/// Before dup2(2) or dup3(2) from `old` to `new` with `flags`: the object at `new` is closed by it.
pub fn before_dup_to(old: c_int, new: c_int, flags: c_int) -> Verdict<c_int> {
    if flags & !libc::O_CLOEXEC != 0 {
        // EINVAL, before anything is looked up.
        return Kernel;
    }
    if matches!(table::get(old), Entry::Bell) {
        return Done(Err(Errno::EBADF));
    }
    let valid = old != new && sys::fcntl(old, libc::F_GETFD, 0).is_ok();
    if !valid {
        // An error, or nothing to do.
        return Kernel;
    }
    if matches!(table::get(old), Entry::Set(set) if set.is_fixed()) {
        return Done(Err(Errno::EBUSY));
    }
    if crate::fork::is_foreign() {
        // As for close(2).
        return Kernel;
    }
    escape::fd(old, Stat::MovedUnmodelled);
    bell::make_way(old, new);
    crate::polls::before_close(new);
    if matches!(table::get(new), Entry::Set(set) if set.is_fixed()) {
        forget(new);
    }
    // Into the kernel, which closes it if it comes to that, and not if the call fails.
    escape::fd(new, Stat::MovedUnmodelled);
    Kernel
}

/// Before an exec: moves what the new program inherits.
pub fn before_exec(reason: Stat) {
    before_new_program(reason, |_| false);
}

/// Before an exec or a spawn: moves what the new program inherits, or is `given` all the same.
pub fn before_new_program(reason: Stat, given: impl Fn(c_int) -> bool) {
    if crate::fork::is_foreign() {
        // The numbers of a vfork(2) child are not ours; everything moved before it began.
        return;
    }
    for fd in table::numbers() {
        let inherited = || sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0);
        if table::get(fd).is_object() && (given(fd) || inherited()) {
            escape::fd(fd, reason);
        }
    }
}

/// Before sendmsg(2): moves what it passes to another process (`SCM_RIGHTS`).
///
/// # Safety
/// `message` is null or as for sendmsg(2).
pub unsafe fn before_sendmsg(message: *const msghdr) {
    // SAFETY: any bits are a msghdr.
    let Some(message) = (unsafe { user::load(message) }) else { return };
    let control = message.msg_control.cast_const();
    if control.is_null() {
        return;
    }
    let align = |len: usize| len.next_multiple_of(size_of::<usize>());
    let head_len = align(size_of::<cmsghdr>());
    let mut offset = 0;
    while message.msg_controllen.saturating_sub(offset) >= size_of::<cmsghdr>() {
        // SAFETY: any bits are a cmsghdr.
        let Some(head) = (unsafe { user::load(control.wrapping_byte_add(offset).cast::<cmsghdr>()) }) else { return };
        let len = head.cmsg_len;
        if len < size_of::<cmsghdr>() || len > message.msg_controllen - offset {
            return;
        }
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            for i in 0..(len.saturating_sub(head_len)) / size_of::<c_int>() {
                let place = control.wrapping_byte_add(offset + head_len).cast::<c_int>().wrapping_add(i);
                // SAFETY: any bits are a number.
                let Some(fd) = (unsafe { user::load(place) }) else { return };
                escape::fd(fd, Stat::MovedPassedOver);
            }
        }
        offset += align(len);
    }
}

/// Whether a number is a doorbell of ours, which the program must take for closed.
pub fn is_hidden(fd: c_int) -> bool {
    matches!(table::get(fd), Entry::Bell)
}

/// Whether any number may stand for an object of ours.
pub fn any() -> bool {
    !table::numbers().is_empty()
}

/// Whether a number stands for an in-process object.
pub fn is_in_process(fd: c_int) -> bool {
    table::get(fd).is_object()
}
