//! The constructor of [`Leadership`], which cannot be `const` with loom's types.

use crate::leader::Leadership;
use wakeset::RawLock;

impl Leadership {
    /// Free leadership, and an empty queue.
    pub fn new() -> Self {
        Self::with_lock(RawLock::new())
    }
}
