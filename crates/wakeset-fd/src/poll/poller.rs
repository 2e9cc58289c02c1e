//! A poller: what one thread at a time sleeps in that is in poll(2) or select(2). It is a set of
//! the engine, in no entry of the table, that watches what the call names while it sleeps.
//!
//! How it falls asleep and is woken is in `sleeper.rs`. What is here belongs to the call that has
//! the poller: its watches, its doorbell, its time and its end.
//!
//! Before a handler of the program runs, the poller is given up on behalf of the thread, because
//! the handler may leave the call by siglongjmp(3). Linux knows at that time how the call ends;
//! what the poller knows of it is left in the call's [`Frame`]. The thread may be about to sleep:
//! then the changes of `seq` and of the doorbell's entry keep it from it.

use super::sleeper::Sleeper;
use crate::set::doorbell::{self, Lent, Unlent};
use crate::set::wait::short_of;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step, step_lock, step_waited};
use crate::sys::{self, Errno, memory};
use crate::table::object::Lists;
use crate::table::{self, Slot, SlotHead, engine};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use libc::{pollfd, timespec};
use wakeset::{Deadline, Error, Event, EventPoll, Events, Source, mutated};

/// What a handler that runs during a call has to find of it, on the stack of the thread.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Frame {
    /// [`GOING_ON`], or what a handler has left.
    ended: AtomicU32,
    /// The signals that the call blocks.
    blocked: u64,
    /// The entries of the sleep in ppoll(2) but the doorbell's; null where there is none.
    entries: AtomicPtr<pollfd>,
    len: AtomicUsize,
    /// The doorbell's entry; null as above.
    bell: AtomicPtr<pollfd>,
}

/// No handler has run.
const GOING_ON: u32 = 0;
/// One has, and nothing was ready before it.
const NOTHING: u32 = 1;
/// One has, and there may have been something.
const LOOK: u32 = 2;
/// One has of a signal that the call blocks, and so not during the sleep: to the program it was
/// before the call.
const AGAIN: u32 = 3;

/// How a call was ended by a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    Nothing,
    /// What was ready before the handler goes first.
    Look,
    /// The call begins anew.
    Again,
}

impl Frame {
    /// For a call that blocks these signals.
    pub(super) const fn new(blocked: u64) -> Self {
        Self {
            ended: AtomicU32::new(GOING_ON),
            blocked,
            entries: AtomicPtr::new(ptr::null_mut()),
            len: AtomicUsize::new(0),
            bell: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The signals that the call blocks.
    pub(super) fn blocked(&self) -> u64 {
        self.blocked
    }

    /// Says what is slept on in the kernel.
    fn set_entries(&self, entries: Option<&[Cell<pollfd>]>) {
        let (bell, own) = match entries.and_then(<[_]>::split_last) {
            Some((bell, own)) => (bell.as_ptr(), own),
            None => (ptr::null_mut(), &[][..]),
        };
        self.entries.store(own.as_ptr().cast_mut().cast(), Ordering::Relaxed);
        self.len.store(own.len(), Ordering::Relaxed);
        self.bell.store(bell, Ordering::Relaxed);
    }

    /// Has a ppoll(2) that is about to begin return at once: the kernel reads the entries only
    /// then. No process has a number as high as the doorbell's is from now on.
    fn keep_awake(&self) {
        let bell = self.bell.load(Ordering::Relaxed);
        if !bell.is_null() && !mutated!("poll_sleeps_after_its_handler") {
            // SAFETY: the call is under way on this thread, below the handler that this is for.
            unsafe { (&raw mut (*bell).fd).write(c_int::MAX) };
        }
    }

    /// Whether something of the kernel's is ready, before a handler runs: the call sleeps on it and
    /// is over, so that nobody else uses the entries any more.
    fn kernel_has_some(&self) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        let place = self.entries.load(Ordering::Relaxed);
        len != 0 && matches!(sys::poll_entries(place, len, Duration::ZERO), Ok(1..))
    }

    /// Whether a handler has ended the call, and given up the poller.
    pub(super) fn interrupted(&self) -> Option<Interrupted> {
        match self.ended.load(Ordering::Relaxed) {
            GOING_ON => None,
            NOTHING => Some(Interrupted::Nothing),
            AGAIN => Some(Interrupted::Again),
            _ => Some(Interrupted::Look),
        }
    }
}

/// See the [module's description](self).
#[repr(C, align(64))]
pub(super) struct Poller {
    pub(super) head: SlotHead,
    pub(super) lists: Lists,
    pub(super) sleeper: Sleeper,
    /// Its place in the pool, plus one.
    pub(super) name: u32,
    /// Not 0: a call has it.
    taken: AtomicU32,
    /// The last sleep in the kernel was one, and not over at once.
    slept: AtomicBool,
    /// The call's.
    frame: AtomicPtr<Frame>,
    own: Own,
}

/// What only the call touches that has the poller, or a handler above it.
struct Own {
    /// It may have watches.
    watches: Cell<bool>,
    /// It is counted in as a waiter.
    counted: Cell<bool>,
    led: Cell<Option<Deadline>>,
    lent: Cell<Option<Lent>>,
}

// SAFETY: `own` is touched by the thread that has the poller, and what it holds may be sent.
unsafe impl Sync for Poller {}

// SAFETY: `repr(C)` with the head first, and a kind that no entry of the table has.
unsafe impl Slot for Poller {
    const KIND: usize = table::POLLER;

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        Self::make(head, 0)
    }
}

