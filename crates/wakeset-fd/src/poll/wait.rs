//! One call: it looks, spins, sleeps, and looks again.

use super::Outcome;
use super::at_once::at_once;
use super::counted::keep_in_kernel;
use super::entries::{
    Asked, Found, Looked, Of, are_plain, find, look, look_here, look_in_kernel, mask_of,
    may_have_news, number, source_of,
};
use super::poller::{Frame, Interrupted};
use super::pool::{Taken, is_likely_to_sleep};
use super::room::{Room, is_left_to_kernel, is_too_long};
use crate::migrate;
use crate::set::doorbell::Unlent;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::{self, Errno, user, waits};
use crate::table;
use core::cell::Cell;
use libc::{POLLIN, pollfd, timespec};
use wakeset::{Deadline, Error, Timeout, mutated};

/// How often a call asks for a doorbell where there is none to be had, or a fork keeps it, before
/// it goes to the kernel.
const ATTEMPTS: u32 = 3;

/// A handler has ended the call, which had until then. Its poller may be another call's.
struct Ended(Interrupted, Option<Deadline>);

/// Answers a call; see [`Outcome`].
///
/// # Safety
/// As ppoll(2) and pselect(2).
#[inline(always)]
pub(super) unsafe fn answer<A: Asked>(asked: &A, timeout: Timeout, mask: *const u8) -> Outcome {
    match timeout {
        Timeout::Now if mask.is_null() => at_once(asked),
        // SAFETY: the caller's contract.
        _ => unsafe { answer_in_time(asked, timeout, mask) },
    }
}

/// [`answer`] of a call that may sleep or has a mask.
///
/// # Safety
/// As for `answer`.
#[inline(never)]
pub(super) unsafe fn answer_in_time<A: Asked>(
    asked: &A,
    timeout: Timeout,
    mask: *const u8,
) -> Outcome {
    count(Stat::Waits, 1);
    let mut mask = Mask { place: mask, blocked: 0 };
    if !mask.place.is_null() {
        // SAFETY: the caller's contract.
        match unsafe { user::load(mask.place.cast()) } {
            Some(blocked) => mask.blocked = blocked,
            None => return Outcome::Unchanged,
        }
    }
    let mut timeout = timeout;
    // The time that was left when the call began anew.
    let mut left = None;
    loop {
        // SAFETY: the caller's contract.
        match unsafe { attempt(asked, timeout, mask, true) } {
            Ok(Outcome::Unchanged) => return left.map_or(Outcome::Unchanged, Outcome::Rest),
            Ok(outcome) => return outcome,
            Err(Ended(Interrupted::Nothing, _)) => return interrupted(asked),
            Err(Ended(Interrupted::Look, _)) => break,
            Err(Ended(Interrupted::Again, deadline)) => {
                let remaining = deadline.map(Deadline::remaining);
                left = Some(remaining);
                timeout = Timeout::from(remaining);
            }
        }
    }
    let no_mask = Mask { place: core::ptr::null(), blocked: 0 };
    // SAFETY: as above.
    match unsafe { attempt(asked, Timeout::Now, no_mask, false) } {
        Ok(Outcome::Done(Ok(found @ 1..))) => Outcome::Done(Ok(found)),
        _ => interrupted(asked),
    }
}

/// The mask of a call.
#[derive(Clone, Copy)]
struct Mask {
    /// Null for none.
    place: *const u8,
    blocked: u64,
}

fn interrupted<A: Asked>(asked: &A) -> Outcome {
    let is_there = asked.store_interrupted();
    Outcome::Done(Err(if is_there { Errno::EINTR } else { Errno::EFAULT }))
}

