//! The pending queue: the harvester's half of the ready list.

use crate::sync::Ordering;
use crate::wake::watch::{Watch, guarded, shared};
use core::ptr::{self};

/// The pending queue: a doubly linked list through the watches, in the order of delivery.
#[derive(Debug)]
pub(in crate::set) struct Pending {
    pub(in crate::set) head: *mut Watch,
    pub(in crate::set) tail: *mut Watch,
    pub(in crate::set) len: usize,
}

/// # Safety (of all methods)
/// The caller holds the scan lock that guards the queue, and the watches belong to that set.
impl Pending {
    pub(in crate::set) const EMPTY: Self =
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), len: 0 };

    pub(in crate::set) unsafe fn push_back(&mut self, watch: *mut Watch) {
        // SAFETY: by the caller, here and below.
        unsafe {
            shared(watch).next.store(ptr::null_mut(), Ordering::Relaxed);
            guarded(watch).prev = if self.tail.is_null() { watch } else { self.tail };
            match self.tail.is_null() {
                true => self.head = watch,
                false => shared(self.tail).next.store(watch, Ordering::Relaxed),
            }
        }
        self.tail = watch;
        self.len += 1;
    }

    pub(in crate::set) unsafe fn push_front(&mut self, watch: *mut Watch) {
        // SAFETY: by the caller, here and below.
        unsafe {
            shared(watch).next.store(self.head, Ordering::Relaxed);
            guarded(watch).prev = watch;
            match self.head.is_null() {
                true => self.tail = watch,
                false => guarded(self.head).prev = watch,
            }
        }
        self.head = watch;
        self.len += 1;
    }

    pub(in crate::set) unsafe fn unlink(&mut self, watch: *mut Watch) {
        // SAFETY: by the caller, here and below.
        unsafe {
            let next = shared(watch).next.load(Ordering::Relaxed);
            let prev = core::mem::replace(&mut guarded(watch).prev, ptr::null_mut());
            if prev == watch {
                self.head = next;
            } else {
                shared(prev).next.store(next, Ordering::Relaxed);
            }
            if next.is_null() {
                self.tail = if prev == watch { ptr::null_mut() } else { prev };
            } else {
                guarded(next).prev = if prev == watch { next } else { prev };
            }
        }
        self.len -= 1;
    }

    pub(in crate::set) unsafe fn contains(&self, watch: *mut Watch) -> bool {
        // SAFETY: by the caller.
        unsafe { !guarded(watch).prev.is_null() }
    }
}
