//! The leader: the waiter that sleeps until the set's deadline.

use crate::set::base::set_core::SetCore;
use crate::sync::last_stretch::LastStretch;
use crate::sync::time::Deadline;
use crate::sync::{Ordering, Slept, after_publishing};
use crate::wake::timed::NEVER;
use crate::wake::waiters::Published;
use core::cell::Cell;

impl SetCore {
    /// Wakes a waiter to sleep until the deadline, if none does.
    pub(crate) fn mind_deadline(&self) {
        if mutant!("nobody_takes_over") {
            return;
        }
        if self.wake.waiters.deadline() < self.led_until.load(Ordering::SeqCst) {
            self.wake.waiters.kick();
        }
    }

    /// After the scan lock is free: wakes a waiter for what nobody minds under the new deadline.
    #[inline]
    pub(in crate::set) fn mind_published(&self, published: Published) {
        match published {
            Published::Same => {}
            Published::Earlier => {
                if !mutant!("earlier_is_unheard") {
                    self.mind_deadline();
                }
            }
            Published::Later => self.mind_unplanned(),
        }
    }

    /// The other half of a timer's setting (`wake_at`), which pushes the watch and then kicks
    /// nobody if the deadline comes first: what was pushed before the deadline became later is
    /// planned by nobody but a waiter that is told.
    #[cold]
    fn mind_unplanned(&self) {
        after_publishing(false);
        if !self.wake.incoming.is_empty() && !mutant!("later_is_unheard") {
            self.wake.waiters.kick();
        }
    }

    /// For a waiter that is counted in and about to sleep: until when it leads, if nobody else
    /// does.
    pub(crate) fn lead(&self) -> Option<u64> {
        let at = self.wake.waiters.deadline();
        if at == NEVER {
            return None;
        }
        let mut until = self.led_until.load(Ordering::SeqCst);
        // A leader whose time is over has been stopped before it could say so.
        while at < until && !(mutant!("first_leads") && until != NEVER)
            || until <= Deadline::now().as_nanos()
        {
            match self.led_until.compare_exchange(until, at, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(at),
                Err(now) => until = now,
            }
        }
        None
    }

    /// It no longer sleeps.
    pub(crate) fn stop_leading(&self, led: Option<u64>) {
        if let Some(at) = led {
            // Unless another has taken over meanwhile.
            let _ = self.led_until.compare_exchange(at, NEVER, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// After a sleep that has timed out: spins until the time has come, as a waiter that needs no
    /// waking. The caller harvests afterwards.
    pub(crate) fn pass_last_stretch(&self, stretch: &LastStretch) {
        if let Some(left) = stretch.left() {
            let ready = || self.may_be_ready();
            self.wake.waiters.while_spinning(|| left.spin(ready));
        }
    }

    /// Sleeps until kicked, at most until `deadline`, unless `ready()`; and no longer than the
    /// set's own deadline if nobody else minds that.
    pub(crate) fn sleep_unless(
        &self,
        ready: impl FnOnce() -> bool,
        deadline: Option<Deadline>,
    ) -> Slept {
        self.sleep_with(deadline, |until| self.wake.waiters.sleep_unless(ready, until))
    }

    /// The same with a sleep of the caller's, until what it is given says when it is about to
    /// begin.
    pub(crate) fn sleep_with(
        &self,
        deadline: Option<Deadline>,
        sleep: impl FnOnce(&dyn Fn() -> Option<Deadline>) -> Slept,
    ) -> Slept {
        let led = Cell::new(None);
        let stretch = LastStretch::new();
        let slept = sleep(&|| {
            led.set(self.lead());
            let due = match (deadline, led.get().map(Deadline::from_nanos)) {
                (Some(deadline), Some(own)) => Some(deadline.min(own)),
                (deadline, own) => deadline.or(own),
            };
            due.map(|due| stretch.begin(due))
        });
        if slept == Slept::TimedOut {
            self.pass_last_stretch(&stretch);
        }
        self.stop_leading(led.get());
        match slept {
            // The set's time, not the caller's.
            Slept::TimedOut if deadline.is_none_or(|deadline| Deadline::now() < deadline) => {
                Slept::Woken
            }
            slept => slept,
        }
    }
}

/// A waiter that is about to leave: another one minds the deadline then.
pub(crate) struct Minding<'a>(pub(crate) &'a SetCore);

impl Drop for Minding<'_> {
    fn drop(&mut self) {
        self.0.mind_deadline();
    }
}
