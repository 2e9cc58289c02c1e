//! Locks; there are no signals.

use wakeset::RawLock;

pub(crate) struct SignalGuard;

impl SignalGuard {
    pub(crate) fn enter() -> Self {
        Self
    }

    pub(crate) fn enter_unless_fast() -> Option<Self> {
        Some(Self)
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {}
}

#[derive(Debug)]
pub(crate) struct SignalSafeLock(RawLock);

impl SignalSafeLock {
    pub(crate) fn new() -> Self {
        Self(RawLock::new())
    }

    pub(crate) fn lock(&self) {
        self.0.lock();
    }

    pub(crate) fn unlock(&self) {
        self.0.unlock();
    }

    /// # Safety
    /// As [`RawLock::free_in_child`].
    pub(crate) unsafe fn free_in_child(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.free_in_child() };
    }
}
