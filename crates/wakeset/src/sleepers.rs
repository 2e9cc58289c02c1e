//! The waiters of a set that sleep, and how a waker wakes one of them.
//!
//! The handshake, on both sides a store, a full barrier and a load:
//!
//! | waiter | waker |
//! |---|---|
//! | count itself in | put the watch on the list |
//! | look at the list | look at the count |
//! | nothing there: sleep on `turn` as it was before the look | somebody counted: change `turn`, wake one |
//!
//! Whichever comes second sees the other. A waker stopped between its two steps delays only its own
//! event: the next waker wakes, and that waiter harvests both.

use crate::steps::step;
use crate::sync::{AtomicU64, AtomicUsize, Futex, Ordering, Slept, fence_after_rmw};
use crate::time::Deadline;
use core::num::NonZeroU32;

const EVERY_CLASS: NonZeroU32 = NonZeroU32::MAX;
/// One waiter that sleeps on the futex.
const HERE: u64 = 1;
/// One waiter that yields before it sleeps, and will look at the list before it does.
const LINGERING: u64 = 1 << 21;
/// One waiter that sleeps elsewhere and wants the bell rung.
const ELSEWHERE: u64 = 1 << 42;

/// Wakes a waiter that sleeps in a kernel call of its own: `ring(argument)`, once for each event. Runs in the wake path,
/// so it must be async-signal-safe and must not block.
pub type Ring = fn(argument: usize);

