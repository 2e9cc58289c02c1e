//! A lock's word for the model checkers, in place of `sync/lock_word.rs`.

use super::atomics::{AtomicU64, Ordering};
use alloc::collections::VecDeque;
#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};

/// A lock's word, with the kernel's part of FUTEX_LOCK_PI played under a lock. All threads are
/// of one priority here.
#[derive(Debug)]
pub(crate) struct LockWord {
    word: AtomicU64,
    kernel: Mutex<Kernel>,
    handed_on: Condvar,
    turned: Condvar,
}

#[derive(Debug, Default)]
struct Kernel {
    waiting: VecDeque<u32>,
    /// Threads that sleep at the turnstile and have not been chosen by a wake yet.
    asleep: u32,
}

const HOLDER: u64 = 0x3fff_ffff;
const WAITERS: u64 = 0x8000_0000;
const LOW: u64 = 0xffff_ffff;

impl LockWord {
    pub(crate) fn new(value: u64) -> Self {
        let kernel = Mutex::new(Kernel::default());
        Self {
            word: AtomicU64::new(value),
            kernel,
            handed_on: Condvar::new(),
            turned: Condvar::new(),
        }
    }

    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.word
    }

    fn change_low(&self, change: impl Fn(u64) -> u64) -> u64 {
        let set = |word: u64| Some(word & !LOW | change(word & LOW));
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, set).unwrap() & LOW
    }

    pub(crate) fn lock_in_kernel(&self, me: u32) -> bool {
        let me = u64::from(me);
        let mut kernel = self.kernel.lock().unwrap();
        if self.change_low(|low| if low == 0 { me } else { low | WAITERS }) == 0 {
            return true;
        }
        kernel.waiting.push_back(me as u32);
        while self.word.load(Ordering::SeqCst) & HOLDER != me {
            kernel = self.handed_on.wait(kernel).unwrap();
        }
        true
    }

    pub(crate) fn unlock_in_kernel(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        // Whoever is handed the lock gets it marked, even if nobody waits behind it.
        let next = kernel.waiting.pop_front().map_or(0, |next| u64::from(next) | WAITERS);
        self.change_low(|_| next);
        self.handed_on.notify_all();
    }

    pub(crate) fn sleep_at_turnstile(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        if self.word.load(Ordering::SeqCst) >> 32 == 1 {
            kernel.asleep += 1;
            drop(self.turned.wait(kernel).unwrap());
        }
    }

    pub(crate) fn wake_at_turnstile(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        if kernel.asleep > 0 {
            kernel.asleep -= 1;
            self.turned.notify_one();
        }
    }
}
