//! What becomes of what an entry names, before the kernel gets the entry.

use core::ffi::{CStr, c_int};
use core::ptr;
use wakeset_fd::program_rings::{Entry, Named, late, note_waiting};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, listeners, migrate, user};

/// What is submitted cannot be seen, or not all of it.
#[cold]
pub(super) fn leave() {
    migrate::everything_for_good(Stat::MigratedIoRing);
}

/// What two calls do before the real one, whose hooks know this file.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Hooks {
    /// open(2) of a path.
    pub(in super::super) open: fn(usize),
    /// close(2).
    pub(in super::super) close: fn(c_int),
}

/// Whether an entry may go to the kernel as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// It may.
    Yes,
    /// It names a number of ours, which to the program is closed.
    Hidden,
}

/// What an entry names migrates. If it is looked up `late`, an object that gets the number later is
/// the kernel's as well.
pub(super) fn migrate_named(entry: &Entry, is_late: bool, hooks: Hooks) -> Passed {
    let named = entry.names();
    let numbers = match named {
        Named::Nothing => return Passed::Yes,
        Named::Unknown => {
            leave();
            return Passed::Yes;
        }
        Named::Path(path) => {
            (hooks.open)(path as usize);
            return Passed::Yes;
        }
        Named::List(address, count) => {
            // SAFETY: numbers, or the kernel will say EFAULT.
            unsafe { migrate_each(address as usize, count) };
            return Passed::Yes;
        }
        Named::Files(numbers) => numbers,
        Named::File(number) | Named::Waited(number) | Named::Message(number, _) => [number, -1],
        Named::Closed(number) => [number, -1],
    };
    if numbers.iter().any(|number| descriptor::is_hidden(*number)) {
        return Passed::Hidden;
    }
    for number in numbers {
        if is_late && !late::note(number) {
            leave();
        }
        if listeners::is_known_listener(number) {
            note_waiting();
        }
        if matches!(named, Named::Closed(_)) {
            descriptor::before_kernel_closes(number);
        }
        migrate_number(number, Stat::MigratedIoRing, c"io_uring_enter");
    }
    match named {
        Named::Waited(number) if number >= 0 => note_waiting(),
        Named::Message(_, message) => {
            let message = ptr::with_exposed_provenance(message as usize);
            // SAFETY: a message, or the kernel will say EFAULT.
            unsafe { descriptor::before_sendmsg(message) };
        }
        // What is known of the number ends.
        Named::Closed(number) => (hooks.close)(number),
        _ => {}
    }
    Passed::Yes
}

/// Migrates the object of a number.
pub(super) fn migrate_number(number: c_int, reason: Stat, call: &'static CStr) {
    migrate::fd_for(number, reason, call);
}

/// Migrates the objects of an array of numbers.
///
/// # Safety
/// There are so many at this address, or the kernel will say EFAULT.
pub(super) unsafe fn migrate_each(address: usize, count: u32) {
    for place in 0..count as usize {
        let place = ptr::with_exposed_provenance::<c_int>(address + place * size_of::<c_int>());
        // SAFETY: any bits are a number.
        let Some(number) = (unsafe { user::load(place) }) else { return };
        migrate_number(number, Stat::MigratedIoRing, c"io_uring_enter");
    }
}
