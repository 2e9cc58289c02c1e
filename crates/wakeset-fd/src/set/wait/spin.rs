//! The adaptive spin of a wait, before it sleeps (`docs/design/harvest.md`, "Whether to sleep").

use super::Wait;
use super::busy_poll;
use super::limits::Until;
use super::mixed::Round;
use crate::set::polls;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::{Errno, handled};
use core::cell::Cell;
use core::ffi::c_int;
use core::ops::ControlFlow;
use wakeset::{Deadline, Timeout, mutant};

impl Wait<'_> {
    /// In a set without a kernel half.
    pub(super) fn spin_here(&self, deadline: Option<Deadline>) -> ControlFlow<Round> {
        let set = self.set;
        let stay = || set.state.is_pure() || mutant!("pure_without_look");
        let before = handled::any();
        let found = Cell::new(0);
        let harvest = || {
            found.set(self.harvest(0));
            found.get() > 0 || self.faulted.get()
        };
        set.set.spin(deadline, stay, || usize::from(harvest()));
        let interrupted = handled::any() != before;
        // What has come before the handler, or was left to this waiter, goes first.
        if found.get() == 0 && interrupted && !self.faulted.get() {
            harvest();
        }
        match found.get() {
            0 if self.faulted.get() => ControlFlow::Break(Some(Ok(0))),
            0 if interrupted => ControlFlow::Break(Some(Err(Errno::EINTR))),
            0 => ControlFlow::Continue(()),
            found => {
                count(Stat::WaitsInProcess, 1);
                count(Stat::SyscallsAvoided, 1);
                ControlFlow::Break(Some(Ok(found)))
            }
        }
    }

    /// In a set with both halves, or with kernel descriptors alone, which spins only if the program
    /// has been told how long.
    pub(super) fn spin_mixed(&self, until: Until) -> ControlFlow<Round> {
        let set = self.set;
        let is_kernels = set.set.is_empty() && !set.polls.are_active();
        if is_kernels && wakeset::spin_limit().is_none() {
            return ControlFlow::Continue(());
        }
        self.spin_at(false, until, || !set.state.is_in_kernel(), || self.check_both())
    }

    /// In an exported set, for the loop that has its number and is about to sleep on that.
    pub(crate) fn spin_for_loop(&self) -> Result<c_int, Errno> {
        let set = self.set;
        if !set.state.is_exported() || set.state.is_in_kernel() {
            return Ok(0);
        }
        let until = Until::of(Timeout::Never);
        let stay = || !set.state.is_in_kernel();
        let found = match self.spin_at(true, until, stay, || self.check_both()) {
            // A handler has run: the loop goes on.
            ControlFlow::Break(Some(Err(Errno::EINTR)) | None) | ControlFlow::Continue(()) => Ok(0),
            ControlFlow::Break(Some(result)) => result,
        };
        self.leave(found)
    }

    /// In a set that has migrated, on the same condition.
    pub(super) fn spin_in_kernel(&self, until: Until) -> ControlFlow<Round> {
        if wakeset::spin_limit().is_none() {
            return ControlFlow::Continue(());
        }
        self.spin_at(false, until, || self.set.state.is_in_kernel(), || ControlFlow::Continue(()))
    }

    /// Not with a signal mask, which only the sleep puts in place, nor where connections are given
    /// to workers in an order (`may_spin` of the rotation). `stay` says that the set is where it
    /// was; `check` gets what is ready in process. `counted` is for the loop of an exported set.
    fn spin_at(
        &self,
        counted: bool,
        until: Until,
        stay: impl Fn() -> bool,
        check: impl Fn() -> ControlFlow<Round>,
    ) -> ControlFlow<Round> {
        let set = self.set;
        if !set.rotation.may_spin() || !self.mask.set.is_null() {
            return ControlFlow::Continue(());
        }
        // Where it has listeners, they are checked once in a rescue period.
        let until = match set.rotation.any() {
            true => until.no_later_than(set.rotation.rescue_clock.next()),
            false => until,
        };
        // By the exact clock, after a time that may be long.
        self.calm.set(None);
        busy_poll::tell(set);
        let deadline = until.left().and_then(|left| Deadline::of(Timeout::After(left)));
        let before = handled::any();
        // What the look at the kernel half has found.
        let outside = Cell::new(0);
        let round = Cell::new(ControlFlow::Continue(()));
        set.set.spin_mixed(
            counted,
            deadline,
            // The number of a closed set may be another's by now.
            || stay() && !set.state.is_closed() && set.rotation.may_spin(),
            || polls::have_news(set),
            &mut || {
                // The sleep finds an error, too.
                outside.set(self.check_outside(0, None).unwrap_or(0));
                outside.get() > 0 || self.faulted.get()
            },
            || {
                round.set(match outside.replace(0) {
                    0 if !self.faulted.get() => check(),
                    found => ControlFlow::Break(Some(Ok(found + self.harvest(found)))),
                });
                usize::from(round.get().is_break())
            },
        );
        match round.get() {
            ControlFlow::Continue(()) if set.state.is_closed() => ControlFlow::Break(None),
            ControlFlow::Continue(()) if handled::any() != before => {
                ControlFlow::Break(Some(self.interrupted()))
            }
            round => round,
        }
    }

    /// The result of a wait in which a handler has run: what has come before it, or was left to
    /// this waiter, goes first.
    pub(super) fn interrupted(&self) -> Result<c_int, Errno> {
        match self.check_outside(0, None) {
            Ok(found) if found > 0 || self.faulted.get() => Ok(found + self.harvest(found)),
            _ => self.kernel_and_here(Err(Errno::EINTR)),
        }
    }
}
