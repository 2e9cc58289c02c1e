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
//!
//! A birth that has waited in vain writes off the takings that are counted: it begins a new
//! *generation*, in which none is. Each belongs to the generation in which it was counted, and
//! ends without a change of the count if that is over. So later births do not wait for the same
//! dup2(2), only for those that begin later:
//!
//! | the birth that writes off | a taking that is counted just then |
//! |---|---|
//! | begins a new generation | looks for a birth |
//! | ends | finds none: looks for the generation, and begins again if it is a new one |
//!
//! So what is written off had found no birth before this one began, and has had the time of its
//! wait to put the file there; or it has itself waited for births in vain.

use crate::sys::sync::{AtomicU32, AtomicU64, Ordering, const_fn, mutant};
use crate::sys::{futex_wait_for, futex_wake};
use core::time::Duration;

/// How often a thread that waits sleeps in vain. In a model the time passes at once.
const BIRTHS_ROUNDS: u32 = if cfg!(loom) { 1 } else { 100 };
const TAKINGS_ROUNDS: u32 = 100;
/// For how long it sleeps at most, if it is not woken: a birth waits some 10 ms in all, and a
/// taking a second. A signal ends a sleep, which is then not in vain.
const BEFORE_BIRTH: Duration = Duration::from_micros(100);
const BEFORE_TAKING: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Exclusion {
    births: AtomicU32,
    /// How many are counted, below the number of the generation.
    takings: AtomicU64,
    /// Changes when the last one has ended that a birth may wait for.
    ended: AtomicU32,
    /// How many threads wait until there is no birth.
    waiting: AtomicU32,
}

/// In which one a taking was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

fn generation_of(takings: u64) -> Generation {
    Generation((takings >> 32) as u32)
}

fn count_of(takings: u64) -> u32 {
    takings as u32
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
                takings: AtomicU64::new(0),
                ended: AtomicU32::new(0),
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
        while rounds < BIRTHS_ROUNDS {
            let ended = self.ended.load(Ordering::SeqCst);
            let takings = self.takings.fetch_add(0, Ordering::SeqCst);
            if count_of(takings) == 0 || mutant!("born_beside_a_dup2") {
                return;
            }
            rounds += u32::from(futex_wait_for(&self.ended, ended, BEFORE_BIRTH));
        }
        if !mutant!("slow_dup2_is_waited_for_again") {
            self.write_off();
        }
    }

    /// Waits for none of the takings that are counted any more.
    #[cold]
    fn write_off(&self) {
        let next = |takings: u64| (count_of(takings) != 0).then(|| ((takings >> 32) + 1) << 32);
        let _ = self.takings.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    pub(crate) fn end_birth(&self) {
        let is_last = self.births.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && look(&self.waiting) != 0 && !mutant!("birth_ended_in_silence") {
            futex_wake(&self.births, u32::MAX >> 1);
        }
    }

    pub(crate) fn begin_taking(&self, is_copy: &impl Fn() -> bool) -> Generation {
        for _ in 0..TAKINGS_ROUNDS {
            let generation = self.count_taking();
            if look(&self.births) == 0 && self.is_counted(generation)
                || mutant!("dup2_beside_a_birth")
            {
                return generation;
            }
            self.end_taking(generation);
            if !self.wait(is_copy) {
                break;
            }
        }
        self.count_taking()
    }

    fn count_taking(&self) -> Generation {
        generation_of(self.takings.fetch_add(1, Ordering::SeqCst))
    }

    /// Whether a taking has not been written off, by a birth that was over when it looked.
    fn is_counted(&self, generation: Generation) -> bool {
        generation_of(self.takings.load(Ordering::SeqCst)) == generation
            || mutant!("dup2_goes_on_written_off")
    }

    pub(crate) fn end_taking(&self, generation: Generation) {
        let less = |takings: u64| {
            let is_counted = generation_of(takings) == generation || mutant!("written_off_twice");
            is_counted.then(|| takings.wrapping_sub(1))
        };
        let before = self.takings.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        let is_last = before.is_ok_and(|before| count_of(before) == 1);
        if is_last && look(&self.births) != 0 && !mutant!("dup2_ended_in_silence") {
            self.ended.fetch_add(1, Ordering::SeqCst);
            futex_wake(&self.ended, u32::MAX >> 1);
        }
    }

    /// Waits until there is no birth; whether there was a moment without. Where `is_copy` says that
    /// this is a forked child that has not said so yet, they are not this process's.
    #[cold]
    pub(crate) fn wait(&self, is_copy: &impl Fn() -> bool) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut is_over, mut rounds) = (false, 0);
        while rounds < TAKINGS_ROUNDS {
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

    /// In a forked child, where no other thread is. A call of its own thread's ends uncounted.
    #[cfg(not(loom))]
    pub(crate) fn begin_anew(&self) {
        self.write_off();
        for word in [&self.births, &self.waiting] {
            // A page that is not written to is not copied.
            if word.load(Ordering::SeqCst) != 0 {
                word.store(0, Ordering::SeqCst);
            }
        }
    }
}
