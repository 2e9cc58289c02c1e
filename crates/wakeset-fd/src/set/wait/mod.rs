//! A wait on a set that may have watches in its kernel half: where it looks, in which order, and
//! how it sleeps.
//!
//! A wait is a number of rounds ([`Wait::step`]): in process only (here), with both halves
//! (`mixed`), or in a set that has become a kernel epoll. What it finds in the kernel half is in
//! `kernel`, how it spins before it sleeps in `spin` and `busy_poll`.

#[cfg_attr(loom, path = "../../../testing/set/busy_poll.rs")]
mod busy_poll;
mod kernel;
mod limits;
mod mixed;
mod settled;
mod spin;

pub use self::limits::{Limit, Mask, Rest};
pub(crate) use self::limits::{milliseconds_of, short_of, timespec_of};
pub(crate) use self::settled::Settled;

use self::limits::Until;
use crate::kernel_half::listeners::baton;
use crate::migrate;
use crate::set::{FdSet, polls, ring};
use crate::stats::Stat;
use crate::stats::count::{count, count_wake};
use crate::sys::cancel;
use crate::sys::handled;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::user;
use crate::sys::{self, Errno};
use core::cell::Cell;
use core::ffi::c_int;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use core::time::Duration;
use libc::epoll_event;
use wakeset::{Deadline, Event, Timeout, Woken, mutant};

/// Of two halves that are both ready and a buffer that has room for only one of them, each goes
/// first in every second wait: a ready watch of either is looked at again at the latest in this
/// many waits.
pub const STARVATION_BOUND: u32 = 2;

/// One wait on one set.
pub(crate) struct Wait<'a> {
    pub(crate) set: &'a FdSet,
    pub(crate) lease: Option<&'a wakeset::Lease<'static>>,
    pub(crate) events: *mut epoll_event,
    /// How many events fit there.
    pub(crate) capacity: c_int,
    pub(crate) limit: Limit,
    pub(crate) timeout: Timeout,
    pub(crate) mask: Mask,
    /// How many signals the thread had handled, where that is asked.
    pub(crate) handled: Cell<Option<u32>>,
    /// An event found no memory: the wait ends with what it has.
    pub(crate) faulted: Cell<bool>,
    /// The wait has taken a ring of the doorbell, which may have been meant for another.
    pub(crate) rung: Cell<bool>,
    /// The baton has woken the wait for a connection that it does not report.
    pub(crate) passes_on: Cell<bool>,
    /// The set's listeners are calm, and are looked at in so long.
    pub(crate) calm: Cell<Option<Duration>>,
    /// How many watches had changed halves when it began.
    pub(crate) migrated: u32,
    /// It has been counted, because it was not answered at once, in process.
    pub(crate) counted: Cell<bool>,
}

impl<'a> Wait<'a> {
    /// A plain one, which is neither leased nor has a mask or an eye on signals.
    #[inline]
    pub(crate) fn new(
        set: &'a FdSet,
        events: *mut epoll_event,
        capacity: c_int,
        limit: Limit,
        timeout: Timeout,
    ) -> Self {
        Self {
            set,
            lease: None,
            events,
            capacity,
            limit,
            timeout,
            mask: Mask::NONE,
            handled: Cell::new(None),
            faulted: Cell::new(false),
            rung: Cell::new(false),
            passes_on: Cell::new(false),
            calm: Cell::new(None),
            migrated: set.migrated_watches.load(Ordering::SeqCst),
            counted: Cell::new(false),
        }
    }
}

