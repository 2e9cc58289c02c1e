//! The scan lock: one per set, held by a harvest, a change of the interest list, or a close of that
//! set.
//!
//! It is never taken on the wake path (design rule 1) and never while another set's is held, except
//! from an outer set to one nested in it, which the loop check keeps free of circles.
//!
//! It lends priority where a real-time thread needs it. The word names the holder, as FUTEX_LOCK_PI
//! wants it (futex(2)). A thread under a real-time policy that finds the lock taken sleeps in that
//! call, and until the release the holder runs with the sleeper's priority; from then on every
//! thread of the process does so, for a holder may itself sleep on another set's lock. But that
//! call hands the lock from thread to thread, each of which has to be woken first; so in a process
//! without real-time threads sleepers wait at a turnstile, and the first thread that runs takes the
//! lock.

use crate::sync::lock_word::LockWord;
use crate::sync::thread_id;
use crate::sync::{Ordering, inheritance};
use crate::testing::steps::{step, step_lock};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// The word of a lock that no thread holds or waits for.
const FREE: u64 = 0;

/// Which thread holds it, 0 for none.
const HOLDER: u64 = 0x3fff_ffff;

/// The kernel knows of threads that sleep, and hands the lock on; only it sets this.
const WAITERS: u64 = 0x8000_0000;

/// A thread may sleep at the turnstile.
const ASLEEP: u64 = 1 << 32;

/// How often a contended lock is checked before its taker sleeps: a few microseconds, about what
/// a sleep and its wake cost. The lock is held for a few hundred nanoseconds.
#[cfg(not(any(loom, shuttle)))]
const SPINS: u32 = 200;
#[cfg(any(loom, shuttle))]
const SPINS: u32 = 0;

/// Whether real-time threads lend their priority to the holder of a lock they wait for; they do
/// unless told otherwise. For measurements.
#[doc(hidden)]
pub fn set_priority_inheritance(enabled: bool) {
    inheritance::enable(enabled);
}

/// The lock without what it guards.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawLock(LockWord);

