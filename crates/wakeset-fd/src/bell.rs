//! Doorbells: how a waker reaches a waiter that sleeps in the kernel half of its set.
//!
//! A bell is an eventfd of ours in that kernel half, edge-triggered, so each ring wakes one waiter and needs no reading. A set
//! gets one when it first mixes both halves, or when a wait brings a signal mask. Bells are never closed, because a late waker may
//! still ring one: what it then rings is the bell of another set, which costs that set's waiter a look. The program does not see
//! them: to it their numbers are closed.

use crate::escape;
use crate::listeners;
use crate::polls;
use crate::section::Section;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::steps::step;
use crate::sys::{self, Errno};
use crate::table;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use libc::{EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLIN, epoll_event};

/// Numbers to stay above if the limit allows, so that the program's own come out as they would without us.
const ABOVE: usize = 400;
/// Else a number this near the limit, which the program comes to last.
const NEAR: usize = 16;

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

/// Takes the events of bells out of what the kernel reported of a number that stands for no object of ours; how many are left.
///
/// The kernel half of a set has its bell for a moment more when its number no longer stands for it, or not yet.
///
/// # Safety
/// There are `found` events.
pub(crate) unsafe fn strike(epfd: c_int, events: *mut epoll_event, found: c_int) -> c_int {
    let is_bell = |data: u64| data & 1 == 1 && table::has_slot(epfd, data as usize & !1);
    // SAFETY: the caller's contract.
    unsafe { take_out(events, found, is_bell) }
}

/// Takes out of `found` events those with data of which `is_bell` holds; how many are left, in their order.
///
/// # Safety
/// There are `found` events.
pub(crate) unsafe fn take_out(events: *mut epoll_event, found: c_int, is_bell: impl Fn(u64) -> bool) -> c_int {
    let mut kept = 0;
    for i in 0..usize::try_from(found).unwrap_or(0) {
        // SAFETY: the caller's contract.
        unsafe {
            let event = events.add(i).read_unaligned();
            if is_bell(event.u64) {
                continue;
            }
            if kept < i {
                events.add(kept).write_unaligned(event);
            }
        }
        kept += 1;
    }
    kept as c_int
}

pub(crate) fn ring(fd: usize) {
    let one = 1_u64;
    step!(bell_before_ring);
    // A full counter (EAGAIN) is 2^64 rings away.
    let _ = sys::write(fd as c_int, (&raw const one).cast(), 8);
    step!(bell_rung);
}

/// What it was rung for in its last set is nothing to the next one, whose number may be watched by those who cannot tell.
fn silence(bell: c_int) {
    let mut rings = 0_u64;
    let _ = sys::read(bell, (&raw mut rings).cast(), 8);
}

/// Gives the set a bell if it has none; `false` if there is no descriptor left for it.
///
/// # Errors
/// As epoll_ctl(2) for `EPOLL_CTL_ADD`: ENOSPC, ENOMEM. The kernel grants no watch to the bell, nor would it to anything that moved.
pub(crate) fn install(set: &FdSet) -> Result<bool, Errno> {
    if set.bell.load(Ordering::SeqCst) >= 0 {
        return Ok(true);
    }
    let _section = Section::enter();
    let _moving = escape::hold_moves();
    install_held(set)
}

/// [`install`] for a caller that holds the moves lock.
pub(crate) fn install_held(set: &FdSet) -> Result<bool, Errno> {
    if set.bell.load(Ordering::SeqCst) >= 0 {
        return Ok(true);
    }
    if set.in_kernel.load(Ordering::SeqCst) {
        // Moved meanwhile: the caller will see.
        return Ok(true);
    }
    let Some(bell) = table::take_spare_bell().inspect(|bell| silence(*bell)).or_else(make) else { return Ok(false) };
    // From here on a waiter may get its event.
    set.bell.store(GONE, Ordering::SeqCst);
    let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
    if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, bell, &raw const event) {
        table::spare_bell(bell);
        return Err(error);
    }
    step!(bell_in_kernel);
    set.set.set_bell(Some((ring, bell as usize)));
    set.bell.store(bell, Ordering::SeqCst);
    step!(bell_known);
    if set.set.someone_is_elsewhere() {
        // Whoever pushed before there was a bell found none to ring.
        ring(bell as usize);
    }
    Ok(true)
}

