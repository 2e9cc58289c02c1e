//! The wait: harvest, spin, sleep, harvest.

use crate::error::Error;
use crate::events::Event;
use crate::set::deadlines::leader::Minding;
use crate::set::event_poll::handle::EventPoll;
use crate::sync::Slept;
use crate::sync::time::{Deadline, Timeout};
use core::cell::Cell;

impl EventPoll {
    /// Waits for events: epoll_wait(2) and epoll_pwait2(2). Fills `events` from the front; how
    /// many.
    ///
    /// Returns 0 only when the time is up, never earlier. Several threads may wait; one event wakes
    /// one of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `events` is empty; [`Error::Interrupted`] if a signal handler ran
    /// while it slept.
    #[doc(alias = "epoll_wait")]
    #[doc(alias = "epoll_pwait2")]
    #[inline]
    pub fn wait(&self, events: &mut [Event], timeout: Timeout) -> Result<usize, Error> {
        if events.is_empty() {
            return Err(Error::Invalid);
        }
        let mut n = 0;
        self.wait_with(events.len(), timeout, &mut |event| {
            events[n] = event;
            n += 1;
            true
        })
    }

    /// [`wait`](Self::wait) that gives up to `maxevents` events to `report`, which must not call
    /// into a set. If `report` says `false`, it has not taken the event: that one is delivered
    /// again, first, and the wait ends (with 0 if it was the first).
    ///
    /// # Errors
    /// As [`wait`](Self::wait); `maxevents` 0 is invalid.
    #[inline]
    pub fn wait_with(
        &self,
        maxevents: usize,
        timeout: Timeout,
        report: &mut dyn FnMut(Event) -> bool,
    ) -> Result<usize, Error> {
        if maxevents == 0 {
            return Err(Error::Invalid);
        }
        let core = self.core();
        self.wait_by(timeout, report, |report| core.harvest(maxevents, report))
    }

    /// A wait whose harvests are `harvest`'s.
    #[inline]
    pub(crate) fn wait_by(
        &self,
        timeout: Timeout,
        report: &mut dyn FnMut(Event) -> bool,
        harvest: impl Fn(&mut dyn FnMut(Event) -> bool) -> usize,
    ) -> Result<usize, Error> {
        let refused = Cell::new(false);
        let mut harvest = || {
            harvest(&mut |event| {
                refused.set(!report(event));
                !refused.get()
            })
        };
        let reported = harvest();
        if reported != 0 || refused.get() || timeout == Timeout::Now {
            return Ok(reported);
        }
        let deadline = Deadline::of(timeout);
        let _minding = Minding(self.core());
        loop {
            let mut reported = 0;
            self.spin(
                deadline,
                || true,
                || {
                    reported = harvest();
                    reported.max(usize::from(refused.get()))
                },
            );
            if reported != 0 || refused.get() {
                return Ok(reported);
            }
            let slept = self.sleep(deadline);
            // Whatever ended the sleep: a kick may have come with it, and what it was for must not
            // lie.
            match (harvest(), slept) {
                (0, _) if refused.get() => return Ok(0),
                (0, Slept::TimedOut) => return Ok(0),
                (0, Slept::Interrupted) => return Err(Error::Interrupted),
                (0, Slept::Woken) => {}
                (reported, _) => return Ok(reported),
            }
        }
    }

    #[inline]
    fn sleep(&self, deadline: Option<Deadline>) -> Slept {
        let core = self.core();
        core.wake
            .waiters
            .adaptive_spin
            .asleep(false, || core.sleep_unless(|| core.may_be_ready(), deadline))
    }
}
