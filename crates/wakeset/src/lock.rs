//! The scan lock: one per set, held by a harvest, a change of the interest list, or a close of that set.
//!
//! It is never taken on the wake path (design rule 1) and never while another set's is held, except from an outer set to
//! one nested in it, which the loop check keeps free of circles.
//!
//! It lends priority where somebody needs it. The word names the holder, as FUTEX_LOCK_PI wants it (futex(2)). A thread under a
//! real-time policy that finds the lock taken sleeps in that call, and until the release the holder runs with the sleeper's priority;
//! from then on every thread of the process does so, for a holder may itself sleep on another set's lock. But that call hands the lock
//! from thread to thread, each of which has to be woken first; so in a process without real-time threads sleepers
//! wait at a turnstile, and whoever runs takes the lock.

use crate::steps::{step, step_lock};
use crate::sync::{LockWord, Ordering, inheritance};
use crate::thread_id;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// The word of a lock that nobody holds or waits for.
const FREE: u64 = 0;

/// Which thread holds it, 0 for none.
const HOLDER: u64 = 0x3fff_ffff;

/// The kernel knows of threads that sleep, and hands the lock on; only it sets this.
const WAITERS: u64 = 0x8000_0000;

/// Somebody may sleep at the turnstile.
const ASLEEP: u64 = 1 << 32;

/// How often a contended lock is looked at before its taker sleeps: a few microseconds, about what a sleep and its wake
/// cost. A section takes a few hundred nanoseconds.
#[cfg(not(any(loom, shuttle)))]
const SPINS: u32 = 200;
#[cfg(any(loom, shuttle))]
const SPINS: u32 = 0;

/// Whether real-time threads lend their priority to whoever holds a lock they wait for; they do unless told otherwise. For measurements.
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

    /// Frees the lock, whoever holds it: for a forked child, where the holder may be a thread that does not exist.
    ///
    /// # Safety
    /// This is the only thread, and it goes on with nothing that it does under this lock.
    pub unsafe fn free_in_child(&self) {
        self.0.word().store(FREE, Ordering::Release);
    }

    /// Whether nobody holds it or waits for it.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.0.word().load(Ordering::SeqCst) == FREE
    }

    /// Takes the lock if nobody holds it; whether it did.
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
            .compare_exchange(FREE, u64::from(me), ordering!(Acquire, "lock_relaxed"), Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    #[cfg_attr(any(loom, shuttle), allow(clippy::reversed_empty_ranges, reason = "no spinning there"))]
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
        // Who has slept says on taking the lock that others may sleep still.
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
            .compare_exchange(from, to, ordering!(Acquire, "contended_lock_relaxed"), Ordering::Relaxed)
            .is_ok()
    }

    /// Gives the lock back. Only its holder may, or the holder's copy in a forked child.
    #[inline]
    pub fn unlock(&self) {
        self.give_back((self.0.word().load(Ordering::Relaxed) & HOLDER) as u32);
    }

    /// `me` is who took it.
    #[inline]
    fn give_back(&self, me: u32) {
        if self
            .0
            .word()
            .compare_exchange(u64::from(me), FREE, ordering!(Release, "unlock_relaxed"), Ordering::Relaxed)
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
                .compare_exchange(word, FREE, ordering!(Release, "contended_unlock_relaxed"), Ordering::Relaxed)
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

    /// The lock if nobody holds it.
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
mod tests {
    extern crate std;
    use super::*;

    /// A try in vain gave back the lock that another held.
    #[test]
    fn a_try_in_vain_leaves_the_lock_to_its_holder() {
        let lock = ScanLock::new(());
        let held = lock.lock();
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| assert!(lock.try_lock().is_none())).join().unwrap();
            }
        });
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    /// Whether or not this process may have real-time threads, some sleep as those do.
    #[test]
    fn sleepers_of_both_kinds_share_a_lock() {
        let lock = ScanLock::new(0);
        let add = |in_kernel: bool| {
            for _ in 0..20_000 {
                let me = thread_id::current();
                let mut guard = if in_kernel && (lock.raw.take(me) || lock.raw.0.lock_in_kernel(me)) {
                    ScanGuard { lock: &lock, me, on_this_thread: PhantomData }
                } else {
                    lock.lock()
                };
                *guard += 1;
                // Others have to come while it is held.
                if *guard % 16 == 0 {
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|threads| {
            for in_kernel in [false, true, false, true] {
                let add = &add;
                threads.spawn(move || add(in_kernel));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
        assert_eq!(lock.raw.0.word().load(Ordering::Relaxed), FREE);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use alloc::sync::Arc;

    /// Three threads add to what the lock guards; those of `real_time` inherit. Catches two holders at once (loom's cell
    /// panics), an unlock that does not publish, and one that leaves a sleeper behind.
    fn one_holder_at_a_time(real_time: [bool; 3]) {
        crate::explore(3, move || {
            let lock = Arc::new(ScanLock::new(loom::cell::UnsafeCell::new(0)));
            let add = |lock: &ScanLock<loom::cell::UnsafeCell<u32>>, real_time| {
                set_priority_inheritance(real_time);
                // SAFETY: the pointer is valid; that nobody else uses it is what loom checks.
                lock.lock().with_mut(|n| unsafe { *n += 1 });
            };
            let others = [real_time[1], real_time[2]].map(|real_time| {
                let lock = Arc::clone(&lock);
                loom::thread::spawn(move || add(&lock, real_time))
            });
            add(&lock, real_time[0]);
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: as above.
            assert_eq!(lock.lock().with(|n| unsafe { *n }), 3);
        });
    }

    #[test]
    fn one_holder_at_a_time_at_the_turnstile() {
        one_holder_at_a_time([false; 3]);
    }

    #[test]
    fn one_holder_at_a_time_in_the_kernel() {
        one_holder_at_a_time([true; 3]);
    }

    #[test]
    fn one_holder_at_a_time_of_both_kinds() {
        one_holder_at_a_time([false, true, false]);
        one_holder_at_a_time([true, true, false]);
    }
}
