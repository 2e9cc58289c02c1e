//! The pieces that a descriptor table builds its own waits and sets from.

use crate::events::{Event, Events};
use crate::set::base::set_core::SetCore;
use crate::set::changes::batch::Changes;
use crate::set::event_poll::handle::EventPoll;
use crate::sync::Slept;
use crate::sync::adaptive_spin::AdaptiveSpin;
use crate::sync::last_stretch::LastStretch;
use crate::sync::time::Deadline;
use crate::wake::source::Source;
use crate::wake::waiters::{DoorbellFn, Own};

impl EventPoll {
    /// Delivers what is ready now, without waiting.
    #[doc(hidden)]
    #[inline]
    pub fn harvest(&self, maxevents: usize, report: impl FnMut(Event) -> bool) -> usize {
        self.core().harvest(maxevents, report)
    }

    /// Whether a harvest could find something; never a wrong "no".
    #[doc(hidden)]
    #[inline]
    pub fn may_be_ready(&self) -> bool {
        self.core().may_be_ready()
    }

    /// Whether nothing is ready, and nothing will be by time alone.
    #[doc(hidden)]
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.core().is_quiet()
    }

    /// Wakes all who sleep in [`wait`](Self::wait), to look again.
    #[doc(hidden)]
    #[inline]
    pub fn kick_all(&self) {
        self.core().wake.waiters.kick_all();
    }

    /// Wakes one who sleeps, here or elsewhere.
    #[doc(hidden)]
    #[inline]
    pub fn kick(&self) {
        // The caller's change need not have been a read-modify-write.
        crate::sync::full_fence();
        self.core().wake.waiters.kick();
    }

    /// Counts in a waiter that will sleep in a kernel call and wants the doorbell rung. It must
    /// look at [`may_be_ready`](Self::may_be_ready) afterwards.
    #[doc(hidden)]
    #[inline]
    pub fn enter_remote(&self) {
        self.core().wake.waiters.enter_remote();
    }

    /// Whether such a waiter is counted in.
    #[doc(hidden)]
    #[inline]
    pub fn has_remote_waiter(&self) -> bool {
        self.core().wake.waiters.has_remote_waiter()
    }

    /// Counts it out.
    #[doc(hidden)]
    #[inline]
    pub fn leave_remote(&self) {
        self.core().wake.waiters.leave_remote();
    }

    /// Installs the doorbell for such waiters.
    #[doc(hidden)]
    pub fn set_doorbell(&self, bell: Option<(DoorbellFn, usize)>) {
        self.core().wake.waiters.set_doorbell(bell);
    }

    /// For a waiter counted in as [`enter_remote`](Self::enter_remote) does: until when it
    /// has to sleep at most, because nobody else minds the timers. It calls
    /// [`stop_leading`](Self::stop_leading) with that when it is awake.
    #[doc(hidden)]
    #[inline]
    pub fn lead(&self) -> Option<Deadline> {
        self.core().lead().map(Deadline::from_nanos)
    }

    /// It no longer sleeps.
    #[doc(hidden)]
    #[inline]
    pub fn stop_leading(&self, led: Option<Deadline>) {
        self.core().stop_leading(led.map(Deadline::as_nanos));
    }

    /// Before a waiter that has slept leaves: wakes another one if nobody minds the timers any
    /// more.
    #[doc(hidden)]
    #[inline]
    pub fn mind_deadline(&self) {
        self.core().mind_deadline();
    }

    /// Whether an exclusive wake may have been left to a wait that has counted itself out
    /// ([`leave_remote`](Self::leave_remote)) and has harvested nothing since.
    #[doc(hidden)]
    #[inline]
    pub fn has_left_exclusive(&self) -> bool {
        self.core().wake.waiters.has_left()
    }

    /// For such a wait that leaves with an array that the kernel has filled: those wakes go to
    /// other sets.
    #[doc(hidden)]
    pub fn pass_on_exclusive(&self) {
        self.core().pass_on_exclusive();
    }

    /// One sleep on the set's futex unless something may be ready or `stay` says no; it may end
    /// early.
    #[doc(hidden)]
    #[inline]
    pub fn sleep_once(&self, stay: impl Fn() -> bool, deadline: Option<Deadline>) -> Woken {
        let core = self.core();
        let spin = &core.wake.waiters.adaptive_spin;
        spin.asleep(false, || core.sleep_unless(|| core.may_be_ready() || !stay(), deadline)).into()
    }

    /// The adaptive spin before a sleep, until the deadline at most and while `stay` holds: what
    /// `harvest` gets, 0 if it is better to sleep.
    #[doc(hidden)]
    #[inline]
    pub fn spin(
        &self,
        deadline: Option<Deadline>,
        stay: impl Fn() -> bool,
        mut harvest: impl FnMut() -> usize,
    ) -> usize {
        let core = self.core();
        let waiters = &core.wake.waiters;
        let ready = || core.may_be_ready();
        match waiters.yield_for(true, || true, ready, &mut harvest) {
            0 => waiters.spin(Own::Uncounted, deadline, stay, ready, None, harvest),
            found => found,
        }
    }

    /// The same for a set with a kernel half: `ready` says whether there may be something
    /// elsewhere in memory, `outside` whether there is in the kernel half. `counted` says that the
    /// waiter is counted in for good ([`enter_remote`](Self::enter_remote)).
    #[doc(hidden)]
    pub fn spin_mixed(
        &self,
        counted: bool,
        deadline: Option<Deadline>,
        stay: impl Fn() -> bool,
        ready: impl Fn() -> bool,
        outside: &mut dyn FnMut() -> bool,
        mut harvest: impl FnMut() -> usize,
    ) -> usize {
        let core = self.core();
        let waiters = &core.wake.waiters;
        let ready = || core.may_be_ready() || ready();
        let own = if counted { Own::Remote } else { Own::Uncounted };
        match waiters.yield_for(false, || true, ready, &mut harvest) {
            0 => waiters.spin(own, deadline, stay, ready, Some(outside), harvest),
            found => found,
        }
    }

    /// After a sleep of the caller's until `stretch` began: spins until the time has come or
    /// something may be ready.
    #[doc(hidden)]
    pub fn pass_last_stretch(&self, stretch: &LastStretch) {
        self.core().pass_last_stretch(stretch);
    }

    /// The spin of the set's only waiter before the set watches what that waits for: `ready` says
    /// whether there is something, `outside`, for a wait on kernel descriptors as well, whether
    /// there is in the kernel. Whether one of them did.
    #[doc(hidden)]
    pub fn spin_unwatched(
        &self,
        deadline: Option<Deadline>,
        stay: impl Fn() -> bool,
        ready: impl Fn() -> bool,
        outside: Option<&mut dyn FnMut() -> bool>,
    ) -> bool {
        let waiters = &self.core().wake.waiters;
        match waiters.yield_for(outside.is_none(), &stay, &ready, || 1) {
            0 => waiters.spin(Own::Uncounted, deadline, stay, &ready, outside, || 1) != 0,
            _ => true,
        }
    }

    /// Times a sleep in the kernel half, for the spin before the next.
    #[doc(hidden)]
    pub fn asleep<T>(&self, sleep: impl FnOnce() -> T) -> T {
        self.core().wake.waiters.adaptive_spin.asleep(true, sleep)
    }

    /// [`asleep`](Self::asleep), which also returns whether that was a sleep, and not over at once;
    /// `None`: it was not timed.
    #[doc(hidden)]
    pub fn timed_sleep<T>(&self, sleep: impl FnOnce() -> T) -> (T, Option<bool>) {
        self.core().wake.waiters.adaptive_spin.timed_sleep(true, sleep)
    }

    /// When a sleep of the caller's begins, if something is to be learned from it, for
    /// [`note_sleep`](Self::note_sleep).
    #[doc(hidden)]
    pub fn begin_sleep() -> Option<Deadline> {
        AdaptiveSpin::begin_sleep().map(Deadline::from_nanos)
    }

    /// Takes note of a sleep for the spin before the next: it began then, and has ended.
    #[doc(hidden)]
    pub fn note_sleep(&self, began: Deadline) {
        self.core().wake.waiters.adaptive_spin.end_sleep(began.as_nanos(), true);
    }

    /// Takes the scan lock for several changes: what a descriptor table builds its batches from.
    #[doc(hidden)]
    #[inline]
    pub fn begin_changes(&self) -> Changes<'_> {
        Changes::begin(self.core())
    }

    /// Calls `f(descriptor, source, interest, data)` for each watch, with the scan lock held.
    #[doc(hidden)]
    pub fn for_each(&self, f: impl FnMut(i32, *const dyn Source, Events, u64)) {
        self.core().for_each(f);
    }

    /// Calls `f` while nobody harvests or changes the set: nobody who had the scan lock at the call
    /// has it any more.
    #[doc(hidden)]
    pub fn between_scans<T>(&self, f: impl FnOnce() -> T) -> T {
        self.core().between_scans(f)
    }

    /// Removes every watch and every watch on it, and takes no more until [`reopen`](Self::reopen).
    #[doc(hidden)]
    pub fn close(&self) {
        self.core().close();
    }

    /// Whether it has been closed, by the calling thread or by one that this has heard from.
    #[doc(hidden)]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.core().is_closed()
    }

    /// Makes a closed set an empty open one.
    #[doc(hidden)]
    #[inline]
    pub fn reopen(&self) {
        self.core().open(self.engine.shared(), self.core().wake.ready_list());
    }

    /// Removes every watch of a set that one thread at a time waits in, and none watches: as
    /// [`close`](Self::close) and [`reopen`](Self::reopen), but it keeps the memory for a few.
    #[doc(hidden)]
    #[inline]
    pub fn clear(&self) {
        self.core().clear();
        self.reopen();
    }

    /// What [`WaitQueue::detach_watches`] tells of this set.
    #[doc(hidden)]
    pub fn set_owner(&self, owner: usize) {
        self.core().set_owner(owner);
    }

    /// The core, for [`Source::as_set`] of a wrapper.
    #[doc(hidden)]
    #[inline]
    pub fn as_core(&self) -> &SetCore {
        self.core()
    }
}

/// How one sleep ended.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Kicked, or there was no need to sleep.
    Kicked,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

impl From<Slept> for Woken {
    fn from(slept: Slept) -> Self {
        match slept {
            Slept::Woken => Self::Kicked,
            Slept::TimedOut => Self::TimedOut,
            Slept::Interrupted => Self::Interrupted,
        }
    }
}
