//! The waiters of a set, and how a waker wakes one of them.
//!
//! The handshake is a publish-then-check ([`fence`](crate::sync::fence)) on both sides:
//!
//! | waiter | waker |
//! |---|---|
//! | count itself in | put the watch on the list |
//! | check the list | check the count |
//! | nothing there: sleep on `wake_seq` as it was before the check | a waiter is counted: change `wake_seq`, wake one |
//!
//! Whichever side comes second sees the other. A waiter that leaves counts itself out and then
//! harvests. One that slept in a kernel call does not if the kernel has filled its array: the
//! doorbell that was rung for it is then still in the kernel half, and wakes the next waiter there.
//! A waker stopped between its two steps delays only its own event: the next waker wakes, and that
//! waiter harvests both.
//!
//! A count lasts from before the sleep until the thread runs again, so it covers waiters that have
//! been woken already. A kick may find one of these: it has yet to check the list. An exclusive
//! wake may not rely on it, since it may leave with another event; see
//! [`kick_exclusive`](Waiters::kick_exclusive).

use crate::sync::adaptive_spin::{AdaptiveSpin, Spin};
use crate::sync::spin::yield_now;
use crate::sync::time::Deadline;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Futex, Ordering, Slept, after_publishing};
use crate::testing::steps::step;
use crate::wake::timed::NEVER;
use core::num::NonZeroU32;
use core::ptr;

const EVERY_CLASS: NonZeroU32 = NonZeroU32::MAX;
/// One waiter that sleeps on the futex.
const ASLEEP: u64 = 1;
/// One waiter that spins before it sleeps, and will check the list before it does.
const SPINNING: u64 = 1 << 21;
/// One waiter that sleeps in a kernel call of its own and wants the doorbell rung.
const REMOTE: u64 = 1 << 42;
/// The bits of the counts that a kick acts on: `ASLEEP`s and `REMOTE`s, without the `SPINNING`s
/// between them.
const TO_WAKE: u64 = !(REMOTE - SPINNING);

/// Wakes a waiter that sleeps in a kernel call of its own: `ring(argument)`, once for each event.
/// Runs in the wake path, so it must be async-signal-safe and must not block.
pub type DoorbellFn = fn(argument: usize);

/// The sleeping waiters of one set.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// How many sleep, are about to, have just been woken, or spin: `ASLEEP`s, `SPINNING`s and
    /// `REMOTE`s, in 21 bits or more each. A count that is too high is safe (a wake that finds no
    /// waiter); one that is too low is a lost wake.
    counts: AtomicU64,
    /// Changes with each wake. 2^32 kicks between a waiter's read and its FUTEX_WAIT would be
    /// missed; that is accepted.
    wake_seq: Futex,
    /// The doorbell: a [`DoorbellFn`] as an address, 0 for none, and its argument. Set before the
    /// first `REMOTE`.
    doorbell: AtomicUsize,
    argument: AtomicUsize,
    /// When the first of the set's plans is due, as of the last time the scan lock was free;
    /// [`NEVER`] for none. No waiter may sleep beyond it unless another minds it.
    deadline: AtomicU64,
    /// Not 0: an exclusive wake has been left to a waiter that was not woken from the futex, and
    /// that passes it on if it leaves with other events.
    left_exclusive: AtomicU32,
    /// Whether they spin before they sleep.
    pub(crate) adaptive_spin: AdaptiveSpin,
}

/// Whether a waiter that spins is counted, meanwhile, as one that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Uncounted,
    /// A loop of the program's, which is counted for good as one that sleeps in a kernel call.
    Remote,
}

impl Own {
    fn counts(self) -> u64 {
        match self {
            Self::Uncounted => 0,
            Self::Remote => REMOTE,
        }
    }
}

/// What has become of the deadline when it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    Same,
    /// It is earlier than it was: a waiter has to be found that minds it.
    Earlier,
    /// It is later than it was: a thread that has set a timer may have compared it with the
    /// deadline before.
    Later,
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Waiters>() <= 64, "a cache line");

