//! A wait on a set that may have watches in its kernel half: where it looks, in which order, and how it sleeps.

use crate::bell;
use crate::cancel;
use crate::count::count;
use crate::escape;
use crate::listeners;
use crate::polls;
use crate::ring;
use crate::section::Section;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::steps::step;
use crate::sys::{self, Errno, SIGSET_BYTES};
use crate::user;
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use libc::{epoll_event, timespec};
use wakeset::{Deadline, Event, Timeout, Woken, mutated};

/// Of two halves that are both ready and a buffer that has room for only one of them, each goes first in every second wait: a
/// ready watch of either is looked at again at the latest in this many waits.
pub const STARVATION_BOUND: u32 = 2;

/// How long a wait sleeps in the kernel half at a time when nobody can ring: the kernel has no watch left for a bell.
const WITHOUT_BELL: Duration = Duration::from_millis(5);

/// How long a wait may take, in the form it was asked for.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// epoll_wait(2) and epoll_pwait(2): milliseconds, negative for no limit.
    Milliseconds(c_int),
    /// epoll_pwait2(2): null for no limit.
    Timespec(*const timespec),
}

/// The signal mask of epoll_pwait(2): a pointer, null for none, and the size that was given with it.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// The kernel's signal set.
    pub set: *const u8,
    /// Its size in bytes.
    pub bytes: usize,
}

impl Mask {
    /// No mask.
    pub const NONE: Self = Self { set: ptr::null(), bytes: SIGSET_BYTES };
}

/// One wait on one set.
pub(crate) struct Wait<'a> {
    pub(crate) set: &'a FdSet,
    pub(crate) hand: Option<&'a wakeset::Hand<'static>>,
    pub(crate) events: *mut epoll_event,
    pub(crate) room: c_int,
    pub(crate) limit: Limit,
    pub(crate) timeout: Timeout,
    pub(crate) mask: Mask,
    /// How many signals the thread had handled, where that is asked.
    pub(crate) handled: Option<u32>,
    /// An event found no memory: the wait ends with what it has.
    pub(crate) faulted: Cell<bool>,
    /// The wait has taken a ring of the bell, which may have been meant for another.
    pub(crate) rung: Cell<bool>,
}

