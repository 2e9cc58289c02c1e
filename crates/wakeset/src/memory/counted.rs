//! A shared value, freed with its last handle: `Arc`, but for memory that is asked for and may be
//! refused. `Arc::new` ends the process where there is none, and `Arc::try_new` is not stable.

use crate::error::Error;
use crate::sync::{Ordering, UnmodelledUsize};
use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

struct Inner<T> {
    handles: UnmodelledUsize,
    value: T,
}

/// One of the handles on a `T`.
pub(crate) struct Counted<T> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

// SAFETY: handles give out `&T` on any thread, and the last one drops the `T` where it happens to
// be.
unsafe impl<T: Send + Sync> Send for Counted<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}

impl<T> Counted<T> {
    /// The first handle on `value`.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; `value` is dropped.
    pub(crate) fn try_new(value: T) -> Result<Self, Error> {
        // SAFETY: the layout holds a count and is not empty.
        let place = unsafe { alloc(Layout::new::<Inner<T>>()) }.cast::<Inner<T>>();
        let inner = NonNull::new(place).ok_or(Error::NoMemory)?;
        // SAFETY: fresh memory of that layout.
        unsafe { inner.write(Inner { handles: UnmodelledUsize::new(1), value }) };
        Ok(Self { inner, owns: PhantomData })
    }

    /// The first handle on a value that `fill` writes to its place: one that is too large for a
    /// small stack.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    ///
    /// # Safety
    /// `fill` writes a whole value to its argument.
    pub(crate) unsafe fn try_new_in_place(fill: impl FnOnce(*mut T)) -> Result<Self, Error> {
        // SAFETY: the layout holds a count and is not empty.
        let place = unsafe { alloc(Layout::new::<Inner<T>>()) }.cast::<Inner<T>>();
        let inner = NonNull::new(place).ok_or(Error::NoMemory)?;
        // SAFETY: fresh memory of that layout.
        unsafe {
            (&raw mut (*place).handles).write(UnmodelledUsize::new(1));
            fill(&raw mut (*place).value);
        }
        Ok(Self { inner, owns: PhantomData })
    }

    /// [`try_new`](Self::try_new) that ends the process where there is no memory, as `Arc::new`
    /// does.
    pub(crate) fn new(value: T) -> Self {
        Self::or_end(Self::try_new(value))
    }

    /// The handle that there is memory for; otherwise ends the process.
    pub(crate) fn or_end(made: Result<Self, Error>) -> Self {
        made.unwrap_or_else(|_| handle_alloc_error(Layout::new::<Inner<T>>()))
    }

    /// The value, for ever.
    pub(crate) fn leak(self) -> &'static T
    where
        T: 'static,
    {
        let inner = self.inner;
        core::mem::forget(self);
        // SAFETY: the handle that was forgotten is never counted out.
        unsafe { &inner.as_ref().value }
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: freed with the last handle, and this is one.
        unsafe { self.inner.as_ref() }
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Clone for Counted<T> {
    fn clone(&self) -> Self {
        // Relaxed: whoever clones holds a handle already. 2^64 handles take longer than anybody
        // lives.
        self.inner().handles.fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        // Release: what was done with the value through this handle comes before its end; Acquire:
        // so for the last one.
        if self.inner().handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: written by `try_new` in memory of that layout, and no handle is left.
            unsafe {
                self.inner.drop_in_place();
                dealloc(self.inner.as_ptr().cast(), Layout::new::<Inner<T>>());
            }
        }
    }
}
