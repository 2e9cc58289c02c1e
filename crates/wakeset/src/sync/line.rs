//! A line of the cache for one value.

use core::ops::Deref;

/// A value in a cache line of its own, so that writes next to it do not slow its readers.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> Deref for Line<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
