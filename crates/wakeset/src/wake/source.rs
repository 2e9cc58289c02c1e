//! What can be watched.

use crate::events::Events;
use crate::wake::timed::Timed;
use crate::wake::wait_queue::WaitQueue;
use crate::wake::wake_side::SetRef;

/// Something that becomes ready: what a file with a poll operation is to Linux's epoll.
///
/// # Contract
/// - After every change that may have made a bit of [`poll`](Self::poll) true, call
///   [`WaitQueue::wake`] with those bits. That call is the edge that edge-triggered watches see.
/// - `poll` says what holds *now*. It is called with the scan lock of the watching set held: it
///   must not block for long and must not touch a set.
/// - [`wait_queue`](Self::wait_queue) always returns the same queue, which belongs to this source
///   alone.
pub trait Source: Send + Sync {
    /// The readiness bits that hold now.
    fn poll(&self) -> Events;

    /// The queue this source wakes.
    fn wait_queue(&self) -> &WaitQueue;

    /// The set this source is, if it is one; the loop check follows it.
    #[doc(hidden)]
    fn as_set(&self) -> Option<SetRef<'_>> {
        None
    }

    /// What a set has to ask this source if time makes it ready, without a wake.
    #[doc(hidden)]
    fn as_timed(&self) -> Option<&dyn Timed> {
        None
    }
}
