//! A wait on a set in which nothing is to be done but to sleep: in process nothing is ready, the
//! kernel half has watches, and its listeners, if there are any, are [calm]. So it is what almost
//! every wait of a server is for a connection that is kept.
//!
//! Such a wait is the program's own call, between two looks at the set. It does what the general
//! one does (`wait::mixed`), and runs through a tenth of its code: after a sleep each line of that
//! comes from memory. What does not fit is left to the general one, before the sleep or after it.
//! For a connection that is new there are two more steps. A sleep that a listener ends notes that,
//! and is over, unless the connection may be another worker's. The next wait of its thread, which
//! has accepted it, minds the listeners first, so that the set is calm again.
//!
//! | this thread | a thread for which it has to wake up |
//! |---|---|
//! | counts itself as a remote waiter | changes the set: a watch is ready, the set migrates, has its first listener, or more |
//! | looks whether the set is still quiet | looks for remote waiters, and rings the doorbell |
//!
//! Under loom this file runs as it is.
//!
//! [calm]: crate::kernel_half::listeners::rotation

use crate::set::wait::{Limit, Settled, Wait};
use crate::set::{FdSet, doorbell};
use crate::stats::count;
use crate::sys::Errno;
use crate::sys::handled;
use crate::table::{self, Using};
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::epoll_event;
use wakeset::{Deadline, Timeout, mutant, mutated};

/// Twice the longest time between two ticks (ms), because one may be late.
const TICKS: c_int = 20;

/// A limit (ms) from which on a wait may last so much longer. Linux lets a sleep in epoll last
/// longer by a thousandth, and waits for what is in process have no less.
const LONG: c_int = 1000 * TICKS;

/// What is known of a set when a quiet wait begins.
#[derive(Clone, Copy)]
pub(crate) struct Quiet {
    has_listeners: bool,
    is_empty: bool,
    /// The limit of the wait, and that of its sleep.
    limit: c_int,
    within: c_int,
    /// When the wait began, if it has a limit or there are listeners.
    began: Option<Deadline>,
    /// That is not by the last tick alone.
    is_exact: bool,
    /// How many signals the thread had handled, where a sleep is not the whole wait.
    handled: Option<u32>,
}

impl Quiet {
    /// `None`: the set is not quiet. `tick`: the time of the last tick, if that was asked.
    #[inline(always)]
    pub(crate) fn of(set: &FdSet, limit: c_int, tick: Option<Deadline>) -> Option<Self> {
        if !Self::may_be(set) {
            return None;
        }
        let has_listeners = set.rotation.any();
        if !has_listeners && set.rotation.has_baton() {
            return None;
        }
        let is_empty = set.set.is_empty();
        if !is_empty && (set.doorbell.load(Ordering::SeqCst) < 0 || !has_listeners && is_woken(set))
        {
            return None;
        }
        // A doorbell or an alarm may come during the sleep, and end it.
        let is_exact = !is_empty && (1..LONG).contains(&limit);
        let began = (has_listeners || limit > 0).then(|| match is_exact {
            true => Deadline::now(),
            false => tick.unwrap_or_else(Deadline::at_last_tick),
        });
        let mut within = limit;
        if has_listeners {
            let left = set.rotation.calm_left(began?)?;
            // One that only looks leaves what is another's alone.
            if left == 0 || limit == 0 && !set.rotation.is_calm_alone() {
                return None;
            }
            if limit < 0 || limit > left {
                within = left;
            }
        }
        let handled = has_listeners.then(handled::any);
        Some(Self { has_listeners, is_empty, limit, within, began, is_exact, handled })
    }

    /// Whether waits on this set may be quiet, as far as that does not change from one to the next.
    #[inline(always)]
    fn may_be(set: &FdSet) -> bool {
        set.state.is_plainly_mixed() && !count::is_on() && wakeset::spin_limit().is_none()
    }

    /// Whether the set is still as it was.
    #[inline(always)]
    fn lasts(self, set: &FdSet) -> bool {
        set.state.is_plainly_mixed()
            && set.rotation.any() == self.has_listeners
            && match self.has_listeners {
                true => set.rotation.is_calm(),
                // Another thread's listener may have come and gone since.
                false => !set.rotation.has_baton(),
            }
            && set.set.is_quiet()
            && set.set.is_empty() == self.is_empty
            && !set.polls.are_active()
    }

    /// The wait. `None`: the set is quiet no longer.
    ///
    /// # Safety
    /// As [`epoll_wait_quietly`].
    #[inline(always)]
    pub(crate) unsafe fn wait(
        self,
        set: &FdSet,
        events: *mut epoll_event,
        maxevents: c_int,
        call: impl FnOnce(c_int) -> c_int,
    ) -> Option<c_int> {
        let settled = Settled::now(set);
        let version = set.rotation.begin_wait();
        let migrated = set.migrated_watches.load(Ordering::SeqCst);
        let early = mutant!("quiet_looks_early") && self.lasts(set);
        set.set.enter_remote();
        if !early && !self.lasts(set) && !mutant!("quiet_without_look") {
            set.set.leave_remote();
            return None;
        }
        if self.has_listeners {
            set.rotation.sleep_calmly();
        }
        let found = call(self.within);
        set.set.leave_remote();
        let lasts = self.lasts(set) || mutant!("quiet_sleeps_without_second_look");
        // SAFETY: the caller's contract.
        let reported = unsafe { self.reported(set, events, found) };
        let is_over = found != 0 || self.within == self.limit && settled.still(set);
        let found = match reported {
            Reported::Others if lasts && is_over => {
                if self.has_listeners {
                    set.rotation.wake_calmly();
                }
                found
            }
            Reported::Listeners if lasts && set.rotation.takes() => {
                set.rotation.note_reports(events, found, true);
                found
            }
            _ => Slept { events, maxevents, found, migrated }.finish(set, self),
        };
        set.rotation.note_wait(version, found, maxevents);
        Some(found)
    }

