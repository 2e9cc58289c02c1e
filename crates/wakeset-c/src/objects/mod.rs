//! Objects that Linux does not have, and that C holds by pointer.

use crate::outcome::fail;
use core::ptr;
use std::alloc::{Layout, alloc, dealloc};
use wakeset_fd::Errno;

pub mod fault;
pub mod lease;
pub mod listener;
pub mod ring;
pub mod source;
pub mod spin;

/// The object that C gets for what `made` has; null, and errno, if that is an error.
fn created<T, U>(made: Result<T, Errno>, wrap: impl FnOnce(T) -> U) -> *mut U {
    match made {
        Ok(value) => boxed(wrap(value)),
        Err(error) => {
            fail(error.into_raw());
            ptr::null_mut()
        }
    }
}

/// Puts a value into memory of its own; null, and ENOMEM, when there is none.
fn boxed<T>(value: T) -> *mut T {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if memory.is_null() {
        fail(libc::ENOMEM);
        return memory;
    }
    // SAFETY: fresh memory of that layout.
    unsafe { memory.write(value) };
    memory
}

/// Ends a value made by [`boxed`]; null is allowed.
///
/// # Safety
/// `memory` is null, or came from [`boxed`] and is not used any more.
unsafe fn unboxed<T>(memory: *mut T) {
    if !memory.is_null() {
        // SAFETY: by the caller.
        unsafe {
            ptr::drop_in_place(memory);
            dealloc(memory.cast(), Layout::new::<T>());
        }
    }
}
