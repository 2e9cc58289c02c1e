//! A set whose waits have nothing to do for its listeners: nothing has been reported of them since
//! the last wait that minded them. A server is in this state for all requests of a connection but
//! its first, and each of its waits is worth as much as the few microseconds that the request
//! takes.
//!
//! | left out while a set is calm | because |
//! |---|---|
//! | the places in the queues of the listeners and of the baton | nothing was reported or passed since |
//! | the clock, beside the time of the last tick | what is due comes once in a rescue period |
//! | what a worker says of itself in its slot, if no other worker waits for the listeners | there is none that could read it |
//!
//! Beside others it says so in each wait, and looks whether one of them has declined something: the
//! set is not calm as long as that may be there.
//!
//! Calm ends with the first event of a listener's, with any change of the members, with the baton,
//! and at the latest when the listeners are looked at, once in a rescue period. Until then another
//! worker may have come to one that was alone: what it is woken for and does not accept waits for
//! that look, as it would if it were the worker's that sleeps here; and for as long it sees the
//! slot as it was when the calm began.

mod state;

use super::super::Order;
use super::super::baton::{self, Look, Notes};
use super::super::told::telling;
use super::member::Member;
use super::{Rotation, steps};
use crate::kernel_half::KernelEpoll;
use crate::stats::count;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::epoll_event;
pub(super) use state::Calm;
use wakeset::{Deadline, mutated};

impl Calm {
    /// Whether the set is calm, and none of the first `found` events is a listener's.
    ///
    /// # Safety
    /// There are `found` events.
    pub(super) unsafe fn is_about_others(&self, events: *const epoll_event, found: c_int) -> bool {
        // SAFETY: the caller's contract.
        let is_told = || unsafe { steps::has_one(events, found, |event| self.is_listeners(event)) };
        self.is() && (!is_told() || mutated!("calm_hears_nothing"))
    }
}

impl Rotation {
    /// Whether waits have nothing to do for the listeners, but to say so where there are others.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.is() && {
            let notes = self.calm.told_notes();
            notes == 0 || !Look::may_end(notes) || mutated!("calm_while_declined")
        }
    }

    /// Whether waits have nothing to do at all: there are no others.
    #[inline]
    pub(crate) fn is_calm_alone(&self) -> bool {
        self.calm.is() && self.calm.told_notes() == 0
    }

    /// Before a sleep of a calm set: tells others of it.
    #[inline]
    pub(crate) fn sleep_calmly(&self) {
        let notes = self.calm.told_notes();
        if notes != 0 && !mutated!("calm_says_nothing") {
            self.share.note_sleep(notes);
        }
    }

    /// At the end of a wait that was calm throughout: tells others.
    #[inline]
    pub(crate) fn wake_calmly(&self) {
        if self.calm.told_notes() != 0 && !mutated!("calm_wakes_in_silence") {
            self.share.note_awake(false);
        }
    }

    /// Before a sleep of a thread that was told of a connection and has nothing to pass on: minds
    /// the listeners as each sleep does that is not calm, so that this one may be. Left to the
    /// general wait are a look that is due and listeners without a watch, which take more; and sets
    /// with more listeners than can be calm, because the general wait will follow in any case, and
    /// would mind them a second time. `tick`: the time of the last tick.
    #[inline]
    pub(crate) fn mind(&self, set: &impl KernelEpoll, tick: Deadline) {
        let is_watched = || self.watches_all() && !self.rescue_clock.is_due_by(tick);
        let may_be_calm = || self.end.load(Ordering::Relaxed) <= state::MOST;
        if self.any() && !self.calm.is() && may_be_calm() && is_watched() && !self.go_on(set) {
            self.mind_in_whole(set);
        }
    }

    #[cold]
    fn mind_in_whole(&self, set: &impl KernelEpoll) {
        let _ = self.rotate(set);
    }

    /// The same for the usual event, which has but paused the calm: no watch is to move. Returns
    /// whether that is all. What was declined meanwhile ends the calm at once
    /// ([`is_calm`](Self::is_calm)).
    ///
    /// A worker that was alone looks for others instead.
    fn go_on(&self, set: &impl KernelEpoll) -> bool {
        if !self.calm.is_paused() || self.calm.told_notes() == 0 {
            return false;
        }
        self.with_same(|members| {
            let order = super::super::order_of(self.share.counted_as()).unwrap_or(Order::Lifo);
            let stays = |member: &Member| {
                let is_old = member.is_edge() && !mutated!("paused_edge_is_followed");
                let moves = order.ends_turn(member.reports) && !mutated!("paused_turn_has_no_end");
                !is_old && !moves
            };
            let is_all = self.calm.is_paused()
                && set.is_usable()
                && !self.is_baton_due(baton::number())
                && members.iter().all(|member| !member.due || stays(member));
            if is_all {
                members.iter_mut().for_each(|member| member.due = false);
                self.calm.go_on();
            }
            is_all
        })
    }

    /// Whether this waiter takes a connection that has ended its sleep in a calm set, and leaves it
    /// to no other. A set that is calm because no other was there does not know of those that have
    /// come since.
    ///
    /// It is asked for both of two listeners at once. If one of them should be another's, the
    /// general wait decides for each. What was declined on one is urgent for both, but a set that
    /// knows of it is not calm: only if it was declined since that was last asked, in these few
    /// instructions, is a connection on the other taken out of turn, by a worker that is awake.
    pub(crate) fn takes(&self) -> bool {
        let notes = self.calm.told_notes();
        let is_anothers = || notes == 0 || self.share.leaves(notes);
        self.share.is_free() || !is_anothers() || mutated!("quiet_takes_anothers")
    }

    /// How long a calm set stays so at most, in milliseconds.
    #[inline(always)]
    pub(crate) fn calm_left(&self, now: Deadline) -> Option<c_int> {
        self.calm.millis_left(now)
    }

    /// Whether an event has the data of a listener's watch in a calm set.
    #[inline(always)]
    pub(crate) fn is_listeners(&self, event: epoll_event) -> bool {
        self.calm.is_listeners(event) && !mutated!("quiet_hears_nothing")
    }

    /// Whether another worker is there, or was since the last look.
    fn is_beside_another(&self) -> bool {
        let is_beside = self.calm.is_beside_another(|| !self.share.is_alone());
        is_beside && !mutated!("calm_beside_another")
    }

    /// Before a sleep that has minded these members, whose notes those are.
    pub(super) fn begin_calm(&self, members: &[Member], notes: Notes) {
        let has_work = |member: &Member| member.is_some() && (member.due || member.missing);
        let has_declined = || telling().is_some_and(|telling| (telling.looks_first)());
        if members.iter().any(has_work)
            || count::is_on()
            || self.baton.load(Ordering::Relaxed) < 0
            || self.rounds.is_due()
            || has_declined()
        {
            return;
        }
        let is_beside = self.is_beside_another();
        if is_beside && notes == 0 {
            // There are no words for them.
            return;
        }
        let told = if is_beside { notes } else { 0 };
        let mut watched = members.iter().filter(|member| member.is_some());
        if let (Some(first), second, None) = (watched.next(), watched.next(), watched.next()) {
            let data = [first, second.unwrap_or(first)].map(|member| member.data);
            self.calm.begin(data, told, self.rescue_clock.next());
        }
    }
}

#[cfg(test)]
mod tests;
