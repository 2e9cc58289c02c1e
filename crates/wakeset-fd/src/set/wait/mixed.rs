//! A round of a wait that has both halves to look at, or a signal mask.

use super::limits::{Until, short_of};
use super::{STARVATION_BOUND, Wait};
use crate::set::{doorbell, first_listener, polls};
use crate::stats::Stat;
use crate::stats::count::count_wake;
use crate::sys::Errno;
use crate::sys::cancel;
use crate::sys::handled;
use crate::sys::steps::step;
use core::ffi::c_int;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use core::time::Duration;
use wakeset::{Deadline, LastStretch, Timeout, mutant, mutated};

/// How long a wait sleeps in the kernel half at a time when no waker can reach it there: the kernel
/// has no watch left for a doorbell.
const WITHOUT_DOORBELL: Duration = Duration::from_millis(5);

/// What the end of a round means: the wait's result, or `None` for another round.
pub(super) type Round = Option<Result<c_int, Errno>>;

/// Why a sleep may have to end before the wait does.
struct Bounds {
    /// The set has no doorbell: what becomes ready in process has to be looked for.
    no_doorbell: bool,
    /// One of the listeners has no watch, because the set has stepped back or for lack of memory.
    listener_look: Option<Duration>,
}

/// How a sleep has ended.
struct Slept {
    result: Result<c_int, Errno>,
    /// If it has found nothing, the wait's time is up.
    to_the_end: bool,
    /// The set had listeners when the sleep began, so that it ended in time to look at them.
    knew_listeners: bool,
}

