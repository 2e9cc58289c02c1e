//! Memory that is never given back: slots.

extern crate alloc;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr::NonNull;

/// Moves `value` to memory that lives as long as the process; `None` when there is none.
pub(crate) fn leak<T: 'static>(value: T) -> Option<&'static T> {
    leak_with(|| Some(value))
}

/// [`leak`] of what `make` makes, which is asked once there is memory for it.
pub(crate) fn leak_with<T: 'static>(make: impl FnOnce() -> Option<T>) -> Option<&'static T> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let pointer = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if pointer.is_null() {
        return None;
    }
    let Some(value) = make() else {
        // SAFETY: allocated above, with this layout.
        unsafe { dealloc(pointer.cast(), Layout::new::<T>()) };
        return None;
    };
    // SAFETY: fresh memory of that layout, which nobody frees.
    unsafe {
        pointer.write(value);
        Some(&*pointer)
    }
}

/// Memory that lives as long as the process, in which `fill` has written a value: one that is too
/// large for a small stack. `None` when there is none.
///
/// # Safety
/// `fill` writes a whole value to its argument.
pub(crate) unsafe fn leak_in_place<T: 'static>(fill: impl FnOnce(*mut T)) -> Option<&'static T> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let pointer = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if pointer.is_null() {
        return None;
    }
    fill(pointer);
    // SAFETY: fresh memory of that layout, which nobody frees, and by the contract a value.
    Some(unsafe { &*pointer })
}

/// A bytewise copy of `from`, by way of no stack, in memory that lives as long as the process;
/// `None` when there is none.
///
/// # Safety
/// `T` owns nothing and refers to nothing, so that there may be two of it.
pub(crate) unsafe fn leak_copy<T>(from: &'static T) -> Option<NonNull<T>> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let pointer = NonNull::new(unsafe { alloc(Layout::new::<T>()) }.cast::<T>())?;
    // SAFETY: fresh memory of that layout, which nobody else knows.
    unsafe { pointer.copy_from_nonoverlapping(NonNull::from(from), 1) };
    Some(pointer)
}