impl Wait<'_> {
    pub(crate) fn run(&self) -> Result<c_int, Errno> {
        let mut settled = Settled::now(self.set);
        let mut found = self.look();
        // A set in this one is moving, or has moved: what is ready in it may have been in neither half of this one.
        while found == Ok(0) && !self.faulted.get() && !settled.still(self.set) {
            settled = Settled::between_moves(self.set);
            let again = Wait {
                limit: Limit::Milliseconds(0),
                timeout: Timeout::Now,
                faulted: Cell::new(false),
                rung: Cell::new(false),
                ..*self
            };
            found = again.look();
            self.faulted.set(again.faulted.get());
            self.rung.set(self.rung.get() || again.rung.get());
        }
        found
    }

    fn look(&self) -> Result<c_int, Errno> {
        let set = self.set;
        if set.polls.are_active() && !polls::are_for_me(set) {
            polls::give_up(set);
        }
        // The usual case first: in-process watches only, and something ready.
        if set.is_pure() {
            let n = self.harvest(0);
            if n > 0 || self.timeout == Timeout::Now || self.faulted.get() {
                if set.is_pure() {
                    count(Stat::WaitsInProcess, 1);
                    count(Stat::SyscallsAvoided, 1);
                    return Ok(n);
                }
                if n > 0 {
                    return Ok(n);
                }
            }
        }
        let mut deadline = None;
        let mut first = true;
        loop {
            // A set without in-process watches goes to the kernel with what it was given, and reads no clock.
            let needs_clock = !first || set.bell.load(Ordering::SeqCst) >= 0 || !set.set.is_empty() || set.turns.any();
            if deadline.is_none() && needs_clock && self.timeout != Timeout::Now {
                deadline = Some(Deadline::of(self.timeout));
            }
            let until = || Until { deadline, timeout: self.timeout };
            let closed = set.closed.load(Ordering::SeqCst);
            if closed && (!self.mask.set.is_null() || set.in_kernel.load(Ordering::SeqCst)) {
                // The number may be another's. In Linux the wait goes on; here nothing more will come to it.
                let limit = until().left().map(timespec_of);
                return sys::wait_for_nothing(limit.as_ref(), self.mask.set, self.mask.bytes);
            }
            if set.in_kernel.load(Ordering::SeqCst) {
                // No in-process watch is left, or will be in a moment.
                escape::wait_for_moves();
                step!(kernel_before_sleep);
                let found = cancel::point(|| self.sleep_in_kernel(until(), false))?;
                step!(kernel_slept);
                match self.filter(0, found) {
                    0 if found > 0 => continue,
                    kept => return Ok(kept),
                }
            }
            set.turns.rescue_if_due(set);
            let both = set.has_kernel.load(Ordering::SeqCst) && !closed;
            if both && set.set.is_empty() && self.timeout == Timeout::Now {
                return self.look_outside(0, None);
            }
            let outcome =
                if both || !self.mask.set.is_null() { self.step_mixed(until()) } else { self.step_here(&mut deadline) };
            if let Some(result) = outcome {
                return result;
            }
            first = false;
        }
    }

    /// Harvests in-process events into the buffer behind the first `filled`; how many.
    fn harvest(&self, filled: c_int) -> c_int {
        let _section = Section::enter();
        let mut place = self.events.wrapping_add(filled as usize);
        let room = (self.room - filled) as usize;
        // A hand is told under the lock.
        if self.hand.is_none()
            && let Some(ring) = self.set.set.ring()
            && let Some(taken) = ring::take(ring, place, room)
        {
            return taken as c_int;
        }
        let report = |event: Event| {
            let event = epoll_event { events: event.events.bits(), u64: event.data };
            // SAFETY: the caller gives the memory for `room` events, and a harvest reports no more than it has room for.
            let stored = unsafe { user::store_event(place, event) };
            place = place.wrapping_add(1);
            self.faulted.set(!stored);
            stored
        };
        let n = match self.hand {
            Some(hand) => hand.harvest(room, report),
            None => self.set.set.harvest(room, report),
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
        let n = set.set.linger(|| self.harvest(0) as usize);
        if n > 0 {
            return Some(Ok(n as c_int));
        }
        let deadline = *deadline.get_or_insert_with(|| Deadline::of(self.timeout));
        let woken = cancel::point(|| set.set.sleep_once(|| set.is_pure(), deadline));
        let n = self.harvest(0);
        if woken == Woken::Kicked {
            count(Stat::Wakes, 1);
            count(Stat::SpuriousWakes, usize::from(n == 0));
        }
        match woken {
            _ if n > 0 || self.faulted.get() => Some(Ok(n)),
            Woken::TimedOut if set.is_pure() => Some(Ok(0)),
            Woken::Interrupted => Some(Err(Errno::EINTR)),
            Woken::Kicked | Woken::TimedOut => None,
        }
    }

    /// One round with both halves, or with a signal mask, which only the kernel can put in place and sleep at once.
    fn step_mixed(&self, until: Until) -> Option<Result<c_int, Errno>> {
        let set = self.set;
        if self.timeout == Timeout::Now || set.set.may_be_ready() || polls::have_news(set) {
            let kernel_first = set.turn.fetch_add(1, Ordering::Relaxed) % STARVATION_BOUND == STARVATION_BOUND - 1;
            let count_moved = || set.moved_watches.load(Ordering::SeqCst);
            // A ring is taken from without the lock of a move, in which this counts before the watch is gone from here.
            let moved = if set.set.ring().is_some() { set.set.between_scans(count_moved) } else { count_moved() };
            let mut n = 0;
            for kernel in [kernel_first, !kernel_first] {
                if n == self.room {
                    break;
                }
                if !kernel {
                    n += self.harvest(n);
                } else if set.has_kernel.load(Ordering::SeqCst) {
                    match self.look_outside(n, (n > 0).then_some(moved)) {
                        Ok(found) => n += found,
                        Err(error) if n == 0 => return Some(Err(error)),
                        Err(_) => {}
                    }
                }
                step!(half_looked_at);
            }
            if n > 0 || self.faulted.get() {
                return Some(Ok(n));
            }
            // A watch that moves from here to the kernel half between two looks in the other order is in neither.
            let all_seen = !kernel_first || count_moved() == moved || mutated!("halves_seen_apart");
            if self.timeout == Timeout::Now {
                return all_seen.then_some(Ok(0));
            }
        }
        // Nothing here. What is ready in the kernel half ends the sleep at once.
        let install_bell = !set.set.is_empty() || !set.has_kernel.load(Ordering::SeqCst);
        let bell = if install_bell { bell::install(set) } else { Ok(true) };
        if bell == Ok(false) && !set.is_fixed() {
            escape::fd(set.fd(), Stat::MovedLimit);
            return None;
        }
        // The kernel refuses a bell, and would refuse what moved: look here again and again.
        let bounded = bell != Ok(true);
        // Nobody sleeps longer without a look at the listeners.
        let in_turn = set.turns.any();
        let watched = set.turns.take_turns(set);
        // A handler between two pieces of a sleep; one that comes in the next few instructions is missed.
        if self.handled.is_some_and(|before| listeners::handled() != before) {
            return Some(Err(Errno::EINTR));
        }
        set.set.enter_elsewhere();
        step!(elsewhere_before_look);
        // After the count: what was added or pushed before is seen here, what comes later rings.
        let led = Cell::new(None);
        let result = if set.set.may_be_ready()
            || polls::have_news(set)
            || set.in_kernel.load(Ordering::SeqCst)
            || (!bounded && !set.set.is_empty() && set.bell.load(Ordering::SeqCst) < 0)
        {
            None
        } else {
            let until = if in_turn { until.at_most(set.turns.looked.until_next()) } else { until };
            let until = if bounded || !watched { until.at_most(WITHOUT_BELL) } else { until };
            led.set(set.set.lead());
            let until = led.get().map_or(until, |led| until.at_most(short_of(led.remaining())));
            Some(cancel::point(|| self.sleep_in_kernel(until, led.get().is_some())))
        };
        step!(elsewhere_slept);
        set.set.stop_leading(led.get());
        set.set.leave_elsewhere();
        let result = result?;
        let ended = !bounded && !in_turn && led.get().is_none() || until.left() == Some(Duration::ZERO);
        let timed_out = result == Ok(0) && ended;
        let rung = result.is_ok_and(|found| found > 0);
        if let Ok(found) = result {
            set.turns.note_reports(self.events, found, true);
        }
        let total = self.kernel_and_here(result);
        if rung {
            count(Stat::Wakes, 1);
            count(Stat::SpuriousWakes, usize::from(total == Ok(0)));
        }
        match total {
            // Only the bell, and somebody else was faster; or the end of a bounded sleep.
            Ok(0) if !timed_out && !self.faulted.get() => None,
            total => Some(total),
        }
    }

    /// After a sleep in the kernel half: what that said, and behind it what has become ready here.
    fn kernel_and_here(&self, result: Result<c_int, Errno>) -> Result<c_int, Errno> {
        let from_kernel = result.map_or(0, |found| self.filter(0, found));
        count(Stat::EventsFromKernel, from_kernel as usize);
        if from_kernel == self.room {
            return Ok(from_kernel);
        }
        let from_kernel = from_kernel + self.report_missing(from_kernel);
        let from_kernel = from_kernel + self.take_from_polls(from_kernel);
        match from_kernel + self.harvest(from_kernel) {
            0 => result.map(|_| 0),
            total => Ok(total),
        }
    }

    /// What listeners have that are not watched for lack of memory, behind the first `filled` events; how many.
    fn report_missing(&self, filled: c_int) -> c_int {
        self.set.turns.report_missing(self.events.wrapping_add(filled as usize), self.room - filled)
    }

    /// What is ready outside of this process's memory, behind the first `filled` events; how many. For `unless_moved` see
    /// [`look_at_kernel`](Self::look_at_kernel).
    fn look_outside(&self, filled: c_int, unless_moved: Option<u32>) -> Result<c_int, Errno> {
        let set = self.set;
        if !set.polls.are_active() {
            return self.look_at_kernel(filled, unless_moved);
        }
        if set.only_polls.load(Ordering::SeqCst) {
            let taken = self.take_from_polls(filled);
            if set.only_polls.load(Ordering::SeqCst) || taken > 0 {
                return Ok(taken);
            }
            return self.look_at_kernel(filled, unless_moved);
        }
        let (place, room) = (self.events.wrapping_add(filled as usize), (self.room - filled) as usize);
        // Counted there.
        let from_kernel = Cell::new(0);
        let found = polls::take_both(
            set,
            place,
            room,
            || self.faulted.set(true),
            |n| {
                let found = self.look_at_kernel(filled + n as c_int, unless_moved)? as usize;
                from_kernel.set(found);
                Ok(found)
            },
        )?;
        count(Stat::EventsFromKernel, found - from_kernel.get());
        Ok(found as c_int)
    }

    /// What the io_uring knows of, behind the first `filled` events; how many.
    fn take_from_polls(&self, filled: c_int) -> c_int {
        let room = (self.room - filled) as usize;
        let taken = polls::take(self.set, self.events.wrapping_add(filled as usize), room, || self.faulted.set(true));
        count(Stat::EventsFromKernel, taken);
        taken as c_int
    }

    /// What is ready in the kernel half now, behind the first `filled` events; how many.
    ///
    /// `unless_moved`: what this wait has found here was found after so many watches had moved. It may be in the kernel half since, and would be
    /// reported twice; so nothing is, if any has moved, and none can during the look.
    fn look_at_kernel(&self, filled: c_int, unless_moved: Option<u32>) -> Result<c_int, Errno> {
        let set = self.set;
        loop {
            let events = self.events.wrapping_add(filled as usize);
            let room = self.room - filled;
            let look = || sys::epoll_pwait(set.fd(), events, room, 0, ptr::null(), SIGSET_BYTES);
            let found = match unless_moved.filter(|_| !mutated!("halves_seen_twice")) {
                None => look()?,
                Some(before) => {
                    let _section = Section::enter();
                    let has_moved = || set.moved_watches.load(Ordering::SeqCst) != before;
                    set.set.between_scans(|| if has_moved() { Ok(0) } else { look() })?
                }
            };
            self.set.turns.note_reports(events, found, false);
            let kept = self.filter(filled, found);
            let kept = kept + self.report_missing(filled + kept);
            if kept > 0 || found == 0 {
                count(Stat::EventsFromKernel, kept as usize);
                return Ok(kept);
            }
            // Nothing but the bell, in the place of an event.
        }
    }

    /// Sleeps in the kernel half, where the bell wakes us too; to the nanosecond if it `leads`.
    fn sleep_in_kernel(&self, until: Until, leads: bool) -> Result<c_int, Errno> {
        let (fd, mask) = (self.set.fd(), self.mask);
        let in_milliseconds =
            |milliseconds| sys::epoll_pwait(fd, self.events, self.room, milliseconds, mask.set, mask.bytes);
        // Rounded up so as not to end early.
        let up = |left: Option<Duration>| {
            left.map_or(-1, |left| c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
        };
        // A program that gave milliseconds may run where epoll_pwait2(2) is not allowed.
        // A timer is worth the try, and where it is not there the rounding.
        if let Limit::Milliseconds(asked) = self.limit
            && !leads
        {
            return in_milliseconds(if until.deadline.is_none() { asked } else { up(until.left()) });
        }
        let left = until.left();
        let limit = left.map(timespec_of);
        match sys::epoll_pwait2(fd, self.events, self.room, limit.as_ref(), mask.set, mask.bytes) {
            // Before Linux 5.11, or not allowed.
            Err(Errno::ENOSYS | Errno::EPERM) => in_milliseconds(up(left)),
            result => result,
        }
    }

    /// Takes the bell's event out of the `found` events behind the first `filled`; how many are left.
    fn filter(&self, filled: c_int, found: c_int) -> c_int {
        if found <= 0 || !bell::has_ever_been_in(self.set) {
            return found;
        }
        let cookie = bell::cookie(self.set);
        let events = self.events.wrapping_add(filled as usize);
        // SAFETY: the kernel has just written `found` events there.
        let kept = unsafe { bell::take_out(events, found, |data| data == cookie) };
        if kept < found {
            self.rung.set(true);
        }
        kept
    }
}

/// What a set's [`unsettled`](FdSet::unsettled) was at the beginning of a look, unless a move was under way.
pub(crate) struct Settled(Option<u32>);

impl Settled {
    pub(crate) fn now(set: &FdSet) -> Self {
        Self(Some(set.unsettled.load(Ordering::SeqCst)).filter(|count| count.is_multiple_of(2)))
    }

    /// Waits for the moves under way.
    fn between_moves(set: &FdSet) -> Self {
        let _section = Section::enter();
        let _moving = escape::hold_moves();
        Self(Some(set.unsettled.load(Ordering::SeqCst)))
    }

    /// Whether the look can be believed if it has found nothing.
    pub(crate) fn still(&self, set: &FdSet) -> bool {
        self.0 == Some(set.unsettled.load(Ordering::SeqCst)) || mutated!("looks_beside_moves")
    }
}

/// When a wait ends: as asked for, or, once time has passed, at a deadline.
#[derive(Clone, Copy)]
struct Until {
    deadline: Option<Option<Deadline>>,
    timeout: Timeout,
}

impl Until {
    /// The same, or `limit` from now if that is earlier.
    fn at_most(self, limit: Duration) -> Self {
        let left = self.left().map_or(limit, |left| left.min(limit));
        Self { deadline: Some(Deadline::of(Timeout::After(left))), ..self }
    }

    /// How much time is left; `None` for no limit.
    fn left(self) -> Option<Duration> {
        match (self.deadline, self.timeout) {
            (Some(deadline), _) => deadline.map(Deadline::remaining),
            (None, Timeout::Never) => None,
            (None, Timeout::Now) => Some(Duration::ZERO),
            (None, Timeout::After(limit)) => Some(limit),
        }
    }
}

fn timespec_of(limit: Duration) -> timespec {
    timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(limit.subsec_nanos()) }
}

/// How long to sleep first for a timer that is due in `left`. Linux lets a wait in epoll last longer by up to a two-hundredth of its
/// length, so that it can wake several at once, and a timer not at all.
fn short_of(left: Duration) -> Duration {
    const SHORT: Duration = Duration::from_millis(10);
    if left < SHORT { left } else { left - left / 128 }
}
