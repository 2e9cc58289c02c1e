//! The state word of a watch.
//!
//! | bits | field | set by | cleared by |
//! |---|---|---|---|
//! | 0–15 | mask: the readiness bits asked for, with ERR and HUP; 0 = disarmed | add, modify | a ONESHOT report, remove |
//! | 16–19 | flags: EXCLUSIVE, WAKEUP, ONESHOT, ET | add, modify | modify, remove |
//! | 20 | `QUEUED`: on the ready list, or held by the waker that is about to put it there | a waker (CAS), the scan-lock holder | the scan-lock holder |
//! | 21 | `DEAD`: removed while a waker had it; the scan-lock holder that finds it on a ready list frees it | the scan-lock holder | the scan-lock holder |
//! | 22 | `LISTED`: the thread that turned `QUEUED` on has finished: the watch is on the list and a waiter has been told | that waker (CAS on its own round), the scan-lock holder | with `QUEUED` |
//! | 23 | `UNBOUNDED`: has been without ONESHOT at some time of this generation, so that it may have been reported more than once for an arming | add, modify | – |
//! | 24–44 | generation: counts the uses of this piece of memory | – | – |
//! | 45–63 | round: counts how often `QUEUED` was turned on, and changes of the interest, so that a waker or a taker from the ring that comes back late does not take another thread's mark for its own | – | – |
//!
//! `QUEUED` has one winner: the thread that turns it on owns the `next` link until the watch is on
//! the list. A thread that finds it on without `LISTED` cannot know whether the winner will ever go
//! on, and calls the harvester's attention instead (see `wake`). All fields but `QUEUED`, `LISTED`
//! and the round change only under the scan lock of the watch's set; the compare-and-swap is there
//! because a waker may turn `QUEUED` on at any time.

use crate::events::Events;

/// Bits of the generation, here and in a [`Handle`](crate::wake::handle::Handle).
pub(crate) const GENERATION_BITS: u32 = 21;
const GENERATION_SHIFT: u32 = 24;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const MASK: u64 = 0xffff;
const FLAGS_SHIFT: u32 = 16;
const FLAGS: u64 = 0xf << FLAGS_SHIFT;
const QUEUED: u64 = 1 << 20;
const DEAD: u64 = 1 << 21;
const LISTED: u64 = 1 << 22;
const UNBOUNDED: u64 = 1 << 23;
const ROUND: u64 = 1 << (GENERATION_SHIFT + GENERATION_BITS);

