//! The objects of a move under way, in lists that need no memory: a move must not fail for want of it. The links are in the slots'
//! heads, and the moves lock guards them.

use crate::table::{self, Slot};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A slot's place in a list of its kind.
#[derive(Debug)]
pub(crate) struct Links {
    next: AtomicUsize,
    prev: AtomicUsize,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicUsize::new(0), prev: AtomicUsize::new(0) }
    }
}

/// Objects that are being moved, in the order in which they were begun. Their numbers are kept from being closed until the list
/// goes. Whoever has one holds the moves lock.
pub(crate) struct Moving<S: Slot> {
    first: Option<&'static S>,
    last: Option<&'static S>,
}

fn slot_at<S: Slot>(address: usize) -> Option<&'static S> {
    // SAFETY: links hold 0 or what `begin` stored, the address of a slot of this list's kind; slots are never freed.
    (address != 0).then(|| unsafe { &*(address as *const S) })
}

impl<S: Slot> Moving<S> {
    pub(crate) const fn none() -> Self {
        Self { first: None, last: None }
    }

    /// Begins a move of the object that `fd` stands for, if it still does and this has not been done; whether it has.
    pub(crate) fn begin(&mut self, fd: c_int, slot: &'static S) -> bool {
        let head = slot.head();
        if head.is_moving() {
            return false;
        }
        head.set_moving(true);
        // Behind the mark: either the closer sees the mark or we see that he has been here.
        if !table::stands_for(fd, slot) {
            head.set_moving(false);
            return false;
        }
        let address = ptr::from_ref(slot).addr();
        head.links.next.store(0, Ordering::Relaxed);
        head.links.prev.store(self.last.map_or(0, |last| ptr::from_ref(last).addr()), Ordering::Relaxed);
        match self.last {
            Some(last) => last.head().links.next.store(address, Ordering::Relaxed),
            None => self.first = Some(slot),
        }
        self.last = Some(slot);
        true
    }

    /// From the first one on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static S> + use<S> {
        core::iter::successors(self.first, |slot| slot_at(slot.head().links.next.load(Ordering::Relaxed)))
    }

    /// From the last one back.
    pub(crate) fn rev(&self) -> impl Iterator<Item = &'static S> + use<S> {
        core::iter::successors(self.last, |slot| slot_at(slot.head().links.prev.load(Ordering::Relaxed)))
    }

    pub(crate) fn first(&self) -> Option<&'static S> {
        self.first
    }

    /// The one begun after `slot`.
    pub(crate) fn after(slot: &'static S) -> Option<&'static S> {
        slot_at(slot.head().links.next.load(Ordering::Relaxed))
    }
}

impl<S: Slot> Drop for Moving<S> {
    fn drop(&mut self) {
        // The links stay as they are when a number is let go: only the holder of the moves lock changes them.
        self.iter().for_each(|slot| slot.head().set_moving(false));
    }
}