/// Takes the bell out of a set that has moved into the kernel, or whose number is about to be closed, and keeps it for the next one.
/// Waits may still be in the set, and one of them may have taken the bell's event and not looked at it yet.
pub(crate) fn remove(set: &FdSet) {
    let bell = set.bell.swap(GONE, Ordering::SeqCst);
    if bell >= 0 {
        set.set.set_bell(None);
        // The kernel epoll lives on, if only for a moment, in a wait of another thread.
        let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, bell, ptr::null());
        table::spare_bell(bell);
    }
}

/// For a new set, in which no wait has begun yet.
pub(crate) fn begin_without(set: &FdSet) {
    set.bell.store(NEVER, Ordering::SeqCst);
}

/// Threads that can have a bell of their own at a time.
const MOST_LENT: usize = 64;
/// The bells that threads have, plus one. Set with the moves lock held.
static LENT: [AtomicI32; MOST_LENT] = [const { AtomicI32::new(0) }; MOST_LENT];
/// Asks all who have one to give it back: a `fn()`, 0 for none.
static RECALL: AtomicUsize = AtomicUsize::new(0);

/// A bell for a thread that sleeps in poll(2) on descriptors of the program's and is to be woken by us. Its number stays what it is until
/// this is dropped; by then nobody may be about to ring it.
#[derive(Debug)]
pub struct Lent {
    place: &'static AtomicI32,
    fd: c_int,
}

impl Lent {
    /// The eventfd.
    pub fn fd(&self) -> c_int {
        self.fd
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        table::spare_bell(self.fd);
        // From here on it may move.
        self.place.store(0, Ordering::SeqCst);
    }
}

/// Installs how those who have a bell are asked to give it back soon.
pub fn set_recall(recall: fn()) {
    RECALL.store(recall as *const () as usize, Ordering::Release);
}

/// A bell for this thread. It may be ringing already. `None` where there is none to be had, or a fork is under way.
pub fn lend() -> Option<Lent> {
    if !crate::fork::may_make_objects() {
        return None;
    }
    let _section = Section::enter();
    let _moving = escape::try_hold_moves()?;
    let place = LENT.iter().find(|lent| lent.load(Ordering::SeqCst) == 0)?;
    let fd = table::take_spare_bell().or_else(make)?;
    place.store(fd + 1, Ordering::SeqCst);
    Some(Lent { place, fd })
}

/// Waits until no thread has this bell; none gets one meanwhile, because the caller holds the moves lock.
fn wait_until_returned(fd: c_int) {
    while LENT.iter().any(|lent| lent.load(Ordering::SeqCst) == fd + 1) {
        let recall = RECALL.load(Ordering::Acquire);
        if recall != 0 {
            // SAFETY: only `set_recall` stores here, and it stores a `fn()`.
            unsafe { core::mem::transmute::<*const (), fn()>(recall as *const ())() };
        }
        sys::sched_yield();
    }
}

fn make() -> Option<c_int> {
    sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK).ok().map(hide)
}

/// Gives a descriptor of ours a number that the program is not likely to want, and hides it like a bell's; the old number is
/// closed.
pub(crate) fn hide(low: c_int) -> c_int {
    let high = duplicate(low);
    if high.is_some() {
        let _ = sys::close(low);
    }
    let hidden = high.unwrap_or(low);
    table::put_bell(hidden);
    hidden
}

/// A hidden number, which no bell has, is about to be closed.
pub(crate) fn disclose(fd: c_int) {
    table::forget_bell(fd);
}

