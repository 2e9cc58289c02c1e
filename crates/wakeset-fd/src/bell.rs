//! Doorbells: how a waker reaches a waiter that sleeps in the kernel half of its set.
//!
//! A bell is an eventfd of ours in that kernel half, edge-triggered, so each ring wakes one waiter and needs no reading. A set
//! gets one when it first mixes both halves, or when a wait brings a signal mask. Bells are never closed, because a late waker may
//! still ring one: what it then rings is the bell of another set, which costs that set's waiter a look. The program does not see
//! them: to it their numbers are closed.

use crate::escape;
use crate::section::Section;
use crate::set::FdSet;
use crate::sys;
use crate::table;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use libc::{EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLIN, epoll_event};

/// Bells that no set uses, by number; -1 marks an empty place.
static SPARE: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// Numbers to stay above if the limit allows, so that the program's own come out as they would without us.
const ABOVE: usize = 400;

/// The data that marks the bell's event: an address the program cannot have. Odd, so it is no object's.
pub(crate) fn cookie(set: &FdSet) -> u64 {
    ptr::from_ref(set).addr() as u64 | 1
}

/// Whether the kernel half may report a bell.
pub(crate) fn has_ever_been_in(set: &FdSet) -> bool {
    set.bell.load(Ordering::SeqCst) != NEVER
}

const NEVER: c_int = -1;
/// None, but a waiter may hold the event of one.
const GONE: c_int = -2;

pub(crate) fn ring(fd: usize) {
    let one = 1_u64;
    // A full counter (EAGAIN) is 2^64 rings away.
    let _ = sys::write(fd as c_int, (&raw const one).cast(), 8);
}

/// Gives the set a bell if it has none; `false` if there is no descriptor left for it.
pub(crate) fn install(set: &FdSet) -> bool {
    if set.bell.load(Ordering::SeqCst) >= 0 {
        return true;
    }
    let _section = Section::enter();
    let _moving = escape::hold_moves();
    install_held(set)
}

/// [`install`] for a caller that holds the moves lock.
pub(crate) fn install_held(set: &FdSet) -> bool {
    if set.bell.load(Ordering::SeqCst) >= 0 {
        return true;
    }
    if set.in_kernel.load(Ordering::SeqCst) {
        // Moved meanwhile: the caller will see.
        return true;
    }
    let Some(bell) = spare().or_else(make) else { return false };
    // From here on a waiter may get its event.
    set.bell.store(GONE, Ordering::SeqCst);
    let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
    if sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, bell, &raw const event).is_err() {
        keep(bell);
        return false;
    }
    set.set.set_bell(Some((ring, bell as usize)));
    set.bell.store(bell, Ordering::SeqCst);
    if set.set.someone_is_elsewhere() {
        // Whoever pushed before there was a bell found none to ring.
        ring(bell as usize);
    }
    true
}

/// Takes the bell out of a set that has moved into the kernel. The caller holds the moves lock.
pub(crate) fn remove_held(set: &FdSet) {
    let bell = set.bell.swap(GONE, Ordering::SeqCst);
    if bell >= 0 {
        set.set.set_bell(None);
        let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, bell, ptr::null());
        keep(bell);
    }
}

/// Keeps the bell of a closed set for the next one. Nobody uses the set any more.
pub(crate) fn give_back(set: &FdSet) {
    let bell = set.bell.swap(NEVER, Ordering::SeqCst);
    if bell >= 0 {
        set.set.set_bell(None);
        // The kernel epoll may live on for a moment, in a wait of another thread.
        let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, bell, ptr::null());
        keep(bell);
    }
}

fn make() -> Option<c_int> {
    let low = sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK).ok()?;
    let high = sys::fcntl(low, libc::F_DUPFD_CLOEXEC, ABOVE);
    if high.is_ok() {
        let _ = sys::close(low);
    }
    let bell = high.unwrap_or(low);
    table::put_bell(bell);
    Some(bell)
}

fn spare() -> Option<c_int> {
    SPARE.iter().map(|place| place.swap(-1, Ordering::SeqCst)).find(|bell| *bell >= 0)
}

fn keep(bell: c_int) {
    let put = |place: &AtomicI32| place.compare_exchange(-1, bell, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    // With all places taken the bell stays open and unused.
    let _ = SPARE.iter().any(put);
}

/// Forgets the spare bells, and closes the numbers: a forked child has its own.
pub(crate) fn forget_all() {
    for place in &SPARE {
        place.store(-1, Ordering::SeqCst);
    }
    for fd in table::numbers() {
        if matches!(table::get(fd), table::Entry::Bell) {
            let _ = sys::close(fd);
        }
    }
}

/// Frees a number that the program is about to take by dup2(2): the bell moves to another.
pub(crate) fn make_way(fd: c_int) {
    if !matches!(table::get(fd), table::Entry::Bell) {
        return;
    }
    let _section = Section::enter();
    let _moving = escape::hold_moves();
    if !matches!(table::get(fd), table::Entry::Bell) {
        return;
    }
    let Ok(new) = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, ABOVE) else { return };
    table::put_bell(new);
    table::clear_bell(fd);
    for place in &SPARE {
        let _ = place.compare_exchange(fd, new, Ordering::SeqCst, Ordering::SeqCst);
    }
    for number in table::numbers() {
        if let table::Entry::Set(set) = table::get(number)
            && set.bell.compare_exchange(fd, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            // The kernel knows the watch by (number, description): a new one before the old number goes.
            let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, new, &raw const event);
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, fd, ptr::null());
            set.set.set_bell(Some((ring, new as usize)));
        }
    }
    let _ = sys::close(fd);
}