impl RawLock {
    /// A free lock.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self(LockWord::new(FREE))
    }

    /// A free lock.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self(LockWord::new(FREE))
    }

    /// Takes the lock, sleeping if need be.
    #[inline]
    pub fn lock(&self) {
        let me = thread_id::current();
        self.lock_as(me);
    }

    #[inline]
    fn lock_as(&self, me: u32) {
        if self.take(me) {
            step_lock!(Locked, self);
        } else {
            self.lock_contended(me);
            step_lock!(Locked, self);
            step!(lock_after_contention);
        }
    }

    /// Frees the lock, whoever holds it: for a forked child, where the holder may be a thread that
    /// does not exist.
    ///
    /// # Safety
    /// This is the only thread, and it goes on with nothing that it does under this lock.
    pub unsafe fn free_in_child(&self) {
        self.0.word().store(FREE, Ordering::Release);
    }

    /// Whether no thread holds it or waits for it.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.0.word().load(Ordering::SeqCst) == FREE
    }

    /// Takes the lock if no thread holds it, and returns whether it did.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.try_lock_as(thread_id::current())
    }

    #[inline]
    fn try_lock_as(&self, me: u32) -> bool {
        let taken = self.take(me);
        if taken {
            step_lock!(Locked, self);
        } else if mutant!("try_gives_back") {
            self.give_back(me);
        }
        taken
    }

    /// May be `false` for a free lock that its last holder is still giving to a sleeper.
    #[inline]
    fn take(&self, me: u32) -> bool {
        self.0
            .word()
            .compare_exchange(
                FREE,
                u64::from(me),
                ordering!(Acquire, "lock_relaxed"),
                Ordering::Relaxed,
            )
            .is_ok()
    }

    #[cold]
    #[cfg_attr(
        any(loom, shuttle),
        allow(clippy::reversed_empty_ranges, reason = "no spinning there")
    )]
    fn lock_contended(&self, me: u32) {
        for _ in 0..SPINS {
            let word = self.0.word().load(Ordering::Relaxed);
            if word & HOLDER == 0 && self.change(word, word | u64::from(me)) {
                return;
            }
            core::hint::spin_loop();
        }
        step_lock!(Waiting, self);
        if inheritance::wanted() {
            step!(lock_before_kernel);
            if self.0.lock_in_kernel(me) {
                return;
            }
        }
        // A thread that has slept says on taking the lock that other threads may sleep still.
        let mut slept = 0;
        loop {
            let word = self.0.word().load(Ordering::Relaxed);
            if word & HOLDER == 0 {
                step!(lock_before_take);
                let asleep = if mutant!("sleeper_forgets_sleepers") { 0 } else { slept };
                if self.change(word, word | asleep | u64::from(me)) {
                    return;
                }
            } else if word & ASLEEP != 0 || self.change(word, word | ASLEEP) {
                // A signal handler or a stray wake only makes us look again.
                step!(lock_before_sleep);
                self.0.sleep_at_turnstile();
                step!(lock_slept);
                slept = ASLEEP;
            }
        }
    }

    #[inline]
    fn change(&self, from: u64, to: u64) -> bool {
        self.0
            .word()
            .compare_exchange(
                from,
                to,
                ordering!(Acquire, "contended_lock_relaxed"),
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Gives the lock back. Only its holder may, or the holder's copy in a forked child.
    #[inline]
    pub fn unlock(&self) {
        self.give_back((self.0.word().load(Ordering::Relaxed) & HOLDER) as u32);
    }

    /// `me` is the thread that took it.
    #[inline]
    fn give_back(&self, me: u32) {
        if self
            .0
            .word()
            .compare_exchange(
                u64::from(me),
                FREE,
                ordering!(Release, "unlock_relaxed"),
                Ordering::Relaxed,
            )
            .is_err()
        {
            self.give_to_sleeper();
        }
        step_lock!(Unlocked, self);
    }

    #[cold]
    fn give_to_sleeper(&self) {
        let word = self.0.word().load(Ordering::Relaxed);
        step!(release_before);
        if word & WAITERS == 0
            && self
                .0
                .word()
                .compare_exchange(
                    word,
                    FREE,
                    ordering!(Release, "contended_unlock_relaxed"),
                    Ordering::Relaxed,
                )
                .is_ok()
        {
            step!(released);
            if !mutant!("unlock_without_wake") {
                self.0.wake_at_turnstile();
            }
            step!(turnstile_woken);
            return;
        }
        // The kernel's sleepers go first.
        step!(release_before_kernel);
        self.0.unlock_in_kernel();
        step!(kernel_released);
        // If there were none any more it is free, and the turnstile is ours to open.
        let word = self.0.word().load(Ordering::Relaxed);
        if word == ASLEEP && !mutant!("turnstile_left_shut") && self.change(word, FREE) {
            self.0.wake_at_turnstile();
        }
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

/// A mutual-exclusion lock around `T` that sleeps on a futex when contended.
#[derive(Debug)]
pub struct ScanLock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one `&mut T` at a time, so sharing it is sending `T` back and forth.
unsafe impl<T: Send> Sync for ScanLock<T> {}
// SAFETY: it owns its `T`.
unsafe impl<T: Send> Send for ScanLock<T> {}

impl<T> ScanLock<T> {
    /// A free lock around `value`.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// A free lock around `value`.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// As [`RawLock::free_in_child`].
    ///
    /// # Safety
    /// This is the only thread, and it holds no guard of this lock that it still drops or uses.
    pub unsafe fn free_in_child(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.raw.free_in_child() };
    }

    /// Takes the lock, sleeping if need be.
    #[inline]
    pub fn lock(&self) -> ScanGuard<'_, T> {
        let me = thread_id::current();
        self.raw.lock_as(me);
        ScanGuard { lock: self, me, on_this_thread: PhantomData }
    }

    /// The lock if no thread holds it.
    pub fn try_lock(&self) -> Option<ScanGuard<'_, T>> {
        let me = thread_id::current();
        // Made only if the lock is ours: dropping one gives the lock back.
        self.raw.try_lock_as(me).then(|| ScanGuard { lock: self, me, on_this_thread: PhantomData })
    }
}

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct ScanGuard<'a, T> {
    lock: &'a ScanLock<T>,
    me: u32,
    /// The lock's word names the thread that took it, and the kernel lets no other give it back.
    on_this_thread: PhantomData<*const ()>,
}

impl<T> Deref for ScanGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard exists, so this thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for ScanGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard exists, so this thread holds the lock, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ScanGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.give_back(self.me);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, loom))]
mod models;