impl Poller {
    /// A poller under this name, which the caller has.
    pub(super) fn new(name: u32) -> Option<&'static Self> {
        Self::make(SlotHead::unnumbered::<Self>(), name)
    }

    fn make(head: SlotHead, name: u32) -> Option<&'static Self> {
        let poller = memory::leak(Self {
            head,
            lists: Lists::new(),
            sleeper: Sleeper::new(EventPoll::new(engine::get()?).ok()?),
            name,
            taken: AtomicU32::new(1),
            slept: AtomicBool::new(false),
            frame: AtomicPtr::new(ptr::null_mut()),
            own: Own {
                watches: Cell::new(false),
                counted: Cell::new(false),
                led: Cell::new(None),
                lent: Cell::new(None),
            },
        })?;
        poller.set().set_owner(ptr::from_ref(poller).expose_provenance());
        // SAFETY: it is never freed.
        unsafe { poller.sleeper.be_woken() };
        Some(poller)
    }

    /// The set that watches for it.
    pub(super) fn set(&self) -> &EventPoll {
        &self.sleeper.set
    }

    pub(super) fn try_take(&self) -> bool {
        self.taken.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the next call is likely to sleep as well: the kernel had nothing ready last time.
    pub(super) fn has_slept(&self) -> bool {
        self.slept.load(Ordering::Relaxed)
    }

    /// Whether the kernel had nothing ready when it was asked last.
    pub(super) fn note_slept(&self, slept: bool) {
        self.slept.store(slept, Ordering::Relaxed);
    }

    /// Makes it this call's. The caller has a signal guard.
    pub(super) fn begin(&self, frame: &Frame) {
        self.frame.store(ptr::from_ref(frame).cast_mut(), Ordering::Relaxed);
    }

    /// Ends the call's use of it. The caller has a signal guard, or is a handler on the thread.
    pub(super) fn release(&self) {
        step!(poller_before_release);
        self.leave();
        self.unwatch();
        self.return_doorbell();
        self.frame.store(ptr::null_mut(), Ordering::Relaxed);
        self.taken.store(0, Ordering::SeqCst);
    }

    /// Before a handler of a signal runs, in the thread that has it: ends the call.
    pub(super) fn interrupt(&self, signal: c_int) {
        let is_watching = self.own.watches.get() && !self.has_moved();
        // SAFETY: the call is under way on this thread, below the handler.
        if let Some(frame) = unsafe { self.frame.load(Ordering::Relaxed).as_ref() } {
            let ended = if frame.blocked >> (signal - 1) & 1 == 1 {
                AGAIN
            } else if is_watching && self.set().poll().is_empty() && !frame.kernel_has_some() {
                NOTHING
            } else {
                LOOK
            };
            frame.keep_awake();
            frame.ended.store(ended, Ordering::Relaxed);
        }
        self.sleeper.keep_awake();
        self.release();
    }

    /// Watches an object under a key of the caller's.
    ///
    /// # Errors
    /// [`Error::Closed`]: the object is migrating, or was closed. Others: it cannot be watched.
    ///
    /// # Safety
    /// The source is an object in its slot.
    pub(super) unsafe fn watch(
        &self,
        key: c_int,
        source: &'static dyn Source,
        mask: u32,
    ) -> Result<(), Error> {
        self.own.watches.set(true);
        let event = Event::new(Events::from_bits_retain(mask), 0);
        // SAFETY: slots are never freed, and their queues are closed when the object ends.
        unsafe { self.set().add_source(key, source, event) }
    }

    /// Takes its watches out of the wait queues, and forgets what they have told.
    pub(super) fn unwatch(&self) {
        if self.own.watches.replace(false) {
            self.set().clear();
        }
        self.sleeper.forget_moved();
    }

    pub(super) fn is_watching(&self) -> bool {
        self.own.watches.get()
    }

    /// Whether the watches have to be made anew, or the doorbell given back.
    pub(super) fn has_moved(&self) -> bool {
        self.sleeper.has_moved()
    }

    /// Drops what the watches have told of and no longer holds.
    pub(super) fn sift(&self, most: usize) {
        self.set().harvest(most, |_| true);
    }

    /// Has a doorbell from now on.
    ///
    /// # Errors
    /// There is none to be had, now or at all.
    pub(super) fn borrow_doorbell(&self) -> Result<(), Unlent> {
        if self.doorbell() >= 0 {
            return Ok(());
        }
        let lent = doorbell::lend()?;
        self.sleeper.have_doorbell(lent.fd());
        self.own.lent.set(Some(lent));
        Ok(())
    }

    pub(super) fn doorbell(&self) -> c_int {
        self.sleeper.own_doorbell()
    }

    /// Gives the doorbell back, unless a waker is about to ring it: then the next call that has the
    /// poller may.
    pub(super) fn return_doorbell(&self) {
        if self.doorbell() < 0 {
            return;
        }
        if self.sleeper.lay_doorbell_down(empty) {
            drop(self.own.lent.take());
        }
    }

    /// Gives the doorbell back, for a call that is about to wait for the migrations lock: the
    /// thread that holds it may be waiting for the doorbell.
    pub(super) fn give_doorbell_back(&self) {
        self.return_doorbell();
        while self.doorbell() >= 0 {
            step_lock!(Waiting, self.sleeper.rings());
            sys::sched_yield();
            self.return_doorbell();
        }
        step_waited!();
    }

    /// For a thread that holds the migrations lock and wants the doorbells.
    pub(super) fn recall(&self) {
        if self.doorbell() < 0 {
            return;
        }
        if self.try_take() {
            self.return_doorbell();
            self.taken.store(0, Ordering::SeqCst);
        } else {
            self.note_moved();
        }
    }

    pub(super) fn note_moved(&self) {
        self.sleeper.note_moved();
    }

    /// Sleeps until something may have changed, until the deadline at most: in ppoll(2) if there
    /// are `entries`, the last of which is the doorbell's. The caller has a signal guard, and gives
    /// it here. `None`: there was no reason to sleep.
    pub(super) fn sleep(
        &self,
        frame: &Frame,
        entries: Option<&[Cell<pollfd>]>,
        deadline: Option<Deadline>,
        mask: *const u8,
        guard: SignalGuard,
    ) -> Option<Result<usize, Errno>> {
        // A poller that sleeps on the futex may have kept a doorbell from its last call.
        let bell = if entries.is_some() { self.doorbell() } else { -1 };
        self.own.counted.set(true);
        let entered = self.sleeper.enter(bell);
        let led = entered.led;
        self.own.led.set(led);
        let until = match (deadline, led) {
            (Some(deadline), Some(led)) => Some(deadline.min(led)),
            (deadline, led) => deadline.or(led),
        };
        frame.set_entries(entries);
        let left = |until: Deadline| match until.remaining() {
            left if led == Some(until) => short_of(left),
            left => left,
        };
        // The kernel sets no timer for a call without a limit.
        let limit = until.filter(|_| entries.is_some()).map(|until| time_of(left(until)));
        drop(guard);
        // From here on a handler may end the call.
        (!entered.stays && frame.interrupted().is_none()).then(|| {
            step!(poller_before_sleep);
            let (slept, is_sleep) = self.set().timed_sleep(|| match entries {
                Some(entries) => {
                    let place = entries.as_ptr().cast_mut().cast::<pollfd>();
                    // SAFETY: so many entries, and a mask that the caller vouches for.
                    unsafe { sys::waits::ppoll(place, entries.len(), limit.as_ref(), mask) }
                }
                None => {
                    let until = until.map_or(FAR, |until| time_of(until.since_boot()));
                    self.sleeper.sleep(&entered, &until).map(|()| 0)
                }
            });
            step!(poller_slept);
            // Untimed, it may have found at once what the kernel has.
            self.note_slept(is_sleep.unwrap_or(slept == Ok(0)) && entries.is_some());
            slept
        })
    }

    /// Whether the sleep was to last until this deadline, and not until a timer was due: before
    /// [`leave`](Self::leave).
    pub(super) fn slept_until(&self, deadline: Option<Deadline>) -> bool {
        self.own.led.get().is_none_or(|led| deadline.is_some_and(|deadline| deadline < led))
    }

    /// The thread no longer sleeps.
    pub(super) fn leave(&self) {
        if self.own.counted.replace(false) {
            self.sleeper.leave(self.own.led.take());
        }
    }

    /// Empties the doorbell, after it has rung.
    pub(super) fn silence(&self) {
        self.sleeper.silence(empty);
    }

    /// The spin before a sleep.
    pub(super) fn spin(
        &self,
        deadline: Option<Deadline>,
        stay: impl Fn() -> bool,
        ready: impl Fn() -> bool,
        outside: Option<&mut dyn FnMut() -> bool>,
    ) -> bool {
        self.set().spin_unwatched(deadline, stay, ready, outside)
    }
}

/// Later than any program waits, and what every kernel takes for a time.
const FAR: timespec = timespec { tv_sec: i64::MAX / 4_000_000_000, tv_nsec: 0 };

fn time_of(time: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(FAR.tv_sec).min(FAR.tv_sec),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn empty(doorbell: c_int) {
    let mut rings = 0_u64;
    let _ = sys::read(doorbell, (&raw mut rings).cast(), 8);
}

#[cfg(all(test, not(loom)))]
mod tests;
