//! Memory that is never given back: slots.

extern crate alloc;
use alloc::alloc::{Layout, alloc};

/// Moves `value` to memory that lives as long as the process; `None` when there is none.
pub(crate) fn leak<T: 'static>(value: T) -> Option<&'static T> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout is not empty.
    let place = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return None;
    }
    // SAFETY: fresh memory of that layout, which nobody frees.
    unsafe {
        place.write(value);
        Some(&*place)
    }
}
