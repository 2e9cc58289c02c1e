//! Births and takings: which of two threads goes first, the one that makes a descriptor or the one
//! that makes the program's dup2(2).
//!
//! | the thread that makes a descriptor | the thread that puts the program's file under a number |
//! |---|---|
//! | counts its birth | counts its taking |
//! | waits until no taking is counted | finds a birth: takes its count back, waits until there is none, and begins again |
//! | makes the descriptor and hides its number | looks whether the number is hidden, and if not makes the call |
//! | ends its birth | ends its taking |
//!
//! Each is counted before it looks for the other, so one of the two sees the other: both steps are
//! read-modify-writes. Births do not exclude each other, nor do takings.
//!
//! Both waits have an end, so that no thread hangs for another that does not come back: the kernel
//! may take long within a dup2(2), to close the file that was under the number, but has put the new
//! file there by then; and a handler of SIGSYS may call dup2(2) within a birth of its own thread.

use crate::sys::sync::{AtomicU32, Ordering, const_fn, mutant};
use crate::sys::{futex_wait_for, futex_wake};
use core::time::Duration;

/// How often a thread that waits sleeps in vain.
const ROUNDS: u32 = 100;
/// For how long it sleeps at most, if it is not woken: a birth waits some 10 ms in all, and a
/// taking a second.
const BEFORE_BIRTH: Duration = Duration::from_micros(100);
const BEFORE_TAKING: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Exclusion {
    births: AtomicU32,
    takings: AtomicU32,
    /// How many threads wait until there is no birth.
    waiting: AtomicU32,
}

/// What others have counted before this step; those who count later find what this thread has.
fn look(count: &AtomicU32) -> u32 {
    count.fetch_add(0, Ordering::SeqCst)
}

impl Exclusion {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                births: AtomicU32::new(0),
                takings: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
            }
        }
    }

    /// A hint for a thread that does not count itself.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn has_births(&self) -> bool {
        self.births.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn begin_birth(&self) {
        self.births.fetch_add(1, Ordering::SeqCst);
        let mut rounds = 0;
        while rounds < ROUNDS {
            let takings = look(&self.takings);
            if takings == 0 || mutant!("born_beside_a_dup2") {
                return;
            }
            rounds += u32::from(futex_wait_for(&self.takings, takings, BEFORE_BIRTH));
        }
    }

    pub(crate) fn end_birth(&self) {
        let is_last = self.births.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && look(&self.waiting) != 0 && !mutant!("birth_ended_in_silence") {
            futex_wake(&self.births, u32::MAX >> 1);
        }
    }

    pub(crate) fn begin_taking(&self, is_copy: &impl Fn() -> bool) {
        for _ in 0..ROUNDS {
            self.takings.fetch_add(1, Ordering::SeqCst);
            if look(&self.births) == 0 || mutant!("dup2_beside_a_birth") {
                return;
            }
            self.end_taking();
            if !self.wait(is_copy) {
                break;
            }
        }
        self.takings.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_taking(&self) {
        let is_last = self.takings.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && look(&self.births) != 0 && !mutant!("dup2_ended_in_silence") {
            futex_wake(&self.takings, u32::MAX >> 1);
        }
    }

    /// Waits until there is no birth; whether there was a moment without. Where `is_copy` says that
    /// this is a forked child that has not said so yet, they are not this process's.
    #[cold]
    pub(crate) fn wait(&self, is_copy: &impl Fn() -> bool) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut is_over, mut rounds) = (false, 0);
        while rounds < ROUNDS {
            let births = self.births.load(Ordering::SeqCst);
            is_over = births == 0;
            if is_over || is_copy() {
                break;
            }
            rounds += u32::from(futex_wait_for(&self.births, births, BEFORE_TAKING));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        is_over
    }

    /// In a forked child, where no other thread is.
    #[cfg(not(loom))]
    pub(crate) fn begin_anew(&self) {
        for word in [&self.births, &self.takings, &self.waiting] {
            // A page that is not written to is not copied.
            if word.load(Ordering::SeqCst) != 0 {
                word.store(0, Ordering::SeqCst);
            }
        }
    }
}