/// `tells_nothing`: a call that finds nothing tells that, too.
unsafe fn attempt<A: Asked>(
    asked: &A,
    timeout: Timeout,
    mask: Mask,
    tells_nothing: bool,
) -> Result<Outcome, Ended> {
    let frame = Frame::new(mask.blocked);
    let mut room = Room::new();
    let Some(all) = room.get(asked.len()) else { return Ok(Outcome::Unchanged) };
    let Some((bell, entries)) = all.split_last() else { return Ok(Outcome::Unchanged) };
    if !asked.load(entries) {
        // EFAULT, which the kernel will say.
        return Ok(Outcome::Unchanged);
    }
    let mut wait = Wait {
        asked,
        frame: &frame,
        all,
        entries,
        bell,
        mask: mask.place,
        kernel: false,
        is_unasked: timeout != Timeout::Now && is_likely_to_sleep(),
        attempts: 0,
        deadline: None,
        tells_nothing,
    };
    if let Some(outcome) = wait.first_look() {
        return match outcome {
            Outcome::Rest(_) => Ok(Outcome::Unchanged),
            outcome => {
                if !wait.kernel {
                    count(Stat::WaitsInProcess, 1);
                    count(Stat::SyscallsAvoided, 1);
                }
                Ok(outcome)
            }
        };
    }
    if timeout == Timeout::Now {
        return Ok(wait.end_at_once());
    }
    wait.deadline = Deadline::of(timeout);
    let Some(poller) = Taken::take(&frame) else { return Ok(Outcome::Unchanged) };
    wait.run(&poller)
}

/// A call that has found nothing so far.
struct Wait<'a, A: Asked> {
    asked: &'a A,
    frame: &'a Frame,
    /// The entries, and the doorbell's after them.
    all: &'a [Cell<pollfd>],
    entries: &'a [Cell<pollfd>],
    bell: &'a Cell<pollfd>,
    mask: *const u8,
    /// Whether there are entries that the kernel has to be asked about.
    kernel: bool,
    /// The kernel has not been asked yet, because the sleep will ask it.
    is_unasked: bool,
    attempts: u32,
    deadline: Option<Deadline>,
    tells_nothing: bool,
}

/// What became of the watches that a sleep needs.
enum Watched {
    All,
    /// Something has moved meanwhile.
    Again,
    /// One cannot be had here.
    Refused,
}

