//! Stepping back: a thread that is woken for a connection, and holds more than another that sleeps,
//! leaves it to that one ([`Share`](wakeset_fd::listeners::Share)).
//!
//! Its private set watches the listeners no longer, it passes the baton, and sleeps on for two
//! milliseconds at most at a time. When the connection is gone, or was left for long enough, it
//! goes back to the end of the queue. Adding the watch polls the listener, so a connection that is
//! still there ends the next sleep. If the wait ends before, the thread declines the connection.
//!
//! A thread that is told of something else at the same time makes the program's own call, which
//! tells of the connection as well.

use super::thread::{WAITER, Waiter};
use super::wait::Wait;
use super::{call::Descriptors, told};
use core::ffi::c_int;
use syscalls::Errno;
use wakeset::mutated;
use wakeset_fd::listeners::baton::Visit;
use wakeset_fd::listeners::{self, Fired, MOST, Wanted, baton};

impl Wait<'_> {
    /// Has the private set watch what the wait is about, without the listeners while it stays back,
    /// and returns its number; `None` if it cannot.
    pub(super) fn prepare(&mut self) -> Option<c_int> {
        if self.has_stepped && !self.stays_back() {
            self.has_stepped = false;
            self.is_prepared = false;
        }
        let wanted = self.descriptors.wanted();
        let (order, prepared) = (self.order, self.is_prepared);
        let set = match self.has_stepped {
            false => WAITER.with(|waiter| waiter.prepare(wanted, order, prepared)),
            true => {
                let others = Others::of(self.descriptors);
                WAITER.with(|waiter| waiter.prepare(others.wanted(), order, prepared))
            }
        };
        if !(prepared || self.has_stepped) {
            self.notes = WAITER.with(Waiter::notes);
        }
        self.is_prepared = true;
        set
    }

    /// Whether the thread goes on leaving a connection, or leaves the one that its sleep ended with
    /// or that another has declined.
    pub(super) fn leaves(&self, fired: Fired, visit: Option<Visit>) -> bool {
        let is_urgent = visit.is_some_and(|visit| visit.is_urgent(self.notes));
        let leaves = || !is_urgent && WAITER.with(|waiter| waiter.share.leaves(self.notes));
        !(fired.other || fired.stale || fired.twins)
            && if fired.listener || fired.baton { leaves() } else { self.has_stepped }
    }

    /// Whether the thread leaves a connection that is there already when the wait begins.
    pub(super) fn leaves_what_is_there(&mut self) -> bool {
        if WAITER.with(|waiter| waiter.share.is_free()) || told::has_passed() {
            return false;
        }
        // Of the last wait, which may have been for others.
        self.notes = WAITER.with(Waiter::notes);
        let leaves = |wait: &Self| WAITER.with(|waiter| waiter.share.leaves(wait.notes));
        if !leaves(self) || !self.is_there() {
            return false;
        }
        if !mutated!("notes_are_the_last_waits") {
            self.notes = self.descriptors.notes();
        }
        let leaves = leaves(self);
        if leaves {
            self.step_back();
        }
        leaves
    }

    /// Leaves what is there to another thread, which is woken.
    #[cold]
    pub(super) fn step_back(&mut self) {
        WAITER.with(|waiter| {
            waiter.share.note_step();
            waiter.rounds.begin(self.notes);
        });
        self.has_stepped = true;
        self.is_prepared = false;
        baton::pass();
    }

    /// Whether a thread that the baton has asked, and that leaves what is there to the next, passes
    /// the baton on.
    pub(super) fn leaves_to_next(&self, visit: Visit) -> bool {
        if self.is_there() {
            WAITER.with(|waiter| waiter.share.pay());
            return true;
        }
        visit.saw_none(self.notes);
        visit.is_for_others(self.notes)
    }

    /// Whether a thread that the baton has asked passes it on after such a look; `is_busy`: it is
    /// told of something else as well, perhaps.
    pub(super) fn asks_next(
        &self,
        visit: Visit,
        looked: Option<Result<usize, Errno>>,
        is_busy: bool,
    ) -> bool {
        let is_told = || self.descriptors.listeners().any(|wanted| self.asked.is_ready(wanted.fd));
        let own = match looked {
            Some(Err(_)) => 0,
            _ => self.notes,
        };
        let more = is_busy || visit.asks_more(own);
        more && matches!(looked, Some(Ok(_))) && is_told() || visit.is_for_others(own)
    }

    /// Passes the baton on, once more in this round, and goes to the end of its queue before the
    /// next sleep.
    pub(super) fn pass_on(&mut self) {
        if WAITER.with(|waiter| waiter.rounds.passes(true)) {
            self.is_prepared = false;
            baton::pass();
        }
    }

    /// At the end of the wait: what the thread has left to others, and was not told of, it
    /// declines, because it may be away for long.
    pub(super) fn end_stepping(&self) {
        if self.has_stepped && self.is_there() && listeners::give_up(self.notes) {
            baton::pass();
        }
    }

    fn is_there(&self) -> bool {
        self.descriptors.listeners().any(|wanted| listeners::is_ready(wanted.fd))
    }

    fn stays_back(&self) -> bool {
        WAITER.with(|waiter| waiter.share.stays_back(self.notes, self.is_there()))
    }
}

/// What a wait is about, without its listeners.
struct Others {
    wanted: [Wanted; MOST],
    len: usize,
}

impl Others {
    fn of(descriptors: &Descriptors) -> Self {
        let mut others = Self { wanted: [Wanted::NONE; MOST], len: 0 };
        let wanted = descriptors.wanted().iter().filter(|wanted| !wanted.listener);
        for (place, wanted) in others.wanted.iter_mut().zip(wanted) {
            *place = *wanted;
            others.len += 1;
        }
        others
    }

    fn wanted(&self) -> &[Wanted] {
        self.wanted.get(..self.len).unwrap_or_default()
    }
}