impl Wait<'_> {
    /// One round with both halves, or with a signal mask, which only the kernel can put in place
    /// and sleep at once. Apart from the round in process, which it would be in the way of.
    #[inline(never)]
    pub(super) fn step_mixed(&self, until: Until) -> Round {
        if let ControlFlow::Break(round) = self.check_both() {
            return round;
        }
        if self.set.rotation.looks_first() {
            match self.check_outside(0, None) {
                Ok(0) if !self.faulted.get() => self.set.rotation.note_nothing(),
                found => return Some(found),
            }
        }
        if let ControlFlow::Break(round) = self.spin_mixed(until) {
            return round;
        }
        let bounds = match self.prepare_sleep() {
            ControlFlow::Continue(bounds) => bounds,
            ControlFlow::Break(round) => return round,
        };
        let Slept { result, to_the_end, knew_listeners } = self.sleep_mixed(until, &bounds)?;
        let timed_out =
            result == Ok(0) && to_the_end && !self.set.rotation.outstays(|| until.late());
        match self.after_sleep(knew_listeners, result) {
            // Only the doorbell, and another waiter was faster; or the end of a bounded sleep.
            Ok(0) if !timed_out && !self.faulted.get() => None,
            total => Some(total),
        }
    }

    /// What a sleep in the kernel half has reported, and what is ready here. `knew_listeners`: the
    /// set had some when it began.
    fn after_sleep(
        &self,
        knew_listeners: bool,
        result: Result<c_int, Errno>,
    ) -> Result<c_int, Errno> {
        if !knew_listeners && self.set.rotation.any() {
            // There was one sleep for the whole wait until here.
            if self.handled.get().is_none() {
                self.handled.set(Some(handled::any()));
            }
            // Others have slept since before the first listener as well.
            first_listener::tell_next(self.set);
        }
        // Before anything of ours is taken out: what has found no room is left behind.
        self.set.rotation.note_sleep(result.unwrap_or(-1), self.capacity);
        let result = result.map(|found| self.step_back(found));
        let woken = result.is_ok_and(|found| found > 0);
        let rung_before = self.rung.replace(false);
        if let Ok(found) = result {
            self.set.rotation.note_reports(self.events, found, true);
        }
        let total = self.kernel_and_here(result);
        // What the kernel half has reported is no wake of ours.
        if woken && (self.rung.get() || total == Ok(0)) {
            count_wake(&self.set.counted, self.set.fd() as u32, total == Ok(0));
        }
        self.rung.set(rung_before || self.rung.get());
        total
    }

    /// The rest of a wait that has slept in the kernel half already, as a quiet one does.
    pub(crate) fn run_slept(
        &self,
        knew_listeners: bool,
        result: Result<c_int, Errno>,
    ) -> Result<c_int, Errno> {
        let result = match self.after_sleep(knew_listeners, result) {
            Ok(0) if !self.faulted.get() => self.run(),
            result => self.leave(result),
        };
        if result == Ok(0) && self.faulted.get() { Err(Errno::EFAULT) } else { result }
    }

    /// Looks at both halves, each first in every second wait, if there may be something.
    pub(super) fn check_both(&self) -> ControlFlow<Round> {
        let set = self.set;
        let now = self.timeout == Timeout::Now;
        if !now && !set.set.may_be_ready() && !polls::have_news(set) {
            return ControlFlow::Continue(());
        }
        let kernel_first = set.round_robin.fetch_add(1, Ordering::Relaxed) % STARVATION_BOUND
            == STARVATION_BOUND - 1;
        let count_migrated = || set.migrated_watches.load(Ordering::SeqCst);
        // A ring is taken from without the lock under which a watch migrates, and in which this
        // counts before the watch is gone from here.
        let migrated = if set.set.ring().is_some() {
            set.set.between_scans(count_migrated)
        } else {
            count_migrated()
        };
        let mut n = 0;
        for kernel in [kernel_first, !kernel_first] {
            if n == self.capacity {
                break;
            }
            if !kernel {
                n += self.harvest(n);
            } else if set.state.has_kernel() {
                match self.check_outside(n, (n > 0).then_some(migrated)) {
                    Ok(found) => n += found,
                    Err(error) if n == 0 => return ControlFlow::Break(Some(Err(error))),
                    Err(_) => {}
                }
            }
            step!(half_looked_at);
        }
        if n > 0 || self.faulted.get() {
            return ControlFlow::Break(Some(Ok(n)));
        }
        // A watch that migrates to the kernel half between two checks in the other order is in
        // neither.
        let all_seen =
            !kernel_first || count_migrated() == migrated || mutated!("halves_seen_apart");
        match now {
            true => ControlFlow::Break(all_seen.then_some(Ok(0))),
            false => ControlFlow::Continue(()),
        }
    }

    /// Before a sleep in the kernel half: what is ready there ends it at once.
    fn prepare_sleep(&self) -> ControlFlow<Round, Bounds> {
        let set = self.set;
        let wants_doorbell = !set.set.is_empty() || !set.state.has_kernel();
        let installed = if wants_doorbell { doorbell::install(set) } else { Ok(true) };
        if installed == Ok(false) && !set.state.is_fixed() {
            set.migrate(Stat::MigratedLimit);
            return ControlFlow::Break(None);
        }
        let bounds = Bounds {
            // The kernel refuses a doorbell, and would refuse what migrates.
            no_doorbell: installed != Ok(true),
            listener_look: set.rotation.rotate(set),
        };
        // A handler between two pieces of a sleep; one that comes in the next few instructions is
        // missed.
        if self.handled.get().is_some_and(|before| handled::any() != before) {
            return ControlFlow::Break(Some(self.interrupted()));
        }
        ControlFlow::Continue(bounds)
    }

    /// Leaves connections among the `found` events to workers that hold less; how many are left.
    fn step_back(&self, found: c_int) -> c_int {
        let (left, passes) = self.set.rotation.step_back(self.set, self.events, found);
        if passes {
            self.passes_on.set(true);
        }
        left
    }

    /// How long to sleep for a timer that is due then. The kernel puts the signal mask in place for
    /// the sleep alone, so with one the thread does not spin.
    fn shorten(&self, due: Deadline, stretch: &LastStretch) -> Duration {
        let left = due.remaining();
        match short_of(left) {
            whole if whole == left && self.mask.set.is_null() => stretch.begin(due).remaining(),
            short => short,
        }
    }

    /// After such a sleep: the last stretch, if the sleep has found nothing. A handler that runs in
    /// it ends the wait.
    fn pass_last_stretch(
        &self,
        result: Result<c_int, Errno>,
        stretch: &LastStretch,
    ) -> Result<c_int, Errno> {
        // To ask for the handlers is a call, and a page that a sleep leaves cold.
        if result != Ok(0) || !stretch.has_begun() {
            return result;
        }
        let before = handled::any();
        self.set.set.pass_last_stretch(stretch);
        if handled::any() == before { result } else { Err(Errno::EINTR) }
    }

    /// When a sleep ends for a look at the listeners: no later than `end`, unless the wait outstays
    /// its time.
    fn until_look(&self, until: Until, end: Until, look: Duration) -> Until {
        let outstays = self.set.rotation.outstays(|| until.late());
        if outstays { Until::of(Timeout::Never) } else { end }.at_most(look)
    }

    /// Sleeps in the kernel half as a remote waiter. `None`: a check after the count has found
    /// something to do, and another round does it.
    fn sleep_mixed(&self, until: Until, bounds: &Bounds) -> Option<Slept> {
        let set = self.set;
        let early = mutant!("listeners_known_early").then(|| set.rotation.any());
        set.set.enter_remote();
        step!(elsewhere_before_look);
        // After the count too: `first_listener`.
        let has_listeners = early.unwrap_or_else(|| set.rotation.any());
        // After the count: what was pushed before is seen here, what is pushed later rings. Where
        // the set has got its first source since `prepare_sleep`, and has no doorbell yet, the add
        // installs one and rings it for counted waiters (`install_held`). But the adding thread may
        // be stopped before that, so the next round of this wait installs it too.
        let no_sleep = (set.set.may_be_ready() && !mutant!("remote_without_look"))
            || polls::have_news(set)
            || set.state.has_left_halves()
            || (!bounds.no_doorbell
                && !set.set.is_empty()
                && set.doorbell.load(Ordering::SeqCst) < 0);
        let (mut led, mut end) = (None, until);
        let stretch = LastStretch::new();
        let result = (!no_sleep).then(|| {
            if has_listeners {
                // They may have gone since the round began, and with them what bounds the sleep.
                end = match self.calm.get() {
                    Some(left) => end.soon_at_most(left),
                    None => end.no_later_than(set.rotation.rescue_clock.next()),
                };
            }
            if bounds.no_doorbell {
                end = end.at_most(WITHOUT_DOORBELL);
            }
            if let Some(look) = bounds.listener_look {
                end = self.until_look(until, end, look);
            }
            led = set.set.lead();
            if let Some(led) = led {
                end = end.at_most(self.shorten(led, &stretch));
            }
            let exact = led.is_some() || bounds.listener_look.is_some();
            cancel::point(|| {
                // Waits in a set with listeners spin as long as they are told to, or not at all, so
                // they have nothing to learn.
                if has_listeners || set.set.is_empty() && !set.polls.are_active() {
                    return self.sleep_in_kernel(end, exact);
                }
                set.set.asleep(|| self.sleep_in_kernel(end, exact))
            })
        });
        step!(elsewhere_slept);
        set.set.stop_leading(led);
        set.set.leave_remote();
        // A sleep that has found something reads no clock.
        let is_over = |result| result == Ok(0) && until.left() == Some(Duration::ZERO);
        let result =
            result.map(|r| if is_over(r) { r } else { self.pass_last_stretch(r, &stretch) });
        // If it was cut short, the kernel half has said nothing of the time since. Where the wait's
        // time is up by now the thread may have lost its processor, and another round looks.
        let is_taken = mutated!("wait_ends_unlooked") && result.is_some_and(is_over);
        let to_the_end = !end.is_cut || is_taken;
        result.map(|result| Slept { result, to_the_end, knew_listeners: has_listeners })
    }
}
