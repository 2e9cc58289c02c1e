//! What happens to descriptors as such: close, duplication, inheritance, passing.

use crate::calls::duplicate;
use crate::migrate;
use crate::objects::counter::FdCounter;
use crate::objects::pipe::FdPipe;
use crate::objects::timer::FdTimer;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::births::{self, Taking};
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step_lock;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::sys::{forked, vforked};
use crate::table::lifecycle;
use crate::table::object::{Host, Object};
use crate::table::slot;
use crate::table::{self, Entry, SlotHead};
use crate::table::{away, inherited};
use core::ffi::{c_int, c_uint};
use libc::{cmsghdr, msghdr};
use wakeset::mutated;

/// Whether a number is the kernel's, or closed, and nothing is to be done for what the program does
/// with it.
#[inline(always)]
pub fn is_kernels(fd: c_int) -> bool {
    table::is_vacant(fd)
}

/// close(2) as far as it concerns in-process objects: forgets the object, so that the kernel may
/// close the number.
pub fn close(fd: c_int) -> Verdict<()> {
    away::close(fd);
    match table::peek(fd) {
        Entry::Kernel => {
            if lifecycle::has_closes() && !is_foreign() {
                lifecycle::before_close(fd);
            }
            inherited::forget(fd);
            if births::are_under_way() && is_born(fd) {
                return Done(Err(Errno::EBADF));
            }
            return Kernel;
        }
        // To the program the number is closed.
        Entry::Doorbell => return Done(Err(Errno::EBADF)),
        // A number of the child's own table. Nothing can be moved by it: it may be another file
        // here.
        _ if is_foreign() => return Kernel,
        _ => {}
    }
    forget(fd)
}

/// Whether a number that is not hidden is one of those that are being made, and has been by now.
#[cold]
fn is_born(fd: c_int) -> bool {
    if is_foreign() {
        return false;
    }
    births::wait();
    is_hidden_now(fd)
}

/// Ends the in-process object of a number that is about to be closed, or closes a number of an
/// object that goes on under another.
pub(super) fn forget(fd: c_int) -> Verdict<()> {
    let is_childs = vforked::may_exist() || forked::may_have(fd);
    if is_childs && !mutated!("closed_beside_child") {
        // A child has the descriptor, too, so it is the kernel's to say when the object ends.
        migrate::closing(fd, Stat::Closed);
    }
    let _guard = SignalGuard::enter();
    loop {
        let object = match table::get(fd) {
            Entry::Object(object) => object,
            Entry::Kernel => {
                lifecycle::before_close(fd);
                return Kernel;
            }
            Entry::Doorbell => return Kernel,
        };
        let verdict = if object.has_several() {
            duplicate::close(fd, object)
        } else if let Some(pipe) = object.downcast::<FdPipe>() {
            pipe.close(fd)
        } else {
            end_only(fd, object);
            Some(Kernel)
        };
        if let Some(verdict) = verdict {
            return verdict;
        }
    }
}

/// [`forget`] of an object with one number that is no pipe.
fn end_only(fd: c_int, object: &'static SlotHead) {
    // Without calls by address, which the processor cannot foresee after a system call.
    if let Some(counter) = object.downcast::<FdCounter>() {
        end(fd, counter);
    } else if let Some(timer) = object.downcast::<FdTimer>() {
        end(fd, timer);
    } else if let Some(set) = object.downcast::<FdSet>() {
        end(fd, set);
    } else {
        end(fd, object.object());
    }
}

/// [`forget`] of an object that the number has just been seen to stand for.
fn end<O: Object + ?Sized>(fd: c_int, object: &'static O) {
    // Vacant first: from here on calls with this number go to the kernel object, which is closed
    // next.
    if !table::vacate(fd, object.head()) {
        return;
    }
    count(Stat::Closed, 1);
    step_lock!(Locked, &table::CLOSES);
    let ended = slot::end(fd, object);
    step_lock!(Unlocked, &table::CLOSES);
    if !ended {
        // It goes on under a number that dup(2) made beside us. A thread that found the vacant
        // entry meanwhile, and whose call is made before the close, makes it on the kernel object,
        // which was empty then: both are one again. No migration waits for that, because the object
        // has a number.
        migrate::object(object.head(), Stat::MigratedDuplicate);
        slot::end_use_guarded(object);
    }
}

/// Before the kernel closes a number for a request of an io_uring, if it comes to that: the object
/// goes into the kernel, and calls that sleep in it go on with its file.
pub fn before_kernel_closes(fd: c_int) {
    if !is_foreign() {
        migrate::closing(fd, Stat::MigratedIoRing);
    }
}

/// close_range(2) as far as it concerns in-process objects.
///
/// `Done` when it had to go around descriptors of ours that the program does not know, or numbers
/// that it has closed already.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Verdict<()> {
    match go_around(first, last, flags) {
        // What has been made meanwhile may be in there.
        Kernel if births::are_under_way() && !is_foreign() => {
            births::wait();
            go_around(first, last, flags)
        }
        verdict => verdict,
    }
}

