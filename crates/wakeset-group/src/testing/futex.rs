//! futex(2) for the model checker: compare and sleep under a lock. Limits are never reached, and
//! signals never come.

use crate::sync::{AtomicU32, Ordering, Slept};
use loom::sync::{Condvar, Mutex};

/// The double of the futex in `sync`.
#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), lock: Mutex::new(()), woken: Condvar::new() }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    pub(crate) fn sleep(&self, expected: u32, _limit: Option<&libc::timespec>) -> Slept {
        let lock = self.lock.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(lock).unwrap());
        }
        Slept::Woken
    }

    /// In the models the futex must still be there.
    pub(crate) fn wake_at(this: *const Self) {
        // SAFETY: the models never free what this leads to.
        let this = unsafe { &*this };
        let _lock = this.lock.lock().unwrap();
        this.woken.notify_all();
    }
}