/// What a spin has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Ready,
    Outside,
    Nothing,
    /// There is nothing to look for any more.
    Stop,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self {
            counts: AtomicU64::new(0),
            wake_seq: Futex::new(0),
            doorbell: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
            deadline: AtomicU64::new(NEVER),
            left_exclusive: AtomicU32::new(0),
            adaptive_spin: AdaptiveSpin::new(),
        }
    }

    /// What probes know the set by.
    #[inline(always)]
    pub(crate) fn addr(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// The earliest plan there was when the scan lock was last free.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// Says until when the waiters may sleep, for the holder of the scan lock, which acts on the
    /// answer when it has unlocked (`SetCore::mind_published`).
    pub(crate) fn publish_deadline(&self, at: u64) -> Published {
        let before = self.deadline.load(Ordering::Relaxed);
        if at == before {
            return Published::Same;
        }
        // A read-modify-write, for the check that comes after it: of the waiters, or of the list.
        self.deadline.swap(at, Ordering::SeqCst);
        if at < before { Published::Earlier } else { Published::Later }
    }

    /// Wakes one sleeping waiter, if there is one. Call it after what it shall see has been
    /// published with a `SeqCst` read-modify-write.
    #[inline]
    pub(crate) fn kick(&self) {
        after_publishing(mutant!("kick_without_fence"));
        step!(kick_before_look);
        let counts = self.counts.load(Ordering::SeqCst);
        step!(kick_looked);
        let is_spinners = mutated!("spinner_takes_all") && counts & (REMOTE - SPINNING) != 0;
        if counts & TO_WAKE != 0 && !is_spinners {
            self.kick_sleeping(counts);
        }
    }

    /// [`kick`](Self::kick) for an exclusive wake; whether one of the waiters takes it.
    ///
    /// A waiter of the futex takes it if this call has woken it. One that is still counted but was
    /// woken before, for something else, may leave with that: in Linux it is no longer in the
    /// queue. Of a waiter that spins or sleeps in a kernel call the waker cannot know; it takes
    /// the wake too, and passes on what it leaves behind ([`take_left`](Self::take_left)).
    pub(crate) fn kick_exclusive(&self) -> bool {
        after_publishing(mutant!("kick_without_fence"));
        step!(kick_before_look);
        let mut counts = self.counts.load(Ordering::SeqCst);
        if counts >= SPINNING {
            self.left_exclusive.swap(1, Ordering::SeqCst);
            if !mutant!("left_without_second_look") {
                after_publishing(false);
                // A waiter that is counted now counts itself out later, and sees the note then.
                counts = self.counts.load(Ordering::SeqCst);
            }
        }
        step!(kick_looked);
        let woken = counts & TO_WAKE != 0 && self.kick_sleeping(counts);
        woken || counts >= SPINNING || mutant!("counted_takes_exclusive") && counts != 0
    }

    /// Whether an exclusive wake has been left to a waiter since the last call. A waiter asks this
    /// when it has counted itself out and before it takes the list, and passes on what it leaves
    /// there.
    #[inline]
    pub(crate) fn take_left(&self) -> bool {
        self.has_left() && self.left_exclusive.swap(0, Ordering::SeqCst) != 0
    }

    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.left_exclusive.load(Ordering::SeqCst) != 0
    }

    /// Wakes a waiter of the futex, or rings the doorbell; whether it was one of the futex.
    #[cold]
    fn kick_sleeping(&self, counts: u64) -> bool {
        probe!(kick, u64 self.addr(); 1);
        let mut woken = 0;
        self.adaptive_spin.waking(|| {
            woken = self.wake_sleeping(counts);
            true
        });
        woken != 0
    }

    fn wake_sleeping(&self, counts: u64) -> usize {
        let mut woken = 0;
        if !counts.is_multiple_of(SPINNING) {
            step!(kick_before_turn);
            self.wake_seq.word().fetch_add(1, Ordering::SeqCst);
            step!(kick_turned);
            woken = self.wake_seq.wake(1, EVERY_CLASS);
            step!(kick_futex_woken);
            if mutant!("counted_is_woken") {
                woken = 1;
            }
        }
        // A counted waiter that is not yet, or no longer, asleep on the futex checks the list
        // anyway. The doorbell is for the case that all the others are remote waiters.
        if woken == 0 && counts >= REMOTE {
            self.ring_doorbell();
        }
        woken
    }

    /// Wakes every thread that sleeps on the futex, to check what has become of the set.
    pub(crate) fn kick_all(&self) {
        self.wake_seq.word().fetch_add(1, Ordering::SeqCst);
        self.wake_seq.wake(u32::MAX >> 1, EVERY_CLASS);
    }

    /// Sleeps until kicked, at most `until()`, but not if `ready()` holds after the waiter has been
    /// counted in.
    pub(crate) fn sleep_unless(
        &self,
        ready: impl FnOnce() -> bool,
        until: impl FnOnce() -> Option<Deadline>,
    ) -> Slept {
        self.sleep_with(ready, |futex, expected| futex.sleep(expected, until(), EVERY_CLASS))
    }

    /// The same with a sleep of the caller's: on this word while it has this value.
    pub(crate) fn sleep_with(
        &self,
        ready: impl FnOnce() -> bool,
        sleep: impl FnOnce(&Futex, u32) -> Slept,
    ) -> Slept {
        step!(sleep_before_count);
        self.counts.fetch_add(ASLEEP, Ordering::SeqCst);
        step!(sleep_counted);
        // Before the look: a kick after it changes the word, and the sleep does not begin.
        let mut seen = self.wake_seq.word().load(Ordering::SeqCst);
        after_publishing(mutant!("sleep_without_fence"));
        let ready = !mutant!("sleep_without_look") && ready();
        if mutant!("turn_after_look") {
            seen = self.wake_seq.word().load(Ordering::SeqCst);
        }
        step!(sleep_before_futex);
        let slept = if ready {
            Slept::Woken
        } else {
            probe!(sleep, u64 self.addr());
            let slept = sleep(&self.wake_seq, seen);
            probe!(run, u64 self.addr());
            slept
        };
        step!(sleep_before_leave);
        self.counts.fetch_sub(ASLEEP, Ordering::SeqCst);
        step!(sleep_left);
        slept
    }

    /// Runs `spin`, which looks at the list and does not sleep, as a waiter that needs no waking.
    /// It harvests afterwards, not in there: what is pushed while it is counted may be left to it.
    /// A waiter that finds nothing spins again, or sleeps, and looks at the list before.
    pub(crate) fn while_spinning<T>(&self, spin: impl FnOnce() -> T) -> T {
        struct Leave<'a>(&'a AtomicU64);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                step!(spin_before_leave);
                self.0.fetch_sub(SPINNING, Ordering::SeqCst);
                // Before the look at the list, and at what has been left.
                after_publishing(false);
                step!(spin_left);
            }
        }
        step!(spin_before_count);
        self.counts.fetch_add(SPINNING, Ordering::SeqCst);
        step!(spin_counted);
        let _leave = Leave(&self.counts);
        spin()
    }

    /// Yields a few times, if the sleeps before have been short, until `ready()`, and then returns
    /// what `take()` gets, as it does where `stay()` does not hold before a yield. `pure` says that
    /// the set has no kernel half.
    pub(crate) fn yield_for(
        &self,
        pure: bool,
        stay: impl Fn() -> bool,
        ready: impl Fn() -> bool,
        take: impl FnMut() -> usize,
    ) -> usize {
        let yields = || {
            self.while_spinning(|| {
                yield_now();
                ready()
            })
        };
        let yielded = || !stay() || yields();
        self.adaptive_spin.yield_for(pure, yielded, take)
    }

    /// Looks for about as long as a wake-up takes at most, or as the program has set it, until
    /// `ready()`, and then returns what `take()` gets; 0 to sleep. It ends when `stay()` no longer
    /// holds. In a set with a kernel half `outside()` says now and then whether there is something;
    /// `take()` is to get it. Not where others sleep already, beside `own`, which the caller has
    /// counted in: an event would wake one of them.
    pub(crate) fn spin(
        &self,
        own: Own,
        until: Option<Deadline>,
        stay: impl Fn() -> bool,
        ready: impl Fn() -> bool,
        mut outside: Option<&mut dyn FnMut() -> bool>,
        mut take: impl FnMut() -> usize,
    ) -> usize {
        if self.counts.load(Ordering::Relaxed) & TO_WAKE != own.counts() {
            return 0;
        }
        let until = until.map_or(NEVER, Deadline::as_nanos).min(self.deadline());
        let Some(mut spin) = self.adaptive_spin.begin(until) else { return 0 };
        loop {
            let mut taken = 0;
            let looked = self.while_spinning(|| {
                let looked = self.look(&mut spin, &stay, &ready, &mut outside);
                if mutant!("harvest_in_spin") && looked == Looked::Ready {
                    taken = take();
                }
                looked
            });
            if looked == Looked::Stop {
                spin.stopped();
                return 0;
            }
            if looked != Looked::Nothing && taken == 0 {
                taken = take();
            }
            if taken != 0 {
                match looked {
                    Looked::Ready => spin.succeeded(),
                    _ => spin.found_outside(),
                }
                return taken;
            }
            // What looked ready may look so for long: a waker has stopped, or another waiter
            // has it in its hands.
            if looked == Looked::Nothing || !spin.goes_on(self.deadline()) {
                spin.failed();
                return 0;
            }
        }
    }

    fn look(
        &self,
        spin: &mut Spin<'_>,
        stay: &impl Fn() -> bool,
        ready: &impl Fn() -> bool,
        outside: &mut Option<&mut dyn FnMut() -> bool>,
    ) -> Looked {
        loop {
            if ready() {
                return Looked::Ready;
            }
            if !stay() {
                return Looked::Stop;
            }
            if !spin.goes_on(self.deadline()) {
                return Looked::Nothing;
            }
            if let Some(outside) = outside
                && spin.looks_outside()
            {
                if outside() {
                    return Looked::Outside;
                }
                spin.looked_outside();
            }
        }
    }

    /// Counts in a waiter that will sleep in a kernel call of their own. It must look at the list
    /// afterwards, and call [`leave_remote`](Self::leave_remote) when it no longer sleeps.
    pub(crate) fn enter_remote(&self) {
        step!(elsewhere_before);
        self.counts.fetch_add(REMOTE, Ordering::SeqCst);
        after_publishing(mutant!("remote_without_fence"));
        step!(elsewhere_counted);
        probe!(sleep, u64 self.addr());
    }

    pub(crate) fn has_remote_waiter(&self) -> bool {
        self.counts.load(Ordering::SeqCst) >= REMOTE
    }

    pub(crate) fn leave_remote(&self) {
        probe!(run, u64 self.addr());
        step!(elsewhere_before_leave);
        self.counts.fetch_sub(REMOTE, Ordering::SeqCst);
        after_publishing(false);
        step!(elsewhere_left);
    }

    /// Installs the doorbell for waiters that sleep in a kernel call of their own; `None` takes it
    /// away. A waker that pushed before there was one found none to ring, so the installing thread
    /// then asks [`has_remote_waiter`](Self::has_remote_waiter), and rings it itself.
    pub(crate) fn set_doorbell(&self, bell: Option<(DoorbellFn, usize)>) {
        match bell {
            Some((ring, argument)) => {
                self.argument.store(argument, Ordering::SeqCst);
                // A read-modify-write, for the check of the remote waiters that comes after it.
                self.doorbell.swap(ring as *const () as usize, Ordering::SeqCst);
                after_publishing(mutant!("bell_without_fence"));
            }
            None => self.doorbell.store(0, Ordering::SeqCst),
        }
    }

    fn ring_doorbell(&self) {
        step!(ring_before_look);
        let ring = self.doorbell.load(Ordering::SeqCst);
        if ring != 0 {
            let argument = self.argument.load(Ordering::SeqCst);
            // SAFETY: only `set_doorbell` stores here, and it stores a `DoorbellFn`.
            let ring: DoorbellFn =
                unsafe { core::mem::transmute::<*const (), DoorbellFn>(ring as *const ()) };
            step!(ring_before);
            ring(argument);
            step!(ring_done);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn who_lingers_is_a_waiter_and_needs_no_waking() {
        let waiters = Waiters::new();
        assert!(!waiters.kick_exclusive(), "no waiter is there");
        waiters.while_spinning(|| {
            assert!(waiters.kick_exclusive());
            assert_eq!(waiters.wake_seq.word().load(Ordering::SeqCst), 0, "a wake for nobody");
            waiters.enter_remote();
            assert!(waiters.has_remote_waiter());
            waiters.leave_remote();
            assert!(!waiters.has_remote_waiter());
        });
        assert!(!waiters.kick_exclusive(), "no waiter is left");
        assert!(waiters.take_left() && !waiters.take_left());
    }
}

#[cfg(all(test, loom))]
mod models;