/// One value of a watch's state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    /// Free memory in its first generation.
    pub(crate) const FREE: Self = Self(0);

    #[inline]
    pub(crate) const fn generation(self) -> u64 {
        (self.0 >> GENERATION_SHIFT) & GENERATION_MASK
    }

    #[inline]
    pub(crate) const fn mask(self) -> u32 {
        (self.0 & MASK) as u32
    }

    #[inline]
    pub(crate) const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    #[inline]
    pub(crate) const fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// The input flags, in place of their `epoll_event` bits.
    #[inline]
    pub(crate) const fn flags(self) -> Events {
        Events::from_bits_retain(((self.0 & FLAGS) << (28 - FLAGS_SHIFT)) as u32)
    }

    /// Whether its readiness is reported as long as it holds: neither `ET` nor `ONESHOT`.
    #[inline]
    pub(crate) const fn is_level(self) -> bool {
        !self.flags().intersects(Events::ET.union(Events::ONESHOT))
    }

    /// What was asked for: mask and flags.
    pub(crate) const fn interest(self) -> Events {
        Events::from_bits_retain(self.mask()).union(self.flags())
    }

    #[inline]
    pub(crate) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    /// Marked by a waker, in a new round.
    #[must_use]
    pub(crate) const fn queued(self) -> Self {
        // The round is the top field: it wraps by falling off.
        Self((self.0 | QUEUED).wrapping_add(ROUND))
    }

    /// The same, and what was known of it in this round is void.
    #[must_use]
    pub(crate) const fn in_next_round(self) -> Self {
        Self(self.0.wrapping_add(ROUND))
    }

    /// The waker that marked it has done what a wake has to do.
    #[must_use]
    pub(crate) const fn listed(self) -> Self {
        Self(self.0 | LISTED)
    }

    /// Whether it is the same mark: the same round of the same generation, and not yet taken off.
    pub(crate) const fn is_marked_like(self, marked: Self) -> bool {
        self.is_queued() && self.0 >> GENERATION_SHIFT == marked.0 >> GENERATION_SHIFT
    }

    #[must_use]
    pub(crate) const fn unqueued(self) -> Self {
        Self(self.0 & !(QUEUED | LISTED))
    }

    /// The same generation and place on the ready list, with another interest.
    #[must_use]
    pub(crate) const fn with_interest(self, interest: Events) -> Self {
        let mask = (interest.bits() as u64) & MASK;
        let flags = ((interest.bits() as u64) >> (28 - FLAGS_SHIFT)) & FLAGS;
        let unbounded = if interest.contains(Events::ONESHOT) { 0 } else { UNBOUNDED };
        Self(self.0 & !(MASK | FLAGS) | mask | flags | unbounded)
    }

    /// Whether it has been without ONESHOT in this generation.
    pub(crate) const fn has_been_unbounded(self) -> bool {
        self.0 & UNBOUNDED != 0
    }

    /// Whether a ONESHOT report has disarmed it: nothing else empties the mask of a watch.
    pub(crate) const fn is_disarmed(self) -> bool {
        self.mask() == 0
    }

    /// After a ONESHOT report: nothing is asked for, the flags stay.
    #[must_use]
    pub(crate) const fn disarmed(self) -> Self {
        Self(self.0 & !MASK)
    }

    /// The next generation of this memory: free, or waiting for the waker that still has it.
    #[must_use]
    pub(crate) const fn ended(self) -> Self {
        let generation = (self.generation() + 1) & GENERATION_MASK;
        let waits = if self.is_queued() { QUEUED | DEAD } else { 0 };
        Self(generation << GENERATION_SHIFT | waits)
    }

    /// A dead watch that its waker has delivered: free.
    #[must_use]
    pub(crate) const fn buried(self) -> Self {
        Self(self.0 & !(QUEUED | DEAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interest_round_trips_and_keeps_the_other_fields() {
        let interest = Events::IN | Events::RDHUP | Events::ALWAYS | Events::ET | Events::EXCLUSIVE;
        let state = State::FREE.ended().queued().with_interest(interest);
        assert_eq!(state.interest(), interest);
        assert_eq!(state.generation(), 1);
        assert!(state.is_queued());
        assert_eq!(state.disarmed().mask(), 0);
        assert_eq!(state.disarmed().flags(), Events::ET | Events::EXCLUSIVE);
    }

    #[test]
    fn the_generation_wraps_without_touching_its_neighbours() {
        let mut state = State::FREE;
        for _ in 0..=GENERATION_MASK {
            state = state.ended();
        }
        assert_eq!(state, State::FREE);
    }

    #[test]
    fn only_who_was_always_oneshot_is_bounded() {
        let oneshot = State::FREE.with_interest(Events::IN | Events::ONESHOT);
        assert!(
            !oneshot.has_been_unbounded()
                && !oneshot.is_disarmed()
                && oneshot.disarmed().is_disarmed()
        );
        let modified =
            oneshot.with_interest(Events::IN).with_interest(Events::IN | Events::ONESHOT);
        assert!(modified.has_been_unbounded());
        assert!(!modified.ended().has_been_unbounded(), "another life");
    }

    #[test]
    fn a_queued_watch_waits_for_its_waker_before_it_is_free() {
        let ended = State::FREE.queued().ended();
        assert!(ended.is_queued() && ended.is_dead());
        assert_eq!(ended.buried(), State::FREE.ended());
    }

    #[test]
    fn a_mark_is_known_again_until_it_is_taken_off() {
        let marked = State::FREE.with_interest(Events::IN).queued();
        assert!(
            marked.with_interest(Events::OUT).listed().is_marked_like(marked),
            "a change of interest is no new mark"
        );
        assert!(!marked.unqueued().is_marked_like(marked));
        assert!(!marked.listed().unqueued().is_listed());
        assert!(!marked.unqueued().queued().is_marked_like(marked));
        assert!(!marked.ended().is_marked_like(marked));
    }
}
