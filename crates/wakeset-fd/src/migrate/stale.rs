//! Objects whose number was closed by a call that was not seen: a system call instruction, or one
//! that libc makes inside another function.
//!
//! Their entries stay in the table and would answer for the next file under the number. They are
//! found at two places.
//!
//! - **When the kernel gives a number out.** It gives out none that is open, and a close that is
//!   seen has removed the entry before the kernel closes. So an object under a number that a call
//!   has just returned is there no more: it ends, and of a pair the other end hears that, as from
//!   a close. This costs one look at the table in each call that makes a descriptor.
//! - **When an object migrates** that has something for its number, a state or a watch: what the
//!   number stands for is asked for its type. An object that finds another file there ends, and
//!   nothing of it is written. One that has nothing ends without a question, like one that nobody
//!   used.

use super::{fd_held, hold_migrations};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::forked;
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno, notice};
use crate::table::duplicates::{self, Loss};
use crate::table::{self, Entry, SlotHead, away, inherited, left, slot};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset::mutated;

/// The kernel has just given out a number, to a call that was not a close before. Negative numbers
/// are errors, and nothing.
#[inline]
pub fn number_is_new(fd: c_int) {
    inherited::forget(fd);
    away::forget(fd);
    left::forget(fd);
    forked::forget_number(fd);
    if table::peek(fd).is_object() && !mutated!("new_numbers_are_not_looked_at") {
        end_stale(fd);
    }
}

#[cold]
fn end_stale(fd: c_int) {
    // A vfork(2) child has numbers of its own.
    if is_foreign() {
        return;
    }
    let _guard = SignalGuard::enter();
    let Entry::Object(head) = table::get(fd) else { return };
    if head.has_several() || head.object().begin_close() {
        let _migrating = hold_migrations();
        end_stale_held(fd);
    } else {
        end_only_number(fd, head);
    }
}

/// Ends what the table has under a number that the kernel has just given out, for a caller that
/// holds the migrations lock.
fn end_stale_held(fd: c_int) {
    let Entry::Object(head) = table::get(fd) else { return };
    if head.has_several() {
        // The object goes on under the others.
        match duplicates::lose_held(fd, head, || true) {
            Loss::Stale => return,
            Loss::GoesOn => {}
            Loss::Last => {
                count(Stat::Closed, 1);
                slot::end_last(head.object());
            }
        }
        note(fd);
    } else if head.object().begin_close() {
        // One end of a pair: the other one is the kernel's from now on, which has closed this one.
        if table::stands_for(fd, head) {
            head.links.set_lost(true);
            note(fd);
            fd_held(fd, Stat::Closed);
        }
    } else {
        end_only_number(fd, head);
    }
}

fn end_only_number(fd: c_int, head: &'static SlotHead) {
    if table::vacate(fd, head) {
        note(fd);
        count(Stat::Closed, 1);
        if !slot::end(fd, head.object()) {
            slot::end_use_guarded(head.object());
        }
    }
}

/// Marks an object that migrates, if its number stands for something else by now. Before anything
/// of the object goes to the number, or any watch of it; the caller holds the migrations lock.
/// `file_type` is [`Object::file_type`](crate::table::object::Object::file_type).
pub(crate) fn mark_if_lost(head: &SlotHead, file_type: u32) {
    if head.links.ask_once() && !mutated!("lost_number_is_written") && is_lost(head, file_type) {
        head.links.set_lost(true);
        note(head.fd());
    }
}

/// Counts an object that has lost its number, and says so the first time.
#[cold]
fn note(fd: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);
    count(Stat::ClosedUnseen, 1);
    if !SAID.swap(true, Ordering::Relaxed) {
        notice::say(format_args!(
            "descriptor {fd} was closed by a call that Wakeset did not see: its object has ended"
        ));
    }
}

/// Whether a number stands for something else by now, and that was not noticed yet. Another file of
/// the same type is not noticed.
fn is_lost(head: &SlotHead, file_type: u32) -> bool {
    !head.is_lost() && is_another(head.fd(), file_type)
}

/// Whether an object that migrates, and has or had several numbers, still has this one.
pub(crate) fn is_number_of(fd: c_int, head: &'static SlotHead) -> bool {
    table::stands_for(fd, head) && !is_another(fd, head.object().file_type())
}

/// Whether a number is closed, or that of a file of another type.
fn is_another(fd: c_int, file_type: u32) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    if let Err(error) = sys::raw!(fstat, fd, status.as_mut_ptr()) {
        return error == Errno::EBADF;
    }
    // SAFETY: the kernel has filled it in.
    let status = unsafe { status.assume_init() };
    status.st_mode & libc::S_IFMT != file_type
}

#[cfg(test)]
mod tests;
