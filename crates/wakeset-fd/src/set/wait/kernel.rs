//! What a wait finds and does in the kernel half of its set, including the io_uring's part.

use super::limits::{Until, milliseconds_of, timespec_of};
use super::{Limit, Wait};
use crate::set::{doorbell, polls};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::{self, Errno};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use libc::epoll_event;
use wakeset::{Timeout, mutated};

impl Wait<'_> {
    /// After a sleep in the kernel half: what that said, and behind it what has become ready here.
    pub(super) fn kernel_and_here(&self, result: Result<c_int, Errno>) -> Result<c_int, Errno> {
        let from_kernel = result.map_or(0, |found| self.filter(0, found));
        count(Stat::EventsFromKernel, from_kernel as usize);
        if from_kernel == self.capacity {
            return Ok(from_kernel);
        }
        let from_kernel = from_kernel + self.report_missing(from_kernel);
        let from_kernel = from_kernel + self.take_from_polls(from_kernel);
        match from_kernel + self.harvest(from_kernel) {
            0 => result.map(|_| 0),
            total => Ok(total),
        }
    }

    /// What listeners have that are not watched for lack of memory, after the first `filled`
    /// events; how many.
    pub(super) fn report_missing(&self, filled: c_int) -> c_int {
        self.set.rotation.report_missing(self.events, filled, self.capacity)
    }

    /// What is ready outside of this process's memory, after the first `filled` events; how many.
    /// For `unless_moved` see [`check_kernel`](Self::check_kernel).
    pub(super) fn check_outside(
        &self,
        filled: c_int,
        unless_moved: Option<u32>,
    ) -> Result<c_int, Errno> {
        let set = self.set;
        if !set.polls.are_active() {
            return self.check_kernel(filled, unless_moved);
        }
        if set.state.has_only_polls() {
            let taken = self.take_from_polls(filled);
            if set.state.has_only_polls() || taken > 0 {
                return Ok(taken);
            }
            return self.check_kernel(filled, unless_moved);
        }
        let (place, capacity) =
            (self.events.wrapping_add(filled as usize), (self.capacity - filled) as usize);
        // Counted there.
        let from_kernel = Cell::new(0);
        let found = polls::take_both(
            set,
            place,
            capacity,
            || self.faulted.set(true),
            |n| {
                let found = self.check_kernel(filled + n as c_int, unless_moved)? as usize;
                from_kernel.set(found);
                Ok(found)
            },
        )?;
        count(Stat::EventsFromKernel, found - from_kernel.get());
        Ok(found as c_int)
    }

    /// What the io_uring knows of, after the first `filled` events; how many.
    pub(super) fn take_from_polls(&self, filled: c_int) -> c_int {
        if self.set.polls.are_active() { self.take_from_active_polls(filled) } else { 0 }
    }

    /// Apart, for its two kilobytes of stack: a signal may find a wait on a small one.
    #[inline(never)]
    fn take_from_active_polls(&self, filled: c_int) -> c_int {
        let capacity = (self.capacity - filled) as usize;
        let taken =
            polls::take(self.set, self.events.wrapping_add(filled as usize), capacity, || {
                self.faulted.set(true)
            });
        count(Stat::EventsFromKernel, taken);
        taken as c_int
    }

    /// What is ready in the kernel half now, after the first `filled` events; how many.
    ///
    /// `unless_moved`: what this wait has found here was found after so many watches had moved. It
    /// may be in the kernel half since, and would be reported twice; so nothing is, if any has
    /// moved, and none can during the look.
    pub(super) fn check_kernel(
        &self,
        filled: c_int,
        unless_moved: Option<u32>,
    ) -> Result<c_int, Errno> {
        let set = self.set;
        loop {
            let events = self.events.wrapping_add(filled as usize);
            let capacity = self.capacity - filled;
            let bytes = self.mask.bytes;
            let check = || sys::epoll_pwait(set.fd(), events, capacity, 0, ptr::null(), bytes);
            let found = match unless_moved.filter(|_| !mutated!("halves_seen_twice")) {
                None => check()?,
                Some(before) => {
                    let _guard = SignalGuard::enter();
                    let has_moved = || set.migrated_watches.load(Ordering::SeqCst) != before;
                    set.set.between_scans(|| if has_moved() { Ok(0) } else { check() })?
                }
            };
            let seen = found;
            let found = self.leave_for_now(events, found, capacity);
            self.set.rotation.note_reports(events, found, false);
            let kept = self.filter(filled, found);
            let kept = kept + self.report_missing(filled + kept);
            // Without events there were only the doorbell, the baton or the alarm, in the place of
            // one. In a closed set they may be another's, whose doorbell has been rung again.
            if kept > 0 || found == 0 || found < seen || set.state.is_closed() {
                count(Stat::EventsFromKernel, kept as usize);
                return Ok(kept);
            }
        }
    }

    /// Where this wait only looks: how many of the `found` events are left without connections that
    /// belong to workers that hold less. With a full buffer something else may not have had room.
    fn leave_for_now(&self, events: *mut epoll_event, found: c_int, capacity: c_int) -> c_int {
        if self.timeout != Timeout::Now || found == capacity {
            return found;
        }
        // SAFETY: the kernel has just written `found` events there.
        unsafe { self.set.rotation.leave_for_now(events, found) }
    }

    /// Sleeps in the kernel half, where the doorbell wakes us too; to the nanosecond if `exact`.
    pub(super) fn sleep_in_kernel(&self, until: Until, exact: bool) -> Result<c_int, Errno> {
        let (fd, mask) = (self.set.fd(), self.mask);
        step!(elsewhere_before_sleep);
        let in_milliseconds = |milliseconds| {
            sys::epoll_pwait(fd, self.events, self.capacity, milliseconds, mask.set, mask.bytes)
        };
        let up = |left: Option<Duration>| left.map_or(-1, milliseconds_of);
        // A program that gave milliseconds may run where epoll_pwait2(2) is not allowed.
        // A timer is worth the try, and where it is not there the rounding.
        if let Limit::Milliseconds(asked) = self.limit
            && !exact
        {
            let is_as_asked = until.deadline.is_none() && until.timeout == self.timeout;
            return in_milliseconds(if is_as_asked { asked } else { up(until.left()) });
        }
        let left = until.left();
        let limit = left.map(timespec_of);
        match sys::epoll_pwait2(
            fd,
            self.events,
            self.capacity,
            limit.as_ref(),
            mask.set,
            mask.bytes,
        ) {
            // Before Linux 5.11, or not allowed.
            Err(error) if sys::is_refusal(error) => in_milliseconds(up(left)),
            result => result,
        }
    }

    /// Takes the events of the doorbell, the baton and the alarm out of the `found` events after
    /// the first `filled`; how many are left.
    pub(super) fn filter(&self, filled: c_int, found: c_int) -> c_int {
        if found <= 0 {
            return found;
        }
        let kept = self.filter_own(filled, found);
        if self.set.state.is_closed() { self.leave_to_another(filled, kept) } else { kept }
    }

    /// After a call by the number of a closed set, which may be another's by now: the wait has
    /// taken what wakes that set's waiters. How many of the `found` events after the first
    /// `filled` are left.
    #[cold]
    #[inline(never)]
    fn leave_to_another(&self, filled: c_int, found: c_int) -> c_int {
        let events = self.events.wrapping_add(filled as usize);
        // SAFETY: there are so many.
        let (kept, passes) = unsafe { doorbell::leave_to_another(self.set.fd(), events, found) };
        if passes {
            self.passes_on.set(true);
        }
        kept
    }

    fn filter_own(&self, filled: c_int, found: c_int) -> c_int {
        if !doorbell::has_ever_been_in(self.set) {
            return found;
        }
        let (rung, passed, alarmed) = (Cell::new(false), Cell::new(false), Cell::new(false));
        let marks = [
            (doorbell::cookie(self.set), &rung),
            (doorbell::baton_cookie(self.set), &passed),
            (doorbell::alarm_cookie(self.set), &alarmed),
        ];
        let is_ours = |data| {
            let mark = marks.iter().find(|(cookie, _)| data == *cookie);
            mark.inspect(|(_, seen)| seen.set(true)).is_some()
        };
        let events = self.events.wrapping_add(filled as usize);
        // SAFETY: the kernel has just written `found` events there.
        let kept = unsafe { doorbell::take_out(events, found, is_ours) };
        if rung.get() {
            self.rung.set(true);
        }
        if alarmed.get() {
            self.set.rotation.take_alarm(self.set, || self.set.set.has_remote_waiter());
        }
        if passed.get() && self.set.rotation.take_baton(self.set, filled + kept) {
            self.passes_on.set(true);
        }
        kept
    }
}