    /// What is left of the wait's limit after a sleep that has reported so much.
    fn rest(self, found: c_int) -> c_int {
        match self.began {
            _ if found == 0 && self.limit > 0 => self.limit - self.within,
            // It has no limit, or does not sleep.
            None => self.limit,
            Some(_) if self.limit <= 0 => self.limit,
            Some(began) => {
                let passed = Deadline::now().since_boot().saturating_sub(began.since_boot());
                let passed = c_int::try_from(passed.as_millis()).unwrap_or(c_int::MAX);
                // Not too short: the last tick may have been that long ago.
                let most = if self.is_exact { 0 } else { TICKS };
                self.limit - passed.saturating_sub(most).clamp(0, self.limit)
            }
        }
    }

    /// What these events are about.
    ///
    /// # Safety
    /// There are `found` events.
    #[inline(always)]
    unsafe fn reported(self, set: &FdSet, events: *const epoll_event, found: c_int) -> Reported {
        // Asked now: a doorbell may have come, and gone, during the sleep.
        if !doorbell::has_ever_been_in(set) || mutated!("quiet_reports_all") {
            return Reported::Others;
        }
        let mut reported = Reported::Others;
        for i in 0..found.max(0) as usize {
            // SAFETY: the caller's contract.
            let event = unsafe { events.add(i).read_unaligned() };
            if doorbell::is_ours(set, event.u64) {
                return Reported::Ours;
            }
            if self.has_listeners && set.rotation.is_listeners(event) {
                reported = Reported::Listeners;
            }
        }
        reported
    }
}

/// What the events of a sleep are about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reported {
    /// The program's own descriptors, and no listener.
    Others,
    /// The program's own, and a listener among them.
    Listeners,
    /// The doorbell, the baton or the alarm is among them.
    Ours,
}

/// epoll_wait(2) without a mask, in a thread that has nothing to pass on, if the set is quiet.
/// `call` is the program's, with another limit in milliseconds. `None`: it is not.
///
/// `is_told`: the thread was told of a connection by its last wait. Then this one minds the
/// listeners before, as the general wait does.
///
/// # Safety
/// `call` writes as many events to `events` as it returns; it returns -1 with `errno` otherwise.
#[inline(always)]
pub unsafe fn epoll_wait_quietly(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    limit: c_int,
    is_told: bool,
    call: impl FnOnce(c_int) -> c_int,
) -> Option<c_int> {
    let set = table::find_plain::<FdSet>(epfd)?;
    let (mut using, mut tick) = (None, None);
    if is_told && limit != 0 && Quiet::may_be(set) {
        let set = using.insert(Using::begin(epfd, set)?);
        let now = Deadline::at_last_tick();
        set.rotation.mind(&**set, now);
        tick = Some(now);
    }
    let quiet = Quiet::of(set, limit, tick)?;
    let set = match using {
        Some(set) => set,
        None => Using::begin(epfd, set)?,
    };
    // SAFETY: the caller's contract.
    unsafe { quiet.wait(&set, events, maxevents, call) }
}

/// How many waits after a doorbell's ring are general ones.
const AFTER_RING: u32 = 64;

/// Whether one of the last waits was woken by the doorbell. The next ones learn from how long they
/// sleep whether a spin is worth it, and spin; a set that nobody in the process wakes does not.
#[inline(always)]
fn is_woken(set: &FdSet) -> bool {
    let left = set.general_waits.load(Ordering::Relaxed);
    if left > 0 {
        set.general_waits.store(left - 1, Ordering::Relaxed);
    }
    left > 0
}

/// A sleep after which there is something to do.
struct Slept {
    events: *mut epoll_event,
    maxevents: c_int,
    found: c_int,
    /// How many watches had changed halves before it.
    migrated: u32,
}

impl Slept {
    /// The rest of the wait, in the general way.
    #[cold]
    #[inline(never)]
    fn finish(self, set: &FdSet, quiet: Quiet) -> c_int {
        if !quiet.is_empty {
            set.general_waits.store(AFTER_RING, Ordering::Relaxed);
        }
        // SAFETY: this thread's errno.
        let errno = unsafe { &mut *libc::__errno_location() };
        let result = match self.found {
            found if found >= 0 => Ok(found),
            _ => Err(Errno::new(*errno)),
        };
        let limit = quiet.rest(self.found);
        let timeout = Timeout::from_millis(limit);
        let limit = Limit::Milliseconds(limit);
        let handled = quiet.handled.filter(|_| !mutated!("quiet_forgets_handlers"));
        let handled = handled.or_else(|| set.rotation.any().then(handled::any));
        let wait = Wait::new(set, self.events, self.maxevents, limit, timeout);
        let migrated =
            if mutant!("quiet_counts_moves_late") { wait.migrated } else { self.migrated };
        let wait = Wait { handled: Cell::new(handled), migrated, ..wait };
        match wait.run_slept(quiet.has_listeners, result) {
            Ok(found) => found,
            Err(error) => {
                *errno = error.into_raw();
                -1
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "quiet/tests.rs"]
mod tests;