impl Wait<'_> {
    /// The wait, and what this thread owes to the other waiters when it leaves.
    pub(crate) fn run(&self) -> Result<c_int, Errno> {
        self.leave(self.run_settled())
    }

    /// What this thread owes to the other waiters when it leaves with that.
    fn leave(&self, found: Result<c_int, Errno>) -> Result<c_int, Errno> {
        self.set.rotation.end_wait(self.set);
        self.pass_on();
        self.set.set.mind_deadline();
        if found == Ok(self.capacity) && self.set.set.has_left_exclusive() {
            let _guard = SignalGuard::enter();
            self.set.set.pass_on_exclusive();
        }
        if self.rung.get() && self.set.set.may_be_ready() && !mutant!("ring_is_kept") {
            // The event that rang this wait's doorbell is still there: wake the next waiter.
            self.set.set.kick();
        }
        found
    }

    /// Passes the baton on, where no lock is held and before the next sleep.
    fn pass_on(&self) {
        if self.passes_on.replace(false) {
            baton::pass();
        }
    }

    fn run_settled(&self) -> Result<c_int, Errno> {
        let mut settled = Settled::now(self.set);
        let mut found = self.check();
        // A set in this one migrates, or has migrated: what is ready in it may have been in neither
        // half of this one.
        while found == Ok(0) && !self.faulted.get() && !settled.still(self.set) {
            settled = Settled::between_migrations(self.set);
            let again = Wait {
                limit: Limit::Milliseconds(0),
                timeout: Timeout::Now,
                handled: self.handled.clone(),
                faulted: Cell::new(false),
                rung: Cell::new(false),
                passes_on: Cell::new(false),
                calm: Cell::new(None),
                counted: self.counted.clone(),
                ..*self
            };
            found = again.check();
            self.counted.set(again.counted.get());
            again.pass_on();
            self.faulted.set(again.faulted.get());
            self.rung.set(self.rung.get() || again.rung.get());
        }
        found
    }

    fn count_once(&self) {
        if !self.counted.replace(true) {
            count(Stat::Waits, 1);
        }
    }

    fn check(&self) -> Result<c_int, Errno> {
        let set = self.set;
        if set.polls.are_active() && !polls::are_for_me(set) {
            polls::give_up(set);
        }
        // The usual case first: in-process watches only, and something ready.
        if set.state.is_pure() {
            let n = self.harvest(0);
            if n > 0 || self.timeout == Timeout::Now || self.faulted.get() {
                if set.state.is_pure() {
                    return Ok(n);
                }
                if n > 0 {
                    self.count_once();
                    return Ok(n);
                }
            }
        }
        self.count_once();
        let mut deadline = None;
        let mut later = None;
        let mut first = true;
        loop {
            // A set without in-process watches goes to the kernel with what it was given. If
            // something of ours ends that sleep, the next round sleeps for the rest.
            let needs_clock = !first
                || set.doorbell.load(Ordering::SeqCst) >= 0
                || !set.set.is_empty()
                || set.rotation.any()
                || wakeset::spin_limit().is_some();
            if deadline.is_none() && needs_clock && self.timeout != Timeout::Now {
                deadline = later.or_else(|| Some(Deadline::of(self.timeout)));
            } else if first && matches!(self.timeout, Timeout::After(_)) {
                later = Some(Deadline::of(self.timeout));
            }
            if let Some(result) = self.step(&mut deadline) {
                return result;
            }
            first = false;
        }
    }

    /// One round of a wait. `None`: another is needed.
    fn step(&self, deadline: &mut Option<Option<Deadline>>) -> Option<Result<c_int, Errno>> {
        self.pass_on();
        let set = self.set;
        let until = Until { deadline: *deadline, ..Until::of(self.timeout) };
        let closed = set.state.is_closed();
        if closed && (!self.mask.set.is_null() || set.state.is_in_kernel()) {
            // The number may be another's. In Linux the wait goes on; here nothing more will come
            // to it.
            let limit = until.left().map(timespec_of);
            return Some(sys::wait_for_nothing(limit.as_ref(), self.mask.set));
        }
        if set.state.is_in_kernel() {
            return self.step_in_kernel(until);
        }
        self.calm.set(set.rotation.rescue_if_due(set));
        let both = set.state.has_kernel() && !closed;
        if both && set.set.is_empty() && self.timeout == Timeout::Now {
            return Some(self.check_outside(0, None));
        }
        if both || !self.mask.set.is_null() {
            self.step_mixed(until)
        } else {
            self.step_here(deadline)
        }
    }

    /// One round in a set that has migrated, or does: no in-process watch is left, or will be in a
    /// moment.
    #[inline(never)]
    fn step_in_kernel(&self, until: Until) -> Option<Result<c_int, Errno>> {
        migrate::wait_for_migrations();
        if let ControlFlow::Break(round) = self.spin_in_kernel(until) {
            return round;
        }
        step!(kernel_before_sleep);
        let slept = cancel::point(|| self.sleep_in_kernel(until, false));
        let found = match slept {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        step!(kernel_slept);
        match self.filter(0, found) {
            0 if found > 0 => None,
            kept => {
                count(Stat::EventsFromKernel, kept as usize);
                Some(Ok(kept))
            }
        }
    }

    /// Harvests in-process events into the buffer after the first `filled`; how many.
    fn harvest(&self, filled: c_int) -> c_int {
        let _guard = SignalGuard::enter();
        let set = self.set;
        let mut target = self.events.wrapping_add(filled as usize);
        let capacity = (self.capacity - filled) as usize;
        // A lease takes note of events under the lock.
        if self.lease.is_none()
            && let Some(ring) = self.set.set.ring()
            && let Some(taken) = ring::take(ring, target, capacity)
        {
            return taken as c_int;
        }
        // What has come home meanwhile may be among the `filled`.
        let has_moved = || {
            filled > 0
                && set.migrated_watches.load(Ordering::SeqCst) != self.migrated
                && !mutant!("half_seen_again")
        };
        let report = |event: Event| {
            if has_moved() {
                return false;
            }
            let event = epoll_event { events: event.events.bits(), u64: event.data };
            // SAFETY: the caller gives the memory for that many events, and a harvest reports no
            // more than it has room for.
            let stored = unsafe { user::store_event(target, event) };
            target = target.wrapping_add(1);
            self.faulted.set(!stored);
            stored
        };
        let n = match self.lease {
            Some(lease) => lease.harvest(capacity, report),
            None => self.set.set.harvest(capacity, report),
        };
        n as c_int
    }

    /// One round with in-process watches only: harvest, and sleep on the set's futex.
    fn step_here(&self, deadline: &mut Option<Option<Deadline>>) -> Option<Result<c_int, Errno>> {
        let set = self.set;
        let n = self.harvest(0);
        if n > 0 || self.faulted.get() {
            return Some(Ok(n));
        }
        let deadline = *deadline.get_or_insert_with(|| Deadline::of(self.timeout));
        if let ControlFlow::Break(round) = self.spin_here(deadline) {
            return round;
        }
        let stay = || set.state.is_pure() || mutant!("pure_without_look");
        let before = handled::any();
        let woken = cancel::point(|| set.set.sleep_once(stay, deadline));
        let n = self.harvest(0);
        if woken == Woken::Kicked {
            count_wake(&set.counted, set.fd() as u32, n == 0);
        }
        let result = match woken {
            _ if n > 0 || self.faulted.get() => Some(Ok(n)),
            // In the last stretch before a time.
            Woken::TimedOut | Woken::Kicked if handled::any() != before => Some(Err(Errno::EINTR)),
            Woken::TimedOut if set.state.is_pure() => Some(Ok(0)),
            Woken::Interrupted => Some(Err(Errno::EINTR)),
            Woken::Kicked | Woken::TimedOut => None,
        };
        count(Stat::WaitsSleptInProcess, usize::from(result.is_some()));
        result
    }
}
