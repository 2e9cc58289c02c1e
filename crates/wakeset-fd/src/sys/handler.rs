//! A function that a module above gives to one below, to be called from there.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// At most one function.
#[derive(Debug)]
pub(crate) struct Handler(AtomicPtr<()>);

impl Handler {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn set(&self, function: fn()) {
        self.0.store(function as *mut (), Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        !self.0.load(Ordering::Acquire).is_null()
    }

    /// Calls the function, if there is one.
    pub(crate) fn call(&self) {
        let function = self.0.load(Ordering::Acquire);
        if !function.is_null() {
            // SAFETY: only `set` stores here, and it stores a `fn()`.
            unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
        }
    }
}
