//! The wait itself: sleep in the private set, and when something has fired make the program's call
//! without time to sleep.

use super::call::{Asked, Descriptors, Outcome};
use super::habits::STAND_BACK;
use super::thread::{WAITER, Waiter};
use super::told;
use crate::signals;
use core::ffi::c_int;
use core::time::Duration;
use libc::{EPOLLIN, epoll_event, timespec};
use syscalls::{Errno, Sysno};
use wakeset::{Deadline, Timeout};
use wakeset_fd::cancel;
use wakeset_fd::interpose::{milliseconds_of, timespec_of};
use wakeset_fd::listeners::baton::{Look, Notes};
use wakeset_fd::listeners::{self, Fired, ListenerStat, Order, Wanted};
use wakeset_fd::waits::is_refusal;

/// Events taken from the private set at a time.
const CAPACITY: usize = 8;

/// After so many sleeps that ended for nothing the program's call sees, the kernel waits.
const STRANGE_MOST: u32 = 3;

/// Waits until there is something to tell the program.
pub(super) fn wait(
    descriptors: &Descriptors,
    order: Order,
    limit: Option<Duration>,
    mask: *const u64,
    asked: &mut dyn Asked,
) -> Outcome {
    // SAFETY: null, or a copy of the program's.
    let _uncounted = signals::Uncounted::begin(unsafe { mask.as_ref() }.copied().unwrap_or(0));
    let handled = ending(asked.outlasts());
    let mut wait = Wait {
        descriptors,
        order,
        deadline: Deadline::of(Timeout::from(limit)),
        mask,
        handled,
        // SAFETY: this thread's own.
        before: unsafe { handled.read_volatile() },
        asked,
        is_prepared: false,
        notes: 0,
        has_stepped: false,
        strange: 0,
    };
    for wanted in descriptors.listeners() {
        listeners::count(wanted.fd, ListenerStat::Waits);
    }
    if let Some(known) = wait.is_worth_a_look(limit)
        && !wait.leaves_what_is_there()
        && let Some(result) = wait.look(&[known])
    {
        return wait.end(result);
    }
    WAITER.with(|waiter| waiter.came_back.set(false));
    loop {
        if let Some(outcome) = wait.sleep_once() {
            // Unless it was told of a connection, it is taken for busy.
            WAITER.with(|waiter| waiter.share.note_awake(false));
            wait.end_stepping();
            return outcome;
        }
    }
}

/// Where this thread counts the handled signals that end a call; a handler registered with one of
/// the flags in `outlasts` does not.
pub(super) fn ending(outlasts: c_int) -> *mut u32 {
    if outlasts == 0 { signals::handled() } else { signals::not_restarting() }
}

/// A wait under way.
pub(super) struct Wait<'a> {
    pub(super) descriptors: &'a Descriptors,
    pub(super) order: Order,
    deadline: Option<Deadline>,
    mask: *const u64,
    /// Where this thread counts the signals that end the wait, and how many there were before it.
    handled: *mut u32,
    before: u32,
    pub(super) asked: &'a mut dyn Asked,
    /// The private set watches what the wait is about.
    pub(super) is_prepared: bool,
    /// The notes of the listeners that it waits for.
    pub(super) notes: Notes,
    /// It has stepped back, and watches the others alone.
    pub(super) has_stepped: bool,
    /// Sleeps that ended for nothing the program's call sees.
    strange: u32,
}

