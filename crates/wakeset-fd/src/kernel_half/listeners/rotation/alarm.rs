//! The alarm of a set that threads slept in before it had a listener.
//!
//! A thread that sleeps in a set with listeners wakes once in a rescue period and looks at them.
//! One that went to sleep before there was any has no such limit, and cannot be told: of the
//! threads that sleep in a kernel epoll, the kernel wakes the one that came last. So where threads
//! sleep when the first listener comes, the kernel half gets a timer as well, which goes off once
//! in a rescue period and wakes one of them, whatever that one knows.
//!
//! The timer is watched by level. A thread that it wakes has woken the next one, in the kernel,
//! before it runs itself; so if it ends or jumps away before it has looked, another one looks.
//!
//! | the thread that adds the first listener | a thread that goes to sleep |
//! |---|---|
//! | the listener joins, then the count of remote waiters: sets the alarm if there are any | counts itself in, then checks for listeners: sleeps with a limit if there are any |
//!
//! A thread that takes the alarm and finds no remote waiter counted ends it: all that come later
//! know of the listeners. Those that know are counted as well, and so is a wait that a handler has
//! jumped out of: the alarm goes on until none is. It also ends with the last listener, with the
//! set, and where the watches become plain, which need no rescue.
//!
//! The timer is a hidden descriptor, which stays with the set's slot for the next time. Its number
//! may only be closed under the migrations lock, which a thread that closes the set may hold or
//! not. Under loom this file runs as it is.

use super::super::family;
use super::{Member, Rotation};
use crate::kernel_half::KernelEpoll;
use crate::kernel_half::listeners::RESCUE;
use crate::sys::refusable::refusable;
use crate::sys::sync::{AtomicBool, AtomicI32, Ordering, after_publishing, const_fn, mutant};
use crate::sys::{self, Errno};
use crate::table::hidden;
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, epoll_event, itimerspec, timespec};
use wakeset::mutated;

/// A rescue period after it is set, and again after each.
static PERIODS: itimerspec = {
    let period =
        timespec { tv_sec: RESCUE.as_secs() as i64, tv_nsec: RESCUE.subsec_nanos() as i64 };
    itimerspec { it_interval: period, it_value: period }
};

/// The timer of a set's slot. Changed with the lock of the rotation held.
#[derive(Debug)]
pub(super) struct Alarm {
    /// The timerfd, -1 for none. Changed with the migrations lock held as well.
    number: AtomicI32,
    /// Whether the kernel half watches it, or is about to.
    is_set: AtomicBool,
}

impl Alarm {
    const_fn! {
        pub(super) const fn none() -> Self {
            Self { number: AtomicI32::new(-1), is_set: AtomicBool::new(false) }
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    fn number(&self) -> c_int {
        self.number.load(Ordering::SeqCst)
    }

    /// In a new set, whose kernel epoll watches nothing of ours.
    pub(super) fn begin_anew(&self) {
        self.is_set.store(false, Ordering::SeqCst);
    }

    /// The slot's timer; makes one if it has none. `None`: there is none to be had.
    fn timer(&self) -> Option<c_int> {
        if self.number() < 0 {
            self.number.store(hidden::make(make)?, Ordering::SeqCst);
        }
        Some(self.number())
    }

    /// Has the kernel half watch the timer, and then lets that run.
    fn set(&self, set: &impl KernelEpoll) -> bool {
        let Some(timer) = self.timer() else { return false };
        let data = set.admit_alarm();
        // Before the look at the set: the thread that closes it looks here after it has said so,
        // and waits for the lock before the number goes.
        self.is_set.swap(true, Ordering::SeqCst);
        after_publishing(mutant!("alarm_set_without_fence"));
        if set.is_closed() && !mutant!("alarm_outlives_its_set") {
            self.is_set.store(false, Ordering::SeqCst);
            return true;
        }
        // It may still go off for the last set.
        if stop(timer).and_then(|()| watch(set.number(), timer, data)).is_err() {
            self.unset(set);
            return false;
        }
        if mutated!("alarm_never_goes_off") {
            return true;
        }
        let runs = sys::timerfd_settime(timer, 0, &raw const PERIODS, ptr::null_mut());
        if runs.is_err() {
            self.unset(set);
        }
        runs.is_ok()
    }

    /// The kernel half watches it no longer. Where the set is closed and its number another's, the
    /// removal finds nothing: no other set watches this slot's timer.
    pub(super) fn unset(&self, set: &impl KernelEpoll) {
        if self.is_set.swap(false, Ordering::SeqCst) {
            let timer = self.number();
            let _ = sys::epoll_ctl(set.number(), EPOLL_CTL_DEL, timer, ptr::null());
            let _ = stop(timer);
        }
    }

    /// A change of interest has left no listener, as far as its thread knows, which has just taken
    /// the lock: another may have added one since, and has found the alarm set. Returns whether
    /// there is none.
    pub(super) fn ends_with_the_last(&self, set: &impl KernelEpoll, members: &[Member]) -> bool {
        let has_none = !members.iter().any(Member::is_some);
        if has_none || mutant!("alarm_ends_unlooked") {
            self.unset(set);
        }
        has_none
    }

    /// The timer has another number, or none. Returns whether a set has lost its alarm by that.
    fn renumber(&self, set: &impl KernelEpoll, old: c_int, new: c_int) -> bool {
        self.number.store(new, Ordering::SeqCst);
        if !self.is_set() || set.is_closed() {
            return false;
        }
        // The kernel knows a watch by number and description: a new one before the old number goes.
        let is_kept = new >= 0 && watch(set.number(), new, set.admit_alarm()).is_ok();
        let _ = sys::epoll_ctl(set.number(), EPOLL_CTL_DEL, old, ptr::null());
        self.is_set.store(is_kept, Ordering::SeqCst);
        !is_kept
    }

    /// Closes the timer, if no set watches it. Returns whether there was one.
    fn give_up(&self) -> bool {
        if self.is_set() || self.number() < 0 {
            return false;
        }
        hidden::close_in(&self.number, -1)
    }

    /// Lowers the level, until it goes off again.
    fn silence(&self) {
        let mut times = 0_u64;
        let _ = sys::read(self.number(), (&raw mut times).cast(), size_of_val(&times));
    }
}

/// One that has installed a filter makes none: the call may be deadly.
fn make() -> Option<c_int> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    let made = || refusable!(timerfd_create, libc::CLOCK_MONOTONIC, flags);
    if family::is_apart() { None } else { made().ok().map(|fd| fd as c_int) }
}

fn watch(epoll: c_int, timer: c_int, data: u64) -> Result<(), Errno> {
    let event = epoll_event { events: EPOLLIN as u32, u64: data };
    sys::epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &raw const event)
}