/// A duplicate under a number that the program is not likely to want.
fn duplicate(bell: c_int) -> Option<c_int> {
    let above = |number| sys::fcntl(bell, libc::F_DUPFD_CLOEXEC, number).ok();
    above(ABOVE).or_else(|| {
        let limit = sys::number_limit();
        (limit.saturating_sub(NEAR)..limit).rev().find_map(above)
    })
}

/// Closes all bells: a forked child has its own.
pub(crate) fn forget_all() {
    LENT.iter().for_each(|lent| lent.store(0, Ordering::SeqCst));
    for fd in table::numbers() {
        if matches!(table::get(fd), table::Entry::Bell) {
            let _ = sys::close(fd);
        }
    }
}

/// Gives a number to the program, which is about to take it by dup2(2) of `old`: the bell moves to another.
pub(crate) fn make_way(old: c_int, fd: c_int) {
    if !matches!(table::get(fd), table::Entry::Bell) {
        return;
    }
    let _section = Section::enter();
    let _moving = escape::hold_moves();
    if !matches!(table::get(fd), table::Entry::Bell) {
        return;
    }
    wait_until_returned(fd);
    let Some(new) = duplicate(fd).or_else(|| sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).ok()) else {
        // No number is left but this one, which is the program's: its set does without.
        for number in table::numbers() {
            if let table::Entry::Set(set) = table::get(number)
                && set.bell.load(Ordering::SeqCst) == fd
            {
                escape::fd_held(number, Stat::MovedLimit);
            }
        }
        listeners::renumber(fd, -1);
        polls::renumber(fd, -1);
        table::forget_bell(fd);
        give(fd, old);
        return;
    };
    table::renumber_bell(fd, new);
    listeners::renumber(fd, new);
    polls::renumber(fd, new);
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
    give(fd, old);
}

/// Puts the program's file under a number of ours. Were the number closed first, another thread could make a bell under it.
fn give(fd: c_int, file: c_int) {
    if sys::dup_to(file, fd).is_err() {
        let _ = sys::close(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Entry, Using};
    extern crate std;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::vec::Vec;

    /// Two that make the process's engine at the same moment leave one behind, which LeakSanitizer reports.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits that begin while the number is being made or closed are the kernel's alone.
    #[test]
    fn what_the_kernel_says_of_a_bell_is_struck_out() {
        let _alone = alone();
        let fd = crate::epoll_create1(0).unwrap();
        let Entry::Set(set) = table::get(fd) else { panic!("{fd} is a kernel epoll") };
        let bell = cookie(set);
        let struck = |data: &[u64]| {
            let mut events: Vec<_> = data.iter().map(|&u64| epoll_event { events: 1, u64 }).collect();
            // SAFETY: as many as there are.
            let kept = unsafe { strike(fd, events.as_mut_ptr(), events.len() as c_int) };
            events[..kept as usize].iter().map(|event| event.u64).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert_eq!(struck(&[1, bell, bell - 1, u64::MAX, bell]), [1, bell - 1, u64::MAX]);
            assert_eq!(struck(&[bell]), []);
            // Again when the number is closed: a file of the kernel's may have it.
            let _ = crate::close(fd);
        }
    }

    /// The wait took the bell's event for one of the program's: the close had made the set forget that it ever had a bell.
    #[test]
    fn a_wait_knows_the_bell_of_a_set_closed_meanwhile() {
        let _alone = alone();
        let fd = crate::epoll_create1(0).unwrap();
        let Entry::Set(set) = table::get(fd) else { panic!("{fd} is a kernel epoll") };
        assert!(!has_ever_been_in(set));
        let wait = Using::begin(fd, set).unwrap();
        assert_eq!(install(&wait), Ok(true));
        crate::close(fd).unwrap();
        assert!(has_ever_been_in(&wait));
        drop(wait);
    }
}
