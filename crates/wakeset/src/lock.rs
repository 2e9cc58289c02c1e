//! The scan lock: one per set, held by a harvest, a change of the interest list, or a close of that set.
//!
//! It is never taken on the wake path (design rule 1) and never while another set's is held, except from an outer set to
//! one nested in it, which the loop check keeps free of circles.

use crate::sync::{Futex, Ordering};
use core::cell::UnsafeCell;
use core::num::NonZeroU32;
use core::ops::{Deref, DerefMut};

/// | word | means | who sets it |
/// |---|---|---|
/// | `FREE` | nobody holds it | the holder, on release |
/// | `HELD` | held, nobody sleeps | whoever takes it free |
/// | `CONTENDED` | held, somebody may sleep | whoever is about to sleep |
const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

const EVERY_CLASS: NonZeroU32 = NonZeroU32::MAX;

/// How often a contended lock is looked at before its taker sleeps: a few microseconds, about what a sleep and its wake
/// cost. A section takes a few hundred nanoseconds.
#[cfg(not(any(loom, shuttle)))]
const SPINS: u32 = 200;
#[cfg(any(loom, shuttle))]
const SPINS: u32 = 0;

/// A mutual-exclusion lock around `T` that sleeps on a futex when contended.
#[derive(Debug)]
pub struct ScanLock<T> {
    state: Futex,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one `&mut T` at a time, so sharing it is sending `T` back and forth.
unsafe impl<T: Send> Sync for ScanLock<T> {}
// SAFETY: it owns its `T`.
unsafe impl<T: Send> Send for ScanLock<T> {}

impl<T> ScanLock<T> {
    /// A free lock around `value`.
    pub fn new(value: T) -> Self {
        Self { state: Futex::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, sleeping if need be.
    #[inline]
    pub fn lock(&self) -> ScanGuard<'_, T> {
        let taken = self.state.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.lock_contended();
        }
        ScanGuard { lock: self }
    }

    /// The lock if nobody holds it.
    pub fn try_lock(&self) -> Option<ScanGuard<'_, T>> {
        let taken = self.state.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(ScanGuard { lock: self })
    }

    #[cold]
    #[cfg_attr(any(loom, shuttle), allow(clippy::reversed_empty_ranges, reason = "no spinning there"))]
    fn lock_contended(&self) {
        for _ in 0..SPINS {
            if self.state.load() == FREE
                && self.state.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        // From here on the word says CONTENDED whenever we hold it: others may be asleep.
        while self.state.word().swap(CONTENDED, Ordering::Acquire) != FREE {
            // A signal handler or a stray wake only makes us look again.
            let _ = self.state.sleep(CONTENDED, None, EVERY_CLASS);
        }
    }
}

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct ScanGuard<'a, T> {
    lock: &'a ScanLock<T>,
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
        if self.lock.state.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.lock.state.wake(1, EVERY_CLASS);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use alloc::sync::Arc;

    /// Catches two holders at once (loom's cell panics), an unlock that does not publish, and one that leaves a sleeper
    /// behind.
    #[test]
    fn one_holder_at_a_time() {
        crate::sync::explore(3, || {
            let lock = Arc::new(ScanLock::new(loom::cell::UnsafeCell::new(0)));
            let add = |lock: &ScanLock<loom::cell::UnsafeCell<u32>>| {
                // SAFETY: the pointer is valid; that nobody else uses it is what loom checks.
                lock.lock().with_mut(|n| unsafe { *n += 1 });
            };
            let others = [0, 1].map(|_| {
                let lock = Arc::clone(&lock);
                loom::thread::spawn(move || add(&lock))
            });
            add(&lock);
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: as above.
            assert_eq!(lock.lock().with(|n| unsafe { *n }), 3);
        });
    }
}
