//! How sets begin: new ones, and kernel epolls that are taken for one.

use crate::migrate;
use crate::set::export::export_held;
use crate::set::{FdSet, doorbell, polls};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno, essential};
use crate::table::gate::{self, Gate};
use crate::table::slot::slot_for;
use crate::table::{self, process};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::EPOLL_CTL_DEL;

/// epoll_create1(2).
///
/// # Errors
/// As epoll_create1(2): EINVAL, EMFILE, ENFILE, ENOMEM.
pub fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
    create(|| sys::epoll_create1(flags))
}

/// epoll_create(2), which a filter may know alone.
///
/// # Errors
/// As epoll_create(2): EINVAL, EMFILE, ENFILE, ENOMEM.
pub fn epoll_create(size: c_int) -> Result<c_int, Errno> {
    create(|| sys::epoll_create(size))
}

fn create(call: impl FnOnce() -> Result<c_int, Errno>) -> Result<c_int, Errno> {
    let may_be_ours = process::may_be_ours() && essential::for_sets();
    let gate = Gate::now();
    let fd = call()?;
    migrate::number_is_new(fd);
    if !may_be_ours || !gate.is_open || !table::has_room(fd) {
        return Ok(fd);
    }
    let _guard = SignalGuard::enter();
    if begin(fd, false) {
        count(Stat::SetsMade, 1);
        migrate::recheck_gate(fd, gate);
    }
    Ok(fd)
}

/// Makes a set of an epoll that was made by other means, as [`epoll_create1`] does of its own: one
/// that has just been made, has no watch, and has not been forked or duplicated. It is to be closed
/// by [`close`](crate::close). Where the process leaves its objects to the kernel it stays a kernel
/// epoll, which every call here takes as well.
///
/// # Errors
/// EBADF, EINVAL: it is no epoll. EMFILE, ENFILE, ENOMEM: that cannot be found out.
pub fn adopt(epfd: c_int) -> Result<(), Errno> {
    check_epoll(epfd)?;
    create(|| Ok(epfd)).map(drop)
}

/// Puts a set into the table under the number of a kernel epoll, which holds watches of the
/// program's or does not; `false`: there is no memory.
pub(super) fn begin(fd: c_int, holds_watches: bool) -> bool {
    let Some(slot) = slot_for::<FdSet>(fd) else { return false };
    slot.set.reopen();
    // SAFETY: nobody uses the slot.
    unsafe { slot.set.end_ring() };
    slot.state.begin(holds_watches);
    slot.rotation.clear();
    if holds_watches {
        slot.rotation.note_unknown();
    }
    polls::begin_without(slot);
    slot.round_robin.store(0, Ordering::Relaxed);
    slot.busy_poll.store(0, Ordering::Relaxed);
    doorbell::begin_without(slot);
    table::put_object(fd, slot);
    true
}

/// Takes an epoll of the kernel's for a set that is to have a source of the program's own. Waits
/// may be asleep in it, and sets may watch its number: it is handed out. The caller holds the
/// migrations lock, and checks whether there is a doorbell.
///
/// # Errors
/// EBADF, EINVAL: it is no epoll. ENOMEM.
pub(crate) fn adopt_held(fd: c_int) -> Result<(), Errno> {
    check_epoll(fd)?;
    if !table::has_room(fd) || !gate::is_open() || !begin(fd, true) {
        return Err(Errno::ENOMEM);
    }
    if let Some(set) = table::find::<FdSet>(fd) {
        set.state.fix();
        let _ = export_held(set);
    }
    count(Stat::SetsMade, 1);
    Ok(())
}

/// Whether the kernel has an epoll under this number.
///
/// # Errors
/// EBADF, EINVAL.
pub(crate) fn check_epoll(fd: c_int) -> Result<(), Errno> {
    sys::fcntl(fd, libc::F_GETFD, 0)?;
    // Something that can be watched and is not: then an epoll says ENOENT.
    let other = sys::eventfd(0, libc::EFD_CLOEXEC)?;
    let said = sys::epoll_ctl(fd, EPOLL_CTL_DEL, other, ptr::null());
    let _ = sys::close(other);
    match said {
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, epoll_event};

    /// Another thread may use the number before the set is under it. What the kernel then knows and
    /// we do not was never reported.
    #[test]
    fn a_watch_from_before_the_set_is_found_by_the_next_call_that_meets_it() {
        let ready = sys::eventfd(1, 0).unwrap();
        let event = |data| epoll_event { events: libc::EPOLLIN as u32, u64: data };
        for (op, says, reports) in [
            (EPOLL_CTL_ADD, Err(Errno::EEXIST), 1),
            (EPOLL_CTL_MOD, Ok(()), 2),
            (EPOLL_CTL_DEL, Ok(()), 0),
        ] {
            let fd = sys::epoll_create1(0).unwrap();
            sys::epoll_ctl(fd, EPOLL_CTL_ADD, ready, &event(1)).unwrap();
            assert!(begin(fd, false));
            // SAFETY: a valid event.
            assert_eq!(unsafe { crate::epoll_ctl(fd, op, ready, &event(2)) }, says);
            let mut found = [event(0); 2];
            // SAFETY: room for two.
            let n = unsafe { crate::epoll_wait(fd, found.as_mut_ptr(), 2, 0) }.unwrap();
            assert_eq!((n, { found[0].u64 }), (c_int::from(reports > 0), reports));
            crate::close(fd).unwrap();
        }
        crate::close(ready).unwrap();
    }
}
