//! Taking events out of the ring, without the scan lock as long as there are some.

use crate::events::Event;
use crate::set::base::set_core::SetCore;
use crate::set::ring::ring_core::Pinned;
use crate::set::ring::ring_core::{Kept, PINS, RingCore, Taken};
use crate::sync::thread_id;
use crate::sync::{Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::state::State;

impl SetCore {
    /// Gives up to `maxevents` ready events to `report`, and no more than the ring has slots.
    /// `report` also gets the index of each in the ring, and must not call into a set.
    ///
    /// Returns how many events it took: 0 only if at some moment during the call nothing was ready
    /// but what other takers took.
    pub(crate) fn take(
        &self,
        ring: &RingCore,
        maxevents: usize,
        report: &mut impl FnMut(Event, u64),
    ) -> usize {
        if maxevents == 0 {
            return 0;
        }
        let left = self.wake.waiters.take_left();
        let taken = self.take_some(ring, maxevents, report);
        let leaves = || {
            ring.filled() > 0
                || ring.pending.load(Ordering::Relaxed) > 0
                || !self.wake.incoming.is_empty()
        };
        if left && leaves() {
            self.pass_on_all();
        }
        taken
    }

    fn take_some(
        &self,
        ring: &RingCore,
        maxevents: usize,
        report: &mut impl FnMut(Event, u64),
    ) -> usize {
        let mut told = false;
        // Levels that were taken before are to be polled again.
        let levels =
            ring.last_level.load(Ordering::Relaxed) > ring.reclaimed.load(Ordering::Relaxed);
        let more = || {
            levels
                || !self.wake.incoming.is_empty()
                || ring.pending.load(Ordering::Relaxed) > 0
                || self.is_due()
        };
        if (1..maxevents as u64).contains(&ring.filled()) && more() {
            // Before anything is taken, so that nothing is taken twice in one call.
            let (swept, _, end) = self.refill(ring, maxevents, report, None);
            if swept > 0 {
                return swept + self.take_filled(ring, maxevents - swept, end, report);
            }
            told = true;
        }
        loop {
            let filled = ring.filled();
            if filled > 0 {
                if filled > maxevents as u64 && !told {
                    // First: this thread may be stopped with the events that it has taken.
                    self.wake.waiters.kick();
                }
                let taken = self.take_filled(ring, maxevents, ring.tail(), report);
                if taken > 0 {
                    return taken;
                }
            }
            if !self.may_be_ready() {
                return 0;
            }
            let (swept, refilled, end) = self.refill(ring, maxevents, report, None);
            if swept > 0 {
                return swept + self.take_filled(ring, maxevents - swept, end, report);
            }
            if !refilled {
                return 0;
            }
            told = true;
        }
    }

    /// Takes from what is in the ring in front of `end`: what another thread has put there
    /// meanwhile may be what the caller has just taken.
    fn take_filled(
        &self,
        ring: &RingCore,
        maxevents: usize,
        end: u64,
        report: &mut impl FnMut(Event, u64),
    ) -> usize {
        let (mut taken, mut levels) = (0, false);
        let mut kept = Some(self.keep_sources(ring));
        while taken < maxevents {
            let one = match ring.take_one(end, &mut levels) {
                Taken::Planned => {
                    kept = None;
                    self.take_planned(ring, end)
                }
                one => one,
            };
            match one {
                Taken::Event(event, at) => {
                    report(event, at);
                    taken += 1;
                }
                Taken::Nothing | Taken::Planned => {}
                Taken::Empty => break,
            }
            if kept.is_none() {
                kept = Some(self.keep_sources(ring));
            }
        }
        drop(kept);
        if levels && !mutant!("ring_levels_kick_nobody") {
            // As after a harvest that has put a level back in line.
            self.wake.waiters.kick();
        }
        taken
    }

    /// Takes the first event in front of `end`, if it is one that has to be taken under the scan
    /// lock. The caller neither holds it nor has a pin.
    #[cold]
    fn take_planned(&self, ring: &RingCore, end: u64) -> Taken {
        let mut scan = self.scan.lock();
        let at = ring.head.load(Ordering::SeqCst);
        if at >= end {
            return Taken::Empty;
        }
        let entry = ring.read(at);
        // Slots are written by the holder of this lock.
        if !entry.is_for_lock()
            || !State(entry.word().load(Ordering::SeqCst)).is_marked_like(entry.state)
        {
            if entry.is_for_lock() {
                ring.go_past(at);
            }
            return Taken::Nothing;
        }
        // SAFETY: we hold the scan lock.
        let event = unsafe { entry.claim() };
        ring.go_past(at);
        // SAFETY: the mark was on, so it is a watch of this set; a source removes its watches,
        // under this lock, before it goes.
        if event.is_none() || unsafe { &*entry.source }.as_set().is_some() {
            // As after a harvest: what is not ready, and a set, which may have another edge to
            // come.
            self.plan(&mut scan, entry.watch);
        }
        let published = self.publish_deadline(&scan);
        drop(scan);
        self.mind_published(published);
        event.map_or(Taken::Nothing, |event| Taken::Event(event, at))
    }

    /// [`take`](Self::take) for the ring's only taker, which passes on what it gets: levels from
    /// `kept` on, and those of this call, are not polled again before the next call.
    pub(crate) fn take_keeping(
        &self,
        ring: &RingCore,
        maxevents: usize,
        kept: u64,
        report: &mut impl FnMut(Event, u64),
    ) -> usize {
        let first = ring.head.load(Ordering::SeqCst);
        // Whether levels may go back in line that have been taken in front of there.
        let keep_from = |at: u64| {
            let kept = kept.min(at);
            ring.kept.store(kept, Ordering::Release);
            let reclaimed = ring.reclaimed.load(Ordering::Relaxed);
            reclaimed < kept && ring.last_level.load(Ordering::Relaxed) > reclaimed
        };
        let mut levels = keep_from(first);
        let mut taken = 0;
        while taken < maxevents {
            taken += self.take_filled(ring, maxevents - taken, ring.tail(), report);
            if taken == 0 {
                // What did not hold was reported to no caller; and no wake queues it, for it is
                // marked.
                levels |= keep_from(ring.head.load(Ordering::SeqCst));
            }
            if taken == maxevents || !(levels || self.has_news(ring)) {
                break;
            }
            levels = false;
            let (swept, refilled, _) =
                self.refill(ring, maxevents - taken, report, (taken > 0).then_some(first));
            taken += swept;
            if swept > 0 || !refilled {
                break;
            }
        }
        taken
    }

    /// Whether such a take may find more than levels that are kept.
    pub(crate) fn has_news(&self, ring: &RingCore) -> bool {
        // In this order: what is taken off the list is in the pending queue when the lock is free
        // again, and a thread that leaves something there wakes a waiter.
        !self.wake.incoming.is_empty()
            || ring.pending.load(Ordering::SeqCst) > 0
            || ring.filled() > 0
            || self.is_due()
    }

    fn keep_sources<'a>(&'a self, ring: &'a RingCore) -> Kept<'a> {
        let begin = if PINS == 1 { 0 } else { thread_id::current() as usize };
        for i in 0..PINS {
            let pin = &ring.pins[(begin + i) % PINS];
            if pin.try_lock() {
                step!(section_entered);
                // Before the state of a watch is looked at: see `quiesce`.
                after_publishing(mutant!("pin_without_fence"));
                return Kept::Pin(Pinned(pin));
            }
        }
        Kept::Scan(self.scan.lock())
    }
}
