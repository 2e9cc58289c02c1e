//! Hidden numbers that the program wants for itself.

use super::{cookie, lent};
use crate::migrate;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::sys;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step_lock, step_waited};
use crate::table::{self, gate, hidden, lifecycle};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLIN, epoll_event};
use wakeset::mutated;

/// Gives a number to the program, which is about to take it by dup2(2) of `old`: what is hidden
/// under it gets another.
pub(crate) fn make_way(old: c_int, fd: c_int) {
    if !matches!(table::get(fd), table::Entry::Doorbell) {
        return;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    if !matches!(table::get(fd), table::Entry::Doorbell) {
        return;
    }
    lent::wait_until_returned(fd);
    let Some(new) = hidden::duplicate(fd).or_else(|| sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).ok())
    else {
        // No number is left but this one, which is the program's: its set does without.
        for number in table::numbers() {
            if let Some(set) = table::find::<FdSet>(number)
                && set.doorbell.load(Ordering::SeqCst) == fd
            {
                migrate::fd_held(number, Stat::MovedLimit);
            }
        }
        lifecycle::renumber(fd, -1);
        table::forget_doorbell(fd);
        wait_for_wakers();
        replace(fd, old);
        return;
    };
    table::renumber_doorbell(fd, new);
    lifecycle::renumber(fd, new);
    for number in table::numbers() {
        if let Some(set) = table::find::<FdSet>(number)
            && set.doorbell.compare_exchange(fd, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            // The kernel knows the watch by (number, description): a new one before the old number
            // goes.
            let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, new, &raw const event);
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, fd, ptr::null());
        }
    }
    wait_for_wakers();
    replace(fd, old);
}

/// Puts the program's file under a number of ours. Were the number closed first, another thread
/// could hide something under it.
fn replace(fd: c_int, file: c_int) {
    if sys::dup_to(file, fd).is_err() {
        let _ = sys::close(fd);
    }
}

/// Waits for the wakers that may know a number which no set has any more, of whatever set they are.
fn wait_for_wakers() {
    for number in table::numbers() {
        table::each_slot(number, |slot| {
            let Some(set) = slot.downcast::<FdSet>() else { return };
            while set.rings.load(Ordering::SeqCst) != 0 && !mutated!("wakers_ring_late") {
                step_lock!(Waiting, &set.rings);
                sys::sched_yield();
            }
            step_waited!();
        });
    }
}
