//! Watches in the kernel half of a set: how it gets the first, and what changes with it.

use crate::migrate;
use crate::set::{FdSet, doorbell, first_listener, polls};
use crate::stats::Stat;
use crate::sys::verdict::Verdict::{self, Done};
use crate::sys::{self, Errno};
use crate::table::{self, Entry};
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};
use wakeset::{Event, Events, Source};

/// epoll_ctl(2) on a descriptor of the kernel's. `None`: the set has migrated, look again.
pub(super) fn change_kernel_watch(
    set: &FdSet,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
    asked: Event,
) -> Option<Verdict<()>> {
    if let Some(result) = polls::epoll_ctl(set, op, fd, asked) {
        return Some(Done(result));
    }
    if op == EPOLL_CTL_ADD {
        set.state.note_not_only_polls();
    }
    if asked.events.intersects(Events::ET | Events::ONESHOT) && !set.state.has_asked_edges() {
        note_edges(set);
    }
    if op == EPOLL_CTL_ADD && !set.state.has_kernel() {
        return add_first(set, fd, event, asked);
    }
    if matches!(table::get(fd), Entry::Doorbell) {
        // The number was closed, and a doorbell got it while this thread waited for the lock.
        return None;
    }
    let result = set.rotation.epoll_ctl(set, op, fd, event, asked);
    if let Ok(is_first_listener) = result {
        note_known_watch(set);
        if is_first_listener {
            first_listener::tell_sleepers(set);
        }
        if set.polls.are_active() && !polls::are_for_me(set) {
            // The set has got polls while we were at it, and takes them for all it watches.
            polls::give_up(set);
        }
    }
    Some(Done(result.map(drop)))
}

/// The first edges in the kernel half. Not while a migration is taking reports out of it.
#[cold]
fn note_edges(set: &FdSet) {
    let _migrating = migrate::hold_migrations();
    set.state.note_kernel_edges();
}

/// The first kernel watch. A set around this one knows only its in-process half, so it must learn
/// of the other from the kernel; and no set may be put around it meanwhile.
#[cold]
fn add_first(
    set: &FdSet,
    fd: c_int,
    event: *const epoll_event,
    asked: Event,
) -> Option<Verdict<()>> {
    let migrating = migrate::hold_migrations();
    if set.state.has_kernel() {
        // Meanwhile another thread has added one; an io_uring may have it, in which this one may be
        // watched as well.
        return None;
    }
    if set.set.wait_queue().has_watches() {
        if matches!(table::get(fd), Entry::Doorbell) {
            return None;
        }
        if let Err(error) = would_take(set, fd, event) {
            return Some(Done(Err(error)));
        }
        drop(migrating);
        set.migrate(Stat::MigratedNestedKernel);
        return None;
    }
    if !set.set.is_empty() {
        match doorbell::install_held(set) {
            Ok(true) => {}
            // It cannot migrate: its waits look again and again.
            Ok(false) if set.state.is_fixed() => {}
            Ok(false) => {
                drop(migrating);
                set.migrate(Stat::MigratedLimit);
                return None;
            }
            // What the program asks for is refused as well, if it has no other error.
            Err(refused) => return Some(Done(would_take(set, fd, event).and(Err(refused)))),
        }
    }
    if matches!(table::get(fd), Entry::Doorbell) {
        // The number was closed, and the doorbell has just got it.
        return None;
    }
    let result = set.rotation.epoll_ctl(set, EPOLL_CTL_ADD, fd, event, asked);
    if result.is_ok() {
        set.note_kernel_watch();
    }
    drop(migrating);
    if result == Ok(true) {
        first_listener::tell_sleepers(set);
    }
    if result == Err(Errno::EEXIST) {
        note_known_watch(set);
    }
    Some(Done(result.map(drop)))
}

/// Whether the kernel would take the watch, for what is not to be done for nothing.
fn would_take(set: &FdSet, fd: c_int, event: *const epoll_event) -> Result<(), Errno> {
    let taken = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, event);
    if taken.is_ok() {
        let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, fd, ptr::null());
    }
    taken
}

/// The kernel has shown that its half has a watch. If we know of none, another thread has added it
/// by the number alone, while the set was being made: nothing was prepared for a kernel half then,
/// so the kernel gets the set.
fn note_known_watch(set: &FdSet) {
    if set.state.has_kernel() {
        return;
    }
    let _migrating = migrate::hold_migrations();
    // Nor is it one whose add has not quite come back.
    if set.state.has_kernel() {
        return;
    }
    match set.state.is_fixed() {
        true => set.note_kernel_watch(),
        false => set.migrate_held(Stat::MigratedUnmodelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;
    use crate::table::hidden;
    use core::time::Duration;
    use libc::{EFD_CLOEXEC, EPOLL_CTL_MOD, EPOLLET, EPOLLIN};
    extern crate std;

    fn hide_one() -> c_int {
        hidden::hide(sys::eventfd(0, EFD_CLOEXEC).unwrap())
    }

    fn disclose(number: c_int) {
        assert!(hidden::close(number));
    }

    /// The kernel was asked about the doorbell, and found no watch of it: ENOENT.
    #[test]
    fn a_number_stays_closed_that_a_doorbell_gets_while_its_change_waits() {
        let _alone = alone();
        let set = crate::epoll_create1(0).unwrap();
        // The number that the next one will get.
        let closed = hide_one();
        disclose(closed);
        let migrating = migrate::hold_migrations();
        let change = std::thread::spawn(move || {
            let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: 0 };
            // SAFETY: the event is there.
            unsafe { crate::epoll_ctl(set, EPOLL_CTL_MOD, closed, &raw const event) }
        });
        // By then it waits for the lock, under which its set learns of edges.
        std::thread::sleep(Duration::from_millis(100));
        let doorbell = hide_one();
        drop(migrating);
        let changed = change.join().unwrap();
        disclose(doorbell);
        crate::close(set).unwrap();
        assert_eq!((doorbell, changed), (closed, Err(Errno::EBADF)));
    }
}
