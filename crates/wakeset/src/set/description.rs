//! An open source: the handle that keeps it open, and closes it.

use crate::error::Error;
use crate::memory::counted::Counted;
use crate::set::engine::Engine;
use crate::sync::{AtomicUsize, Ordering, fence};
use crate::wake::source::Source;
use core::fmt;
use core::ops::Deref;

struct Inner<S: Source> {
    /// Open handles. The last one to go closes the source.
    open: AtomicUsize,
    /// The engine whose sets may watch the source; keeps its memory in place for late wakers.
    engine: Engine,
    source: S,
}

/// An open source: Linux's *open file description*.
///
/// Clones share it, as dup(2)ed descriptors do. When the last clone is dropped the source is
/// closed: every set that watches it forgets it, at once and without a lock wider than one set, and
/// then it is dropped.
pub struct Description<S: Source> {
    inner: Counted<Inner<S>>,
}

impl<S: Source> Description<S> {
    /// Opens `source` for the sets of `engine`.
    pub fn new(engine: &Engine, source: S) -> Self {
        Self {
            inner: Counted::new(Inner {
                open: AtomicUsize::new(1),
                engine: engine.clone(),
                source,
            }),
        }
    }

    /// The fallible form of [`new`](Self::new), which ends the process when there is no memory, as
    /// `Box::new` does.
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
