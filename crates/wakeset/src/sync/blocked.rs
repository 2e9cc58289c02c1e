//! Threads that are blocked in a call on a source, such as a read or write, and how a change wakes
//! them.
//!
//! The handshake, on both sides a publication, a barrier and a check (see
//! [`fence`](crate::sync::fence)):
//!
//! | blocked thread | thread that changes the source |
//! |---|---|
//! | counts itself in | changes the state |
//! | reads `wake_seq`, then tries again | looks at the count |
//! | would still block: sleeps on `wake_seq` as it was | some are counted: changes `wake_seq`, wakes |

use crate::error::Error;
use crate::sync::adaptive_spin::AdaptiveSpin;
use crate::sync::spin::yield_now;
use crate::sync::{AtomicU32, Futex, Ordering, Slept, after_publishing};
use crate::testing::steps::step;
use core::cell::Cell;
use core::num::NonZeroU32;
use core::ptr;

/// The wake class of the threads that wait for something to take; of all, in a source that has one
/// class only. The doubles of the model checkers know these two classes and no other.
pub(crate) const READERS: NonZeroU32 = NonZeroU32::new(1).unwrap();
/// The wake class of the threads that wait for room.
pub(crate) const WRITERS: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// Every thread of a class: the largest number that futex(2) takes.
pub(crate) const ALL: u32 = u32::MAX >> 1;

/// The threads that are blocked in one source.
#[derive(Debug)]
pub(crate) struct Blocked {
    count: AtomicU32,
    /// What they sleep on; changes with each wake.
    wake_seq: Futex,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        Self { count: AtomicU32::new(0), wake_seq: Futex::new(0) }
    }

    /// Whether threads are blocked, for a caller that has just changed the state with a `SeqCst`
    /// read-modify-write; `weakened` as in [`after_publishing`].
    #[inline(always)]
    pub(crate) fn any(&self, weakened: bool) -> bool {
        after_publishing(weakened);
        self.count.load(Ordering::SeqCst) != 0
    }

    /// Wakes up to `n` threads of `class`, if any are blocked, for a caller that has just changed
    /// the state with a `SeqCst` read-modify-write; `weakened` as in [`after_publishing`]. Returns
    /// how many it woke.
    ///
    /// If each blocked thread takes a fixed part, wake as many as there are parts. If one may take
    /// everything, wake one, and let it wake the next when it has left something
    /// (`Counter::try_read`).
    #[inline(always)]
    pub(crate) fn changed(&self, weakened: bool, n: u32, class: NonZeroU32) -> usize {
        if self.any(weakened) { self.wake(n, class) } else { 0 }
    }

    /// Wakes up to `n` threads that sleep in `class`, [`READERS`] or [`WRITERS`], and returns how
    /// many it woke. For a change that concerns both; one that concerns a single class calls
    /// [`changed`](Self::changed).
    #[cold]
    pub(crate) fn wake(&self, n: u32, class: NonZeroU32) -> usize {
        probe!(kick, u64 ptr::from_ref(self).addr(), u32 n);
        step!(blocked_before_turn);
        self.wake_seq.word().fetch_add(1, Ordering::SeqCst);
        step!(blocked_turned);
        let mut woken = 0;
        self.adaptive_spin().waking(|| {
            woken = self.wake_seq.wake(n, class);
            // Or else it is a reader that looks for others.
            woken > 0
        });
        step!(blocked_woken);
        woken
    }

    /// Repeats `attempt` until it does not block, and sleeps in `class` in between, for a call that
    /// Linux restarts after a signal handler with `SA_RESTART`; `weakened` as in
    /// [`after_publishing`].
    ///
    /// # Errors
    /// Those of `attempt` but for [`Error::WouldBlock`]; [`Error::Interrupted`].
    #[inline]
    pub(crate) fn block<T>(
        &self,
        weakened: impl Fn() -> bool,
        class: NonZeroU32,
        attempt: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.block_with(weakened, attempt, |futex, seen| futex.sleep_restarting(seen, class))
    }

    /// [`block`](Self::block) with a `sleep` of the caller's own on the futex, while it has that
    /// value: one with a deadline, say.
    ///
    /// # Errors
    /// Those of `attempt` but for [`Error::WouldBlock`]; [`Error::Interrupted`].
    #[cold]
    pub(crate) fn block_with<T>(
        &self,
        weakened: impl Fn() -> bool,
        attempt: impl Fn() -> Result<T, Error>,
        sleep: impl Fn(&Futex, u32) -> Slept,
    ) -> Result<T, Error> {
        if let Some(done) = self.spin(&attempt) {
            return done;
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        step!(block_counted);
        let result = loop {
            // Before the attempt: a change after it changes the word, and the sleep does not begin.
            let seen = self.wake_seq.word().load(Ordering::SeqCst);
            // The publication is the count, which stays up for the whole loop; later turns need no
            // new one, only that `seen` is read before the attempt.
            after_publishing(weakened());
            step!(block_looked);
            let skipped = mutant!("block_without_look");
            match if skipped { Err(Error::WouldBlock) } else { attempt() } {
                // A change of O_NONBLOCK does not reach a call that has begun to wait.
                Err(Error::WouldBlock) => {}
                done => break done,
            }
            step!(block_before_sleep);
            probe!(sleep, u64 ptr::from_ref(self).addr());
            let slept = self.adaptive_spin().asleep(false, || sleep(&self.wake_seq, seen));
            probe!(run, u64 ptr::from_ref(self).addr());
            if slept == Slept::Interrupted {
                break Err(Error::Interrupted);
            }
        };
        step!(block_over);
        self.count.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Whether they spin before they sleep.
    fn adaptive_spin(&self) -> &'static AdaptiveSpin {
        AdaptiveSpin::of(core::ptr::from_ref(self).addr())
    }

    /// Repeats `attempt` for a while, if that has paid lately. It is not counted in meanwhile, so
    /// nobody wakes it; the caller counts itself in, and tries again, before it sleeps.
    fn spin<T>(&self, attempt: &impl Fn() -> Result<T, Error>) -> Option<Result<T, Error>> {
        // An event would wake one of those that sleep already.
        if self.count.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let done = Cell::new(None);
        let is_done = || match attempt() {
            Err(Error::WouldBlock) => false,
            result => {
                done.set(Some(result));
                true
            }
        };
        let yielded = || {
            yield_now();
            is_done()
        };
        let memory = self.adaptive_spin();
        if memory.yield_for(false, yielded, || 1) == 0 {
            let mut spin = memory.begin(u64::MAX)?;
            while !is_done() {
                if !spin.goes_on(u64::MAX) {
                    spin.failed();
                    return None;
                }
            }
            spin.succeeded();
        }
        done.into_inner()
    }
}