fn stop(timer: c_int) -> Result<(), Errno> {
    let never = timespec { tv_sec: 0, tv_nsec: 0 };
    let never = itimerspec { it_interval: never, it_value: never };
    sys::timerfd_settime(timer, 0, &raw const never, ptr::null_mut())
}

impl Rotation {
    /// The set has got its first listener while threads sleep in it. Returns `false` if there is no
    /// alarm to be had. The caller holds the migrations lock.
    pub(crate) fn set_alarm(&self, set: &impl KernelEpoll) -> bool {
        self.with(|members| {
            let is_needed = set.is_usable() && members.iter().any(Member::is_some);
            !is_needed || self.alarm.is_set() || self.alarm.set(set)
        })
    }

    /// The alarm has woken a wait, which looks at the listeners for all that sleep. `is_needed`:
    /// others sleep, and may have done so since before the first listener. It is asked with the
    /// lock held, because a thread that adds a listener for one that sleeps may have found the
    /// alarm set.
    pub(crate) fn take_alarm(&self, set: &impl KernelEpoll, is_needed: impl Fn() -> bool) {
        let is_needed = || is_needed() && !mutant!("alarm_ends_beside_sleepers");
        let early = mutant!("alarm_needed_early").then(&is_needed);
        self.with(|members| {
            self.alarm.silence();
            if !members.iter().any(Member::is_some) || !early.unwrap_or_else(is_needed) {
                self.alarm.unset(set);
            }
        });
        // It may have woken several, or one just after a look: an edge is told again by every
        // second look.
        if self.rescue_clock.until_next() <= RESCUE / 2 {
            self.rescue(set);
        }
    }

    /// The set needs no alarm any more, if it has one: it is closed, which its state has said by a
    /// read-modify-write before, or has migrated; or the caller holds the migrations lock, and has
    /// its listeners watched as others are.
    pub(crate) fn end_alarm(&self, set: &impl KernelEpoll) {
        after_publishing(mutant!("alarm_ended_without_fence"));
        if self.alarm.is_set() {
            self.with(|_| self.alarm.unset(set));
        }
    }

    /// A hidden number has become another, or -1. The caller holds the migrations lock.
    pub(crate) fn renumber_alarm(&self, set: &impl KernelEpoll, old: c_int, new: c_int) {
        let is_its = || self.alarm.number() == old;
        if is_its() && self.with(|_| is_its() && self.alarm.renumber(set, old, new)) {
            self.make_plain(set);
        }
    }

    /// The program needs numbers: closes the timer of a slot whose set has no alarm. Returns
    /// whether there was one. The caller holds the migrations lock.
    pub(crate) fn give_up_timer(&self) -> bool {
        self.alarm.number() >= 0 && self.with(|_| self.alarm.give_up())
    }
}

#[cfg(all(test, not(loom)))]
#[path = "alarm/tests.rs"]
mod tests;
