//! How a thread falls asleep in a poller, and how it is woken. Under loom this file runs as it is.
//!
//! The thread sleeps on a futex if all that its call names is in process, and otherwise, or under a
//! signal mask, in ppoll(2) with a doorbell. To the engine it is a remote waiter in both cases. The
//! handshake is the one of every waiter:
//!
//! | thread | waker | migrating thread |
//! |---|---|---|
//! | publishes its doorbell, takes `seq`, counts itself in | puts the watch on the list | says `moved` |
//! | looks at the list and at `moved` | looks at the count | looks at the count |
//! | nothing: sleeps on `seq` as it was, or on the doorbell | one is counted: changes `seq`, wakes or rings | the same |
//!
//! The doorbell is lent, and its number may be the program's as soon as it has been given back. So
//! that is a handshake as well:
//!
//! | thread that gives it back | waker |
//! |---|---|
//! | has no doorbell any more | counts itself among those that ring |
//! | looks for those that ring: one is there, so it keeps the number | looks for the doorbell |
//! | none is there: empties it if a ring is noted | rings, and notes it; then is counted no more |
//!
//! So a doorbell that nobody has rung is not read. The thread that empties it during its call takes
//! the note first, because a waker notes its ring after it: a ring that the read does not find is
//! noted, or will be before the doorbell is given back.

use crate::set::doorbell;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step, step_lock};
use crate::sys::sync::{AtomicI32, AtomicU32, Ordering, fence, mutant};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::ptr;
use libc::timespec;
use wakeset::{Deadline, EventPoll};

/// The part of a poller that wakers and migrating threads touch.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// Watches what the call names.
    pub(crate) set: EventPoll,
    /// Not 0: a watch has left for the kernel, or the doorbell is wanted back.
    moved: AtomicU32,
    /// What the thread sleeps on.
    seq: AtomicU32,
    /// What wakers ring: its doorbell while it sleeps in ppoll(2), -1 while it sleeps on `seq`.
    doorbell: AtomicI32,
    /// The doorbell that it has, -1 for none.
    has_doorbell: AtomicI32,
    /// Counts the wakers that are about to ring.
    rings: AtomicU32,
    /// Not 0: the doorbell has been rung, and perhaps not been emptied since.
    rung: AtomicU32,
}

/// A thread that is counted in, and about to sleep.
pub(crate) struct Entered {
    seen: u32,
    /// Until when it has to sleep at most, because no other waiter minds the set's timers.
    pub(crate) led: Option<Deadline>,
    /// There is a reason not to sleep.
    pub(crate) stays: bool,
}

impl Sleeper {
    pub(crate) fn new(set: EventPoll) -> Self {
        Self {
            set,
            moved: AtomicU32::new(0),
            seq: AtomicU32::new(0),
            doorbell: AtomicI32::new(-1),
            has_doorbell: AtomicI32::new(-1),
            rings: AtomicU32::new(0),
            rung: AtomicU32::new(0),
        }
    }

    /// Wakers of the set wake it from now on.
    ///
    /// # Safety
    /// It stays where it is for as long as there are wakers.
    pub(crate) unsafe fn be_woken(&self) {
        self.set.set_doorbell(Some((wake_at, ptr::from_ref(self).expose_provenance())));
    }

    /// Counts the thread in that is to sleep in ppoll(2) on this doorbell, or on the futex for -1.
    pub(crate) fn enter(&self, bell: c_int) -> Entered {
        step!(poller_before_count);
        let publish = || self.doorbell.store(bell, Ordering::SeqCst);
        if !mutant!("poller_rung_before_its_bell") {
            publish();
        }
        let mut seen = self.seq.load(Ordering::SeqCst);
        self.set.enter_remote();
        step!(poller_counted);
        let led = self.set.lead().filter(|_| !mutant!("poller_minds_no_timer"));
        let has_news = self.set.may_be_ready() && !mutant!("poller_sleeps_on_events");
        let stays = has_news || self.has_moved() && !mutant!("poller_sleeps_on_a_move");
        if mutant!("poller_rung_before_its_bell") {
            publish();
        }
        if mutant!("poller_seq_after_look") {
            seen = self.seq.load(Ordering::SeqCst);
        }
        Entered { seen, led, stays }
    }