/// The sleeping waiters of one set.
#[derive(Debug)]
pub(crate) struct Sleepers {
    /// How many sleep, are about to, or linger: `HERE`s, `LINGERING`s and `ELSEWHERE`s, in 21 bits or more each. Too high
    /// is safe (a wake that finds nobody), too low is a lost wake.
    counts: AtomicU64,
    /// Changes with each wake.
    turn: Futex,
    /// The bell: a [`Ring`] as an address, 0 for none, and its argument. Set before the first `ELSEWHERE`.
    ring: AtomicUsize,
    argument: AtomicUsize,
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self {
            counts: AtomicU64::new(0),
            turn: Futex::new(0),
            ring: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
        }
    }

    /// Wakes one sleeping waiter, if there is one; whether there was. Call it after what it shall see has been
    /// published with a `SeqCst` read-modify-write.
    #[inline]
    pub(crate) fn kick(&self) -> bool {
        if !mutant!("kick_without_fence") {
            fence_after_rmw();
        }
        step!(kick_before_look);
        let counts = self.counts.load(Ordering::SeqCst);
        step!(kick_looked);
        if counts & !(ELSEWHERE - LINGERING) != 0 {
            self.kick_sleeping(counts);
        }
        counts != 0
    }

    #[cold]
    fn kick_sleeping(&self, counts: u64) {
        let mut woken = 0;
        if !counts.is_multiple_of(LINGERING) {
            step!(kick_before_turn);
            self.turn.word().fetch_add(1, Ordering::SeqCst);
            step!(kick_turned);
            woken = self.turn.wake(1, EVERY_CLASS);
            step!(kick_futex_woken);
            if mutant!("counted_is_woken") {
                woken = 1;
            }
        }
        // One who is counted but not yet, or no longer, asleep looks at the list anyway; the bell is for the case that
        // all who are left sleep elsewhere.
        if woken == 0 && counts >= ELSEWHERE {
            self.ring();
        }
    }

    /// Wakes everybody who sleeps on the futex, to look at where the set now stands.
    pub(crate) fn kick_all(&self) {
        self.turn.word().fetch_add(1, Ordering::SeqCst);
        self.turn.wake(u32::MAX >> 1, EVERY_CLASS);
    }

    /// Sleeps until kicked, at most `until()`, but not if `ready()` holds after the waiter has been counted in.
    pub(crate) fn sleep_unless(&self, ready: impl FnOnce() -> bool, until: impl FnOnce() -> Option<Deadline>) -> Slept {
        self.sleep_with(ready, |turn, expected| turn.sleep(expected, until(), EVERY_CLASS))
    }

    /// The same with a sleep of the caller's: on this word while it has this value.
    pub(crate) fn sleep_with(&self, ready: impl FnOnce() -> bool, sleep: impl FnOnce(&Futex, u32) -> Slept) -> Slept {
        step!(sleep_before_count);
        self.counts.fetch_add(HERE, Ordering::SeqCst);
        step!(sleep_counted);
        // Before the look: a kick after it changes the word, and the sleep does not begin.
        let mut turn = self.turn.word().load(Ordering::SeqCst);
        fence_after_rmw();
        let ready = !mutant!("sleep_without_look") && ready();
        if mutant!("turn_after_look") {
            turn = self.turn.word().load(Ordering::SeqCst);
        }
        step!(sleep_before_futex);
        let slept = if ready { Slept::Woken } else { sleep(&self.turn, turn) };
        step!(sleep_before_leave);
        self.counts.fetch_sub(HERE, Ordering::SeqCst);
        step!(sleep_left);
        slept
    }

    /// Runs `linger`, which looks at the list now and then and does not sleep, as a waiter that needs no waking. Whoever finds
    /// nothing in there sleeps next, and looks at the list before.
    pub(crate) fn lingering<T>(&self, linger: impl FnOnce() -> T) -> T {
        struct Leave<'a>(&'a AtomicU64);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(LINGERING, Ordering::SeqCst);
            }
        }
        self.counts.fetch_add(LINGERING, Ordering::SeqCst);
        let _leave = Leave(&self.counts);
        linger()
    }

    /// Counts in a waiter that will sleep elsewhere. It must look at the list afterwards, and call
    /// [`leave_elsewhere`](Self::leave_elsewhere) when it no longer sleeps.
    pub(crate) fn enter_elsewhere(&self) {
        step!(elsewhere_before);
        self.counts.fetch_add(ELSEWHERE, Ordering::SeqCst);
        fence_after_rmw();
        step!(elsewhere_counted);
    }

    pub(crate) fn someone_is_elsewhere(&self) -> bool {
        self.counts.load(Ordering::SeqCst) >= ELSEWHERE
    }

    pub(crate) fn leave_elsewhere(&self) {
        step!(elsewhere_before_leave);
        self.counts.fetch_sub(ELSEWHERE, Ordering::SeqCst);
        step!(elsewhere_left);
    }

    /// Installs the bell for waiters that sleep elsewhere; `None` takes it away.
    pub(crate) fn set_bell(&self, bell: Option<(Ring, usize)>) {
        match bell {
            Some((ring, argument)) => {
                self.argument.store(argument, Ordering::SeqCst);
                self.ring.store(ring as *const () as usize, Ordering::SeqCst);
            }
            None => self.ring.store(0, Ordering::SeqCst),
        }
    }

    fn ring(&self) {
        step!(ring_before_look);
        let ring = self.ring.load(Ordering::SeqCst);
        if ring != 0 {
            let argument = self.argument.load(Ordering::SeqCst);
            // SAFETY: only `set_bell` stores here, and it stores a `Ring`.
            let ring: Ring = unsafe { core::mem::transmute::<*const (), Ring>(ring as *const ()) };
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
        let sleepers = Sleepers::new();
        assert!(!sleepers.kick(), "nobody is there");
        sleepers.lingering(|| {
            assert!(sleepers.kick());
            assert_eq!(sleepers.turn.word().load(Ordering::SeqCst), 0, "a wake for nobody");
            sleepers.enter_elsewhere();
            assert!(sleepers.someone_is_elsewhere());
            sleepers.leave_elsewhere();
            assert!(!sleepers.someone_is_elsewhere());
        });
        assert!(!sleepers.kick(), "nobody is left");
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use alloc::sync::Arc;

    /// Catches an event left to a waiter that lingers, and that then sleeps without having seen it.
    #[test]
    fn who_lingers_sees_what_is_left_to_it() {
        crate::explore(3, || {
            struct Model {
                sleepers: Sleepers,
                list: AtomicUsize,
            }
            let model = Arc::new(Model { sleepers: Sleepers::new(), list: AtomicUsize::new(0) });
            let waiter = {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || {
                    let listed = || model.list.load(Ordering::SeqCst) != 0;
                    if !model.sleepers.lingering(listed) {
                        let _ = model.sleepers.sleep_unless(listed, || None);
                        assert!(listed());
                    }
                })
            };
            model.list.fetch_add(1, Ordering::SeqCst);
            model.sleepers.kick();
            waiter.join().unwrap();
        });
    }

    /// Catches a bell that is not rung for a waiter that sleeps elsewhere because one that is about to leave the futex
    /// counts as woken. (The bell here is a futex of its own, as a doorbell eventfd is.)
    #[test]
    fn the_bell_is_rung_for_who_sleeps_elsewhere() {
        crate::explore(3, || {
            struct Model {
                sleepers: Sleepers,
                list: AtomicUsize,
                bell: Futex,
            }
            let model = Arc::new(Model { sleepers: Sleepers::new(), list: AtomicUsize::new(0), bell: Futex::new(0) });
            model.sleepers.set_bell(Some((
                |argument| {
                    // SAFETY: the model's own bell, which outlives its threads.
                    let bell = unsafe { &*core::ptr::with_exposed_provenance::<Futex>(argument) };
                    bell.word().fetch_add(1, Ordering::SeqCst);
                    bell.wake(1, EVERY_CLASS);
                },
                core::ptr::from_ref(&model.bell).expose_provenance(),
            )));
            let waiter = {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || {
                    let rung = model.bell.word().load(Ordering::SeqCst);
                    model.sleepers.enter_elsewhere();
                    if model.list.load(Ordering::SeqCst) == 0 {
                        let _ = model.bell.sleep(rung, None, EVERY_CLASS);
                    }
                    model.sleepers.leave_elsewhere();
                })
            };
            // Comes to the futex with something to do already: it counts itself in, and does not sleep.
            let passer = {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || {
                    let _ = model.sleepers.sleep_unless(|| true, || None);
                })
            };
            model.list.fetch_add(1, Ordering::SeqCst);
            model.sleepers.kick();
            waiter.join().unwrap();
            passer.join().unwrap();
        });
    }
}
