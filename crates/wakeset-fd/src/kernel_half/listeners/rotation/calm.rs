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

use super::super::baton::{Look, Notes};
use super::super::told::telling;
use super::member::Member;
use super::{Rotation, steps};
use crate::stats::count;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use libc::epoll_event;
use wakeset::{Deadline, mutated};

/// Listeners in a set that can be calm: most servers have one, or one for each family of addresses.
const MOST: usize = 2;

/// Whether a set is calm, and what ends that.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Calm {
    /// When the listeners are looked at next, in nanoseconds since the machine's start; 0 while the
    /// set is not calm. Set with the lock held.
    until: AtomicU64,
    /// The data of the listeners' watches, one of them more often than once where there are fewer.
    data: [AtomicU64; MOST],
    /// The two halves of the notes of the listeners, of which each wait tells others; 0 if there
    /// are none. What is read in the middle of a change costs evenness and nothing else.
    notes: [AtomicU64; 2],
    /// Another worker was there since the listeners were last looked at. So long that is not asked
    /// again: it takes a clock and the slots of all.
    is_beside_another: AtomicBool,
}

impl Calm {
    pub(super) const fn none() -> Self {
        Self {
            until: AtomicU64::new(0),
            data: [const { AtomicU64::new(0) }; MOST],
            notes: [const { AtomicU64::new(0) }; 2],
            is_beside_another: AtomicBool::new(false),
        }
    }

    /// It lasts until then. `notes`: of which others are told.
    fn begin(&self, data: [u64; MOST], notes: Notes, until: Deadline) {
        for (place, data) in self.data.iter().zip(data) {
            place.store(data, Ordering::Relaxed);
        }
        for (place, half) in self.notes.iter().zip([notes as u64, (notes >> 64) as u64]) {
            place.store(half, Ordering::Relaxed);
        }
        // After the data.
        self.until.store(until.since_boot().as_nanos() as u64, Ordering::Release);
    }

    fn is(&self) -> bool {
        self.until.load(Ordering::Acquire) != 0
    }

    /// The notes of the listeners, where others are told of each wait; 0 where there are none.
    #[inline(always)]
    fn told_notes(&self) -> Notes {
        let [low, high] =
            self.notes.each_ref().map(|half| Notes::from(half.load(Ordering::Relaxed)));
        low | high << 64
    }

    pub(super) fn end(&self) {
        if self.is() {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Ends, and may begin again: the listeners are looked at.
    pub(super) fn begin_anew(&self) {
        self.end();
        self.is_beside_another.store(false, Ordering::Relaxed);
    }

    /// How long until the listeners are looked at. `None`: it is time, or the set is not calm.
    pub(super) fn left(&self) -> Option<Duration> {
        self.left_from(Deadline::at_last_tick)
    }

    /// [`left`](Self::left), where the time is known. It is not asked for if the set is not calm.
    #[inline(always)]
    fn left_from(&self, now: impl FnOnce() -> Deadline) -> Option<Duration> {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let left = Duration::from_nanos(until).saturating_sub(now().since_boot());
        (!left.is_zero() || mutated!("calm_without_end")).then_some(left)
    }

    /// Whether an event has the data of a listener's watch.
    #[inline(always)]
    fn is_listeners(&self, event: epoll_event) -> bool {
        self.data.iter().any(|data| data.load(Ordering::Relaxed) == event.u64)
    }

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
        if self.calm.told_notes() != 0 {
            self.share.note_awake(false);
        }
    }

    /// How long a calm set stays so at most.
    #[inline(always)]
    pub(crate) fn calm_left(&self, now: Deadline) -> Option<Duration> {
        self.calm.left_from(|| now)
    }

    /// Whether an event has the data of a listener's watch in a calm set.
    #[inline(always)]
    pub(crate) fn is_listeners(&self, event: epoll_event) -> bool {
        self.calm.is_listeners(event) && !mutated!("quiet_hears_nothing")
    }

    /// Whether another worker is there, or was since the last look.
    fn is_beside_another(&self) -> bool {
        let known = &self.calm.is_beside_another;
        if !known.load(Ordering::Relaxed) && !self.share.is_alone() {
            known.store(true, Ordering::Relaxed);
        }
        known.load(Ordering::Relaxed) && !mutated!("calm_beside_another")
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