impl<A: Asked> Wait<'_, A> {
    /// The look before the poller is taken. `None`: nothing is known to be ready.
    fn first_look(&mut self) -> Option<Outcome> {
        if self.is_unasked {
            let _guard = SignalGuard::enter();
            if let Some(outcome) = self.look_at(Of::Here, None) {
                return Some(outcome);
            }
            if !self.kernel {
                return self.count();
            }
            if self.asked.count(self.entries) == Some(0) {
                return None;
            }
            // What is ready in the kernel counts as well.
            self.is_unasked = false;
            if mutated!("poll_tells_of_one_half") {
                return self.count();
            }
        }
        self.look(None)
    }

    /// Looks at everything. `None`: nothing is ready.
    fn look(&mut self, poller: Option<&Taken<'_>>) -> Option<Outcome> {
        let _guard = SignalGuard::enter();
        self.look_at(Of::All, poller).or_else(|| self.count())
    }

    /// Says in the entries what holds of them. `Some`: that ends the call here.
    fn look_at(&mut self, of: Of, poller: Option<&Taken<'_>>) -> Option<Outcome> {
        loop {
            match look(self.entries, of, keep_in_kernel) {
                Ok(Looked::At { kernel: false }) if is_too_long(self.entries.len()) => {
                    return Some(self.rest());
                }
                Ok(Looked::At { kernel }) => self.kernel = kernel,
                Ok(Looked::NothingHere) => return Some(self.rest()),
                Ok(Looked::Failed(errno)) if is_left_to_kernel(errno) => return Some(self.rest()),
                Ok(Looked::Failed(errno)) => return Some(Outcome::Done(Err(errno))),
                Err(unready) => {
                    if let Some(poller) = poller {
                        poller.give_doorbell_back();
                    }
                    unready.settle();
                    continue;
                }
            }
            return None;
        }
    }

    /// Ends the call if an entry is ready.
    fn count(&self) -> Option<Outcome> {
        match self.asked.count(self.entries) {
            Some(0) => None,
            Some(found) => Some(self.end(found)),
            None => Some(self.rest()),
        }
    }

    fn end(&self, found: usize) -> Outcome {
        if (found != 0 || self.tells_nothing) && !self.asked.store(self.entries) {
            return Outcome::Done(Err(Errno::EFAULT));
        }
        Outcome::Done(Ok(found))
    }

    /// In the kernel, for the time that is left.
    fn rest(&self) -> Outcome {
        Outcome::Rest(self.deadline.map(Deadline::remaining))
    }

    fn is_time_up(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Deadline::now())
    }

    /// The end of a call that may not sleep. Under a mask, what is pending may be let in.
    fn end_at_once(&self) -> Outcome {
        if !self.mask.is_null() {
            let no_time = timespec { tv_sec: 0, tv_nsec: 0 };
            let place = self.entries.as_ptr().cast_mut().cast::<pollfd>();
            // SAFETY: so many entries, and a mask that the caller vouches for.
            let found =
                unsafe { waits::ppoll(place, self.entries.len(), Some(&no_time), self.mask) };
            if found == Err(Errno::EINTR) {
                return interrupted(self.asked);
            }
            return self.count().unwrap_or_else(|| self.end(0));
        }
        if !self.kernel {
            count(Stat::WaitsInProcess, 1);
            count(Stat::SyscallsAvoided, 1);
        }
        self.end(0)
    }

    fn run(&mut self, poller: &Taken<'_>) -> Result<Outcome, Ended> {
        if self.spin(poller) {
            let _guard = SignalGuard::enter();
            self.ended()?;
            if let Some(outcome) = self.look(Some(poller)) {
                count(Stat::WaitsInProcess, usize::from(!self.kernel));
                count(Stat::SyscallsAvoided, usize::from(!self.kernel));
                return Ok(outcome);
            }
        }
        loop {
            if let Some(outcome) = self.round(poller)? {
                let here = matches!(outcome, Outcome::Done(_)) && !self.sleeps_in_kernel();
                count(Stat::WaitsSleptInProcess, usize::from(here));
                return Ok(outcome);
            }
        }
    }

    /// Whether a handler has ended the call.
    fn ended(&self) -> Result<(), Ended> {
        self.frame.interrupted().map_or(Ok(()), |how| Err(Ended(how, self.deadline)))
    }

    /// The adaptive spin, in which nothing watches what is asked for yet. Whether to look again.
    ///
    /// The mask of the call is not in place: a handler of a signal that it blocks has run before
    /// the call, which then begins anew, and one that it lets in ends the spin.
    fn spin(&self, poller: &Taken<'_>) -> bool {
        let has_asked = Cell::new(false);
        let has_some = || self.kernel && look_in_kernel(self.entries) != Ok(0);
        let is_in_vain = || self.has_signal() || self.is_unasked && has_some();
        let stay =
            || self.frame.interrupted().is_none() && (has_asked.replace(true) || !is_in_vain());
        let ready = || may_have_news(self.entries);
        let mut outside = || self.has_signal() || has_some();
        let outside: Option<&mut dyn FnMut() -> bool> =
            if self.sleeps_in_kernel() { Some(&mut outside) } else { None };
        poller.spin(self.deadline, stay, ready, outside)
    }

    /// Whether a signal that only the mask lets in waits for the sleep, which it ends at once.
    fn has_signal(&self) -> bool {
        let is_let_in = |pending: u64| pending & !self.frame.blocked() != 0;
        !self.mask.is_null() && sys::pending_signals().is_none_or(is_let_in)
    }

    /// One sleep, and the look after it. `None`: another is needed.
    fn round(&mut self, poller: &Taken<'_>) -> Result<Option<Outcome>, Ended> {
        let guard = SignalGuard::enter();
        self.ended()?;
        match self.prepare(poller) {
            Watched::All => {}
            Watched::Again => {
                poller.unwatch();
                poller.give_doorbell_back();
                migrate::wait_for_migrations();
                return Ok(self.look(None));
            }
            Watched::Refused => return Ok(Some(self.rest())),
        }
        let in_kernel = self.sleeps_in_kernel();
        let slept = poller.sleep(
            self.frame,
            in_kernel.then_some(self.all),
            self.deadline,
            self.mask,
            guard,
        );
        let _guard = SignalGuard::enter();
        self.ended().map_err(|ended| match ended {
            // During the sleep a signal came that the call lets in: it is not to be forgotten over
            // one that came before the sleep.
            Ended(Interrupted::Again, deadline) if slept == Some(Err(Errno::EINTR)) => {
                Ended(Interrupted::Look, deadline)
            }
            ended => ended,
        })?;
        let is_to_the_end = poller.slept_until(self.deadline);
        poller.leave();
        if in_kernel && self.bell.get().revents != 0 {
            poller.silence();
        }
        if poller.has_moved() {
            poller.unwatch();
            poller.give_doorbell_back();
        }
        if let Some(Ok(1..)) = slept {
            // The kernel has just said what is ready there.
            let _ = look_here(self.entries);
            // What has left meanwhile may be ready, too, but what is found ends the call.
            if let Some(outcome) = self.count() {
                return Ok(Some(outcome));
            }
        }
        // Before the look: what came in time is ready then.
        let is_time_up = self.is_time_up();
        let is_asked = slept == Some(Ok(0)) && in_kernel && is_to_the_end;
        if is_asked && is_time_up && self.sees_nothing_at_end() {
            return Ok(Some(self.end(0)));
        }
        let found = self.look(Some(poller));
        step!(poll_looked);
        Ok(found.or_else(|| self.end_of(slept, is_time_up)))
    }

    /// Whether nothing is ready, when the kernel has said so of its own as the time ended.
    fn sees_nothing_at_end(&self) -> bool {
        look_here(self.entries)
            && self.asked.count(self.entries) == Some(0)
            && are_plain(self.entries)
    }

    /// How a call ends that has slept and found nothing. `None`: it does not. `is_time_up`: it was
    /// before the look.
    fn end_of(&self, slept: Option<Result<usize, Errno>>, is_time_up: bool) -> Option<Outcome> {
        match slept {
            Some(Err(Errno::EINTR)) => Some(interrupted(self.asked)),
            Some(Err(errno)) if is_left_to_kernel(errno) => Some(self.rest()),
            Some(Err(errno)) if !matches!(errno, Errno::ETIMEDOUT | Errno::EAGAIN) => {
                Some(Outcome::Done(Err(errno)))
            }
            _ => is_time_up.then(|| self.end(0)),
        }
    }

    fn sleeps_in_kernel(&self) -> bool {
        self.kernel || !self.mask.is_null()
    }

    /// Before a sleep: all that is here is watched, and there is a doorbell if one is needed.
    fn prepare(&mut self, poller: &Taken<'_>) -> Watched {
        if poller.is_watching() {
            // The look after the last sleep has found nothing.
            poller.sift(self.all.len());
        } else {
            match self.watch(poller) {
                Watched::All => {}
                other => return other,
            }
        }
        if !self.sleeps_in_kernel() {
            return Watched::All;
        }
        match poller.borrow_doorbell() {
            Ok(()) => {}
            Err(Unlent::Busy) => return Watched::Again,
            Err(Unlent::NoneLeft) => {
                self.attempts += 1;
                return if self.attempts < ATTEMPTS { Watched::Again } else { Watched::Refused };
            }
        }
        self.bell.set(pollfd { fd: poller.doorbell(), events: POLLIN, revents: 0 });
        Watched::All
    }

    fn watch(&self, poller: &Taken<'_>) -> Watched {
        for (key, entry) in self.entries.iter().map(Cell::get).enumerate() {
            let Some(fd) = number(entry).filter(|_| entry.fd < 0) else { continue };
            let first = find(fd);
            // A set is watched while it has no kernel half, and gets none meanwhile.
            let is_set = matches!(first.0, Found::Object(head) if head.kind() == table::SET);
            // Held until the migrations lock is free again, which the last use's end may take.
            let (found, _held);
            let _migrating;
            if is_set {
                drop(first);
                poller.give_doorbell_back();
                _migrating = migrate::hold_migrations();
                (found, _held) = find(fd);
            } else {
                (found, _held) = first;
            }
            let Found::Object(head) = found else { return Watched::Again };
            step!(poll_before_watch);
            // SAFETY: an object in its slot.
            match unsafe { poller.watch(key as i32, source_of(head), mask_of(entry)) } {
                Ok(()) => {
                    step!(poll_watched);
                }
                Err(Error::Closed) => return Watched::Again,
                Err(_) => return Watched::Refused,
            }
        }
        Watched::All
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
