//! A lock that signal handlers of its holder cannot ask for.

use super::signal_guard::SignalGuard;
use wakeset::RawLock;

/// A lock whose holder holds a [`SignalGuard`], so that a signal handler on the same thread cannot
/// ask for the lock.
///
/// It can be held across a fork and released by the child. A thread that finds it taken sleeps, and
/// lends its priority to the holder as at the scan lock of a set.
#[derive(Debug)]
pub struct SignalSafeLock(RawLock);

impl SignalSafeLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(RawLock::new())
    }

    /// Takes the lock, and begins a critical section that [`unlock`](Self::unlock) ends.
    pub fn lock(&self) {
        core::mem::forget(SignalGuard::enter());
        self.0.lock();
    }

    /// The same for a section of a few instructions, which calls nothing.
    pub fn lock_briefly(&self) {
        core::mem::forget(SignalGuard::enter_briefly());
        self.0.lock();
    }

    /// Takes the lock if it is free, and returns whether it was.
    pub fn try_lock(&self) -> bool {
        let guard = SignalGuard::enter();
        let taken = self.0.try_lock();
        if taken {
            core::mem::forget(guard);
        }
        taken
    }

    /// Releases the lock, in the thread that took it or in that thread's copy in a forked child.
    pub fn unlock(&self) {
        self.0.unlock();
        SignalGuard::leave();
    }

    /// Frees the lock in a forked child, as [`RawLock::free_in_child`] does. It ends no critical
    /// section.
    ///
    /// # Safety
    /// As [`RawLock::free_in_child`].
    pub(crate) unsafe fn free_in_child(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.free_in_child() };
    }
}

impl Default for SignalSafeLock {
    fn default() -> Self {
        Self::new()
    }
}
