//! What can be watched, and the handle that keeps it open.

use crate::counted::Counted;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::Events;
use crate::set::SetCore;
use crate::sync::{AtomicUsize, Ordering, fence};
use crate::timer::Timer;
use crate::wait_queue::WaitQueue;
use core::fmt;
use core::ops::Deref;

/// Something that becomes ready: what a file with a poll operation is to Linux's epoll.
///
/// # Contract
/// - After every change that may have made a bit of [`poll`](Self::poll) true, call [`WaitQueue::wake`] with those
///   bits. That call is the edge that edge-triggered watches see.
/// - `poll` says what holds *now*. It is called with the scan lock of the watching set held: it must not
///   block for long and must not touch a set.
/// - [`wait_queue`](Self::wait_queue) always returns the same queue, which belongs to this source alone.
pub trait Source: Send + Sync {
    /// The readiness bits that hold now.
    fn poll(&self) -> Events;

    /// The queue this source wakes.
    fn wait_queue(&self) -> &WaitQueue;

    /// The set this source is, if it is one; the loop check follows it.
    #[doc(hidden)]
    fn as_set(&self) -> Option<&SetCore> {
        None
    }

    /// The timer this source is, if it is one: time makes it ready, without a wake.
    #[doc(hidden)]
    fn as_timer(&self) -> Option<&Timer> {
        None
    }
}

struct Inner<S: Source> {
    /// Open handles. The last one to go closes the source.
    open: AtomicUsize,
    /// The engine whose sets may watch the source; keeps its memory in place for late wakers.
    engine: Engine,
    source: S,
}

/// An open source: Linux's *open file description*.
///
/// Clones share it, as dup(2)ed descriptors do. When the last clone is dropped the source is closed: every
/// set that watches it forgets it, at once and without a lock wider than one set, and then it is dropped.
pub struct Description<S: Source> {
    inner: Counted<Inner<S>>,
}

impl<S: Source> Description<S> {
    /// Opens `source` for the sets of `engine`.
    pub fn new(engine: &Engine, source: S) -> Self {
        Self { inner: Counted::new(Inner { open: AtomicUsize::new(1), engine: engine.clone(), source }) }
    }

    /// [`new`](Self::new) for who can go on without memory; that one ends the process, as `Box::new` does.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; `source` is dropped.
    pub fn try_new(engine: &Engine, source: S) -> Result<Self, Error> {
        let inner = Inner { open: AtomicUsize::new(1), engine: engine.clone(), source };
        Ok(Self { inner: Counted::try_new(inner)? })
    }

    /// The engine whose sets may watch it.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }
}

impl<S: Source> Clone for Description<S> {
    fn clone(&self) -> Self {
        // Relaxed: whoever clones already holds an open handle.
        self.inner.open.fetch_add(1, Ordering::Relaxed);
        Self { inner: Counted::clone(&self.inner) }
    }
}

impl<S: Source> Drop for Description<S> {
    fn drop(&mut self) {
        if self.inner.open.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.inner.source.wait_queue().close();
        }
    }
}

impl<S: Source> Deref for Description<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.inner.source
    }
}

impl<S: Source + fmt::Debug> fmt::Debug for Description<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Description").field(&self.inner.source).finish()
    }
}