impl Wait<'_> {
    fn left(&self) -> Option<Duration> {
        self.deadline.map(Deadline::remaining)
    }

    fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Whether to make the program's call before the first sleep. What is ready already needs no
    /// place in the queue; and the time for the thread's own look may have come. Returns the
    /// listener that the private set knows to have a connection, or -1.
    fn is_worth_a_look(&self, limit: Option<Duration>) -> Option<c_int> {
        WAITER.with(|waiter| {
            waiter.came_back.set(true);
            if waiter.looked.until_next().is_zero() || told::has_passed() {
                return Some(-1);
            }
            let has_something = || waiter.has_something(self.descriptors.wanted(), self.order);
            let known = has_something()?;
            let may_stand_back = limit.is_none_or(|limit| limit > STAND_BACK);
            let is_there = !(known >= 0 && may_stand_back)
                || waiter.stand_back(&mut || has_something().is_some());
            is_there.then_some(known)
        })
    }

    /// What the program's call has to tell now, if anything; `known`: the listeners that the
    /// private set has reported.
    fn look(&mut self, known: &[c_int]) -> Option<Result<usize, Errno>> {
        if WAITER.with(|waiter| waiter.looked.note()) {
            Look::begin_rescue();
        }
        let look = Look::begin();
        let result = self.asked.look();
        if let Ok(found) = result {
            for fd in self.descriptors.listeners().map(|wanted| wanted.fd) {
                if found > 0 && self.asked.is_ready(fd) {
                    WAITER.with(|waiter| waiter.note_report(fd, known.contains(&fd)));
                    // It is told of what it has left.
                    self.has_stepped = false;
                } else {
                    told::saw_none(fd);
                    look.found_empty(fd);
                }
            }
        }
        (result != Ok(0)).then_some(result)
    }

    /// The end of the wait with what a look has found. A filter that lets poll(2) pass and not the
    /// call that we look with leaves the wait to the kernel.
    fn end(&self, result: Result<usize, Errno>) -> Outcome {
        match result {
            Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) => Outcome::Rest(self.left()),
            result => Outcome::Done(result),
        }
    }

    /// The end of a wait that has left a connection to another: its last look was not the program's
    /// call, which writes that nothing is ready.
    fn end_without_look(&mut self) -> Outcome {
        Outcome::Done(self.asked.tell(&[]).unwrap_or(Err(Errno::EFAULT)))
    }

    /// Sleeps once and looks at what has fired. `None`: the wait goes on.
    fn sleep_once(&mut self) -> Option<Outcome> {
        let Some(set) = self.prepare() else { return Some(Outcome::Rest(self.left())) };
        let mut events = [epoll_event { events: 0, u64: 0 }; CAPACITY];
        WAITER.with(|waiter| waiter.share.note_sleep(self.notes));
        let is_last = self.is_over();
        let slept = self.sleep(set, &mut events);
        let events = events.get(..slept.unwrap_or(0)).unwrap_or_default();
        let fired = WAITER.with(|waiter| waiter.sort(events));
        if let Err(error) = slept
            && let Some(outcome) = self.after_error(error)
        {
            return Some(outcome);
        }
        self.after_sleep(events, fired, is_last)
    }

    /// One sleep in the private set, until this thread's next look at the latest.
    fn sleep(&self, set: c_int, events: &mut [epoll_event]) -> Result<usize, Errno> {
        let until_look = match self.has_stepped {
            true => WAITER.with(|waiter| waiter.share.until_look()),
            false => WAITER.with(|waiter| waiter.looked.until_next()),
        };
        let most = self.left().map_or(until_look, |left| left.min(until_look));
        cancel::point(|| {
            let mut once = |number: Sysno, limit: isize| {
                // SAFETY: a limit of that call's, a mask that the kernel has just read, and this
                // thread's own count.
                unsafe {
                    signals::sleep::enter(
                        number,
                        set,
                        events,
                        limit,
                        self.mask,
                        self.handled,
                        self.before,
                    )
                }
            };
            let milliseconds = milliseconds_of(Some(most)) as isize;
            if !most.subsec_nanos().is_multiple_of(1_000_000) {
                let limit: timespec = timespec_of(most);
                match once(Sysno::epoll_pwait2, (&raw const limit).addr() as isize) {
                    // Before Linux 5.11, or where a filter does not know it.
                    Err(error) if is_refusal(error) => {}
                    result => return result,
                }
            }
            match once(Sysno::epoll_pwait, milliseconds) {
                Err(error) if is_refusal(error) && self.mask.is_null() => {
                    once(Sysno::epoll_wait, milliseconds)
                }
                result => result,
            }
        })
    }

    /// After a sleep that ended with an error. `None`: nothing has come of it.
    fn after_error(&mut self, error: Errno) -> Option<Outcome> {
        if error != Errno::EINTR {
            // The set is gone: the program closes numbers that it did not open.
            WAITER.with(Waiter::forget);
            return Some(Outcome::Rest(self.left()));
        }
        // SAFETY: this thread's own.
        let has_handled = unsafe { self.handled.read_volatile() } != self.before;
        if has_handled || signals::may_have_foreign_handlers(self.asked.outlasts()) {
            self.asked.interrupted();
            return Some(Outcome::Done(Err(Errno::EINTR)));
        }
        None
    }

    /// After a sleep that ended with these events, or with none. `None`: the wait goes on.
    /// `is_last`: its time was up before the sleep.
    ///
    /// Where the thread loses its processor until the time is up, what comes meanwhile is in time.
    /// So whether it is up is asked before the look that ends the wait.
    fn after_sleep(
        &mut self,
        events: &[epoll_event],
        fired: Fired,
        is_last: bool,
    ) -> Option<Outcome> {
        let mut numbers = [0; CAPACITY];
        let of_listeners = events.iter().filter(|event| Wanted::is_listener(event.u64));
        let len = numbers
            .iter_mut()
            .zip(of_listeners)
            .map(|(number, event)| *number = event.u64 as c_int)
            .count();
        let woken_by = numbers.get(..len).unwrap_or_default();
        woken_by.iter().for_each(|fd| listeners::count(*fd, ListenerStat::Wakes));
        let note_wake =
            |waiter: &Waiter| woken_by.iter().for_each(|woken_by| waiter.woken.set(*woken_by));
        // The kernel has looked at everything that it did not report, and had capacity for more.
        let is_plain =
            events.len() < CAPACITY && events.iter().all(|event| event.events == EPOLLIN as u32);
        // Before the look.
        let visit = if fired.baton { WAITER.with(Waiter::visit) } else { None };
        let leaves = self.leaves(fired, visit);
        if fired.only_listeners()
            && is_plain
            && !leaves
            && let Some(result) = self.asked.tell(woken_by)
        {
            WAITER.with(|waiter| woken_by.iter().for_each(|fd| waiter.note_report(*fd, true)));
            WAITER.with(note_wake);
            return Some(Outcome::Done(result));
        }
        if leaves {
            if fired.listener {
                woken_by.iter().for_each(|fd| listeners::count(*fd, ListenerStat::SpuriousWakes));
                self.step_back();
            } else if visit.is_some_and(|visit| self.leaves_to_next(visit)) {
                self.pass_on();
            }
            return is_last.then(|| self.end_without_look());
        }
        let is_over = self.is_over();
        let looked = self.look(woken_by);
        if visit.is_some_and(|visit| self.asks_next(visit, looked, fired.other)) {
            self.pass_on();
        }
        if let Some(result) = looked {
            WAITER.with(note_wake);
            return Some(self.end(result));
        }
        woken_by.iter().for_each(|fd| listeners::count(*fd, ListenerStat::SpuriousWakes));
        if is_over {
            return Some(Outcome::Done(Ok(0)));
        }
        if fired.other || fired.stale { self.after_strange_sleep() } else { None }
    }

    /// Something has fired that the program's call does not see: a description whose number is
    /// gone, or what select(2) ignores.
    fn after_strange_sleep(&mut self) -> Option<Outcome> {
        self.strange += 1;
        if self.strange == STRANGE_MOST {
            return Some(Outcome::Rest(self.left()));
        }
        WAITER.with(Waiter::forget_watches);
        self.is_prepared = false;
        None
    }
}