fn go_around(first: c_uint, last: c_uint, flags: c_int) -> Verdict<()> {
    const UNSHARE: c_int = 2;
    const CLOEXEC: c_int = 4;
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Kernel;
    }
    if flags & UNSHARE != 0 {
        // This thread gets a descriptor table of its own: numbers no longer mean one thing.
        migrate::everything_for_good(Stat::MigratedUnmodelled);
        return Kernel;
    }
    if flags & CLOEXEC != 0 || is_foreign() {
        return Kernel;
    }
    // Looked at for each number anew: a close may hide a file above all that there were.
    let ours_end = || table::numbers().end.max(lifecycle::numbers_end());
    let begin = c_int::try_from(first).unwrap_or(c_int::MAX);
    let end = c_int::try_from(last).unwrap_or(c_int::MAX).saturating_add(1);
    let mut next = first;
    let mut around = false;
    for fd in (begin..end).take_while(|fd| *fd < ours_end()) {
        if inherited::forget(fd) {
            lifecycle::before_close(fd);
            continue;
        }
        // One of several numbers has been closed with that, and may be another thread's by now.
        let is_closed = matches!(forget(fd), Done(_));
        if is_closed || matches!(table::get(fd), Entry::Doorbell) {
            around = true;
            let fd = fd as c_uint;
            if fd > next
                && let Err(error) = close_gap(next, fd - 1)
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
    Done(close_gap(next, last))
}

/// Closes numbers of which none was ours when they were looked at.
fn close_gap(first: c_uint, last: c_uint) -> Result<(), Errno> {
    let close = || sys::raw!(close_range, first, last, 0).map(drop);
    {
        let _taking = Taking::begin();
        let begin = c_int::try_from(first).unwrap_or(c_int::MAX);
        let end = c_int::try_from(last).unwrap_or(c_int::MAX).min(table::numbers().end);
        if !(begin..=end).any(is_hidden_now) {
            return close();
        }
    }
    // Something has been hidden there since.
    go_around(first, last, 0).or_kernel(close)
}

/// Whether it is a set that can never migrate.
pub(super) fn is_fixed_set(entry: Entry) -> bool {
    match entry {
        Entry::Object(object) => object.object().as_host().is_some_and(Host::is_fixed),
        Entry::Kernel | Entry::Doorbell => false,
    }
}

/// Before an exec: migrates what the new program inherits.
pub fn before_exec(reason: Stat) {
    before_new_program(reason, |_| false);
}

/// Before an exec or a spawn: migrates what the new program inherits, or is `given` all the same.
pub fn before_new_program(reason: Stat, given: impl Fn(c_int) -> bool) {
    if is_foreign() && !vforked::is_child() {
        // The numbers of a vfork(2) child are not ours; everything moved before it began.
        return;
    }
    for fd in table::numbers() {
        if table::may_be_here(fd) && (given(fd) || stays_open(fd)) {
            migrate::fd(fd, reason);
        }
    }
}

/// Whether exec leaves a number open. The flags are those of the caller's table, also if that is a
/// vfork(2) child's.
fn stays_open(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Before sendmsg(2): migrates what it passes to another process (`SCM_RIGHTS`).
///
/// # Safety
/// `message` is null or as for sendmsg(2).
pub unsafe fn before_sendmsg(message: *const msghdr) {
    // SAFETY: the caller's contract.
    unsafe {
        each_passed(message, |fd| _ = migrate::fd_for(fd, Stat::MigratedPassedOver, c"sendmsg"))
    };
}

/// Calls `f` with each number that a message passes on or has brought (`SCM_RIGHTS`).
///
/// # Safety
/// `message` is null or as for sendmsg(2), or as recvmsg(2) has left it.
pub unsafe fn each_passed(message: *const msghdr, f: impl Fn(c_int)) {
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
        let Some(head) =
            (unsafe { user::load(control.wrapping_byte_add(offset).cast::<cmsghdr>()) })
        else {
            return;
        };
        let len = head.cmsg_len;
        if len < size_of::<cmsghdr>() || len > message.msg_controllen - offset {
            return;
        }
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            for i in 0..(len.saturating_sub(head_len)) / size_of::<c_int>() {
                let place =
                    control.wrapping_byte_add(offset + head_len).cast::<c_int>().wrapping_add(i);
                // SAFETY: any bits are a number.
                let Some(fd) = (unsafe { user::load(place) }) else { return };
                f(fd);
            }
        }
        offset += align(len);
    }
}

/// Whether a number is a doorbell of ours, which the program must take for closed.
pub fn is_hidden(fd: c_int) -> bool {
    is_hidden_now(fd) || births::are_under_way() && is_born(fd)
}

/// [`is_hidden`] of a number that is not just being made.
pub(super) fn is_hidden_now(fd: c_int) -> bool {
    matches!(table::peek(fd), Entry::Doorbell)
}

/// Before a call that changes what all descriptors of an object have in common: what a vfork(2) or
/// forked child changes is the kernel's first.
#[inline]
pub fn before_change(fd: c_int) {
    if vforked::may_exist() || forked::is_child() {
        let _ = table::get(fd);
    }
}

/// Whether any number may stand for an object of ours.
pub fn any() -> bool {
    !table::numbers().is_empty()
}

/// Whether a number stands for an in-process object.
pub fn is_in_process(fd: c_int) -> bool {
    table::get(fd).is_object()
}
