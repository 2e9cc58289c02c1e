//! A thread's entry in the queue, and its sleep there.

use crate::sync::{AtomicU32, Futex, Ordering, Slept};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;
use libc::timespec;
use syscalls::{Sysno, syscall};

pub(super) const OUT: u32 = 0;
pub(super) const QUEUED: u32 = 1;
pub(super) const HEIR: u32 = 2;

/// A thread's entry in the queue of a [`Leadership`](super::Leadership). It stays where it is while
/// it is queued.
#[derive(Debug)]
pub struct Waiter {
    state: Futex,
    pub(super) links: UnsafeCell<Links>,
    /// A non-blocking eventfd that is written to instead of a futex wake, for a thread that sleeps
    /// in the kernel on other descriptors as well; -1 for none.
    doorbell: c_int,
    /// It sleeps without a limit, so it cannot rescue a leadership that stays held.
    no_limit: bool,
}

#[derive(Debug)]
pub(super) struct Links {
    pub older: *const Waiter,
    pub newer: *const Waiter,
}

// SAFETY: the links are only touched under the lock of the leadership that the waiter is queued
// for.
unsafe impl Sync for Waiter {}
// SAFETY: as above.
unsafe impl Send for Waiter {}

/// How a sleep in the queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// This thread is the heir, and may become the leader by [`Leadership::come`].
    ///
    /// [`Leadership::come`]: super::Leadership::come
    Heir,
    /// The queue was disbanded, or a signal handler has taken the thread out of it.
    Out,
    /// The time is up. The thread is still queued, or has become the heir since.
    TimedOut,
    /// A signal handler has run, and the call is not to be resumed. The thread is still queued, or
    /// has become the heir since.
    Interrupted,
}

impl Waiter {
    /// An entry for a thread that sleeps in [`sleep`](Self::sleep) with a limit, or in the kernel
    /// on `doorbell`, a non-blocking eventfd.
    #[must_use]
    pub fn new(doorbell: Option<c_int>) -> Self {
        let links = UnsafeCell::new(Links { older: ptr::null(), newer: ptr::null() });
        Self { state: Futex::new(OUT), links, doorbell: doorbell.unwrap_or(-1), no_limit: false }
    }

    /// An entry for a thread that sleeps in [`sleep`](Self::sleep) without a limit.
    #[must_use]
    pub fn without_limit() -> Self {
        Self { no_limit: true, ..Self::new(None) }
    }

    pub(super) fn has_no_limit(&self) -> bool {
        self.no_limit
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        self.state.word()
    }

    /// Whether this thread has been made the heir.
    pub fn is_heir(&self) -> bool {
        self.word().load(Ordering::Acquire) == HEIR
    }

    /// Whether this thread is still in the queue.
    pub fn is_queued(&self) -> bool {
        self.word().load(Ordering::Acquire) == QUEUED
    }

    /// Sleeps until the thread is out of the queue, at most for `limit`, which is a time span.
    pub fn sleep(&self, limit: Option<&timespec>) -> Woken {
        loop {
            match self.word().load(Ordering::Acquire) {
                HEIR => return Woken::Heir,
                OUT => return Woken::Out,
                _ => {}
            }
            match self.state.sleep(QUEUED, limit) {
                // A spurious wake must not begin the limit anew: the caller knows how much is left.
                Slept::Woken if limit.is_some() && self.is_queued() => return Woken::TimedOut,
                Slept::Woken => {}
                Slept::TimedOut => return Woken::TimedOut,
                Slept::Interrupted => return Woken::Interrupted,
            }
        }
    }

    /// Takes note, under the lock, that the waiter is out of the queue, with its new state. From
    /// then on the waiter may be freed at any time.
    pub(super) fn tell(&self, state: u32) -> Next {
        let doorbell = self.doorbell;
        let next = Next(if doorbell < 0 { &raw const self.state } else { ptr::null() });
        self.word().store(state, Ordering::Release);
        if doorbell >= 0 {
            let one = 1_u64;
            // Written under the lock, so that a thread that takes the lock later knows that it has
            // been written: the number may stand for something else from then on. SAFETY: eight
            // bytes of ours. A full counter (EAGAIN) wakes as well.
            let _ = unsafe { syscall!(Sysno::write, doorbell, &raw const one, 8) };
        }
        next
    }
}

/// The waiter that is to be woken once the lock is free. Null: its doorbell has been rung.
#[must_use]
pub(super) struct Next(*const Futex);

/// Wakes the next waiter, if there is one.
pub(super) fn wake(next: Option<Next>) {
    if let Some(Next(futex)) = next
        && !futex.is_null()
    {
        Futex::wake_at(futex);
    }
}