    /// Sleeps on the futex until woken, or until a point of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// As futex(2) for `FUTEX_WAIT`.
    pub(crate) fn sleep(&self, entered: &Entered, until: &timespec) -> Result<(), Errno> {
        sys::futex_sleep(&self.seq, entered.seen, until)
    }

    /// Counts the thread out, with what it has led.
    pub(crate) fn leave(&self, led: Option<Deadline>) {
        step!(poller_before_leave);
        self.set.stop_leading(led);
        self.set.leave_remote();
        step!(poller_left);
    }

    /// A thread that is about to sleep on the futex does not.
    pub(crate) fn keep_awake(&self) {
        self.seq.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the watches have to be made anew, or the doorbell given back.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn note_moved(&self) {
        self.moved.swap(1, Ordering::SeqCst);
        if !mutant!("poller_hears_of_no_move") {
            self.set.kick();
        }
    }

    pub(crate) fn forget_moved(&self) {
        self.moved.store(0, Ordering::SeqCst);
    }

    pub(crate) fn have_doorbell(&self, bell: c_int) {
        self.has_doorbell.store(bell, Ordering::SeqCst);
    }

    /// The doorbell that it has, -1 for none.
    pub(crate) fn own_doorbell(&self) -> c_int {
        self.has_doorbell.load(Ordering::SeqCst)
    }

    /// Calls `empty` for the doorbell that it has.
    pub(crate) fn silence(&self, empty: impl FnOnce(c_int)) {
        let forget = || _ = self.rung.swap(0, Ordering::SeqCst);
        if !mutant!("poller_emptied_before_the_note") {
            forget();
        }
        empty(self.own_doorbell());
        if mutant!("poller_emptied_before_the_note") {
            forget();
        }
    }

    /// Has no doorbell any more, and calls `empty` for it if it has been rung; `false` if a waker
    /// is about to ring it. Whoever had it before may have left it ringing: whoever sleeps on it
    /// next empties it.
    pub(crate) fn lay_doorbell_down(&self, empty: impl FnOnce(c_int)) -> bool {
        self.doorbell.store(-1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.rings.load(Ordering::SeqCst) != 0 && !mutant!("poller_bell_taken_from_ringers") {
            return false;
        }
        if self.rung.load(Ordering::SeqCst) != 0 {
            self.silence(empty);
        }
        self.has_doorbell.store(-1, Ordering::SeqCst);
        true
    }

    /// The wakers that are about to ring, for a thread that waits for them.
    #[cfg_attr(not(wakeset_steps), expect(dead_code, reason = "only the steps look at it"))]
    pub(crate) fn rings(&self) -> &AtomicU32 {
        &self.rings
    }

    fn wake(&self) {
        // No handler comes in between: one that wants the number waits for this thread.
        let _guard = SignalGuard::enter_unless_fast();
        self.rings.fetch_add(1, Ordering::SeqCst);
        step_lock!(Locked, &self.rings);
        step!(poller_before_wake);
        self.seq.fetch_add(1, Ordering::SeqCst);
        step!(poller_seq_changed);
        if !mutant!("poller_rings_without_fence") {
            fence(Ordering::SeqCst);
        }
        let bell = self.doorbell.load(Ordering::SeqCst);
        if bell >= 0 {
            doorbell::ring(bell);
            if !mutant!("poller_rung_unnoted") {
                self.rung.store(1, Ordering::SeqCst);
            }
        } else {
            sys::futex_wake(&self.seq, 1);
        }
        step!(poller_woken);
        self.rings.fetch_sub(1, Ordering::SeqCst);
        step_lock!(Unlocked, &self.rings);
    }
}

/// Wakes the thread that sleeps in the poller whose sleeper is at `address`: a `DoorbellFn` of the
/// engine.
fn wake_at(address: usize) {
    // SAFETY: `be_woken` gives the address of a sleeper that stays there.
    unsafe { &*ptr::with_exposed_provenance::<Sleeper>(address) }.wake();
}
