//! Threads that are blocked in a read or write of a source, and how a change wakes them.
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
use crate::sync::{AtomicU32, Futex, Ordering, Slept, after_publishing};
use crate::testing::steps::step;
use core::num::NonZeroU32;

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

    /// Wakes up to `n` of those that sleep in this class; how many it woke.
    #[cold]
    pub(crate) fn wake(&self, n: u32, class: NonZeroU32) -> usize {
        step!(blocked_before_turn);
        self.wake_seq.word().fetch_add(1, Ordering::SeqCst);
        step!(blocked_turned);
        let woken = self.wake_seq.wake(n, class);
        step!(blocked_woken);
        woken
    }

    /// Repeats `attempt` until it does not block, with a `sleep` on the futex while it has that
    /// value in between.
    ///
    /// # Errors
    /// Those of `attempt` but for [`Error::WouldBlock`]; [`Error::Interrupted`].
    #[cold]
    pub(crate) fn block<T>(
        &self,
        weakened: impl Fn() -> bool,
        attempt: impl Fn() -> Result<T, Error>,
        sleep: impl Fn(&Futex, u32) -> Slept,
    ) -> Result<T, Error> {
        self.count.fetch_add(1, Ordering::SeqCst);
        step!(block_counted);
        let result = loop {
            // Before the attempt: a change after it changes the word, and the sleep does not begin.
            let seen = self.wake_seq.word().load(Ordering::SeqCst);
            // The publication is the count, which stays up for the whole loop; later turns need no
            // new one, only that `seen` is read before the attempt.
            after_publishing(weakened());
            step!(block_looked);
            match attempt() {
                // A change of O_NONBLOCK does not reach a call that has begun to wait.
                Err(Error::WouldBlock) => {}
                done => break done,
            }
            step!(block_before_sleep);
            if sleep(&self.wake_seq, seen) == Slept::Interrupted {
                break Err(Error::Interrupted);
            }
        };
        step!(block_over);
        self.count.fetch_sub(1, Ordering::SeqCst);
        result
    }
}
