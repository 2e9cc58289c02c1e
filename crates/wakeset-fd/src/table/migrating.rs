//! The objects of a migration under way, in lists that need no memory: a migration must not fail
//! for want of it. The links are in the slots' heads, and the migrations lock guards them.

use crate::table::slot::SlotHead;
use crate::table::{away, duplicates};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A slot's place in a list.
#[derive(Debug)]
pub(crate) struct Links {
    next: AtomicUsize,
    prev: AtomicUsize,
    /// It was this object that the migration took the state out of; of a pair only one end is.
    carries: AtomicBool,
    /// The number has been closed by a call that was not seen, and may be another file's: nothing
    /// of the object goes there.
    lost: AtomicBool,
    /// This migration has asked for that.
    asked: AtomicBool,
    /// It may have watches that migrate with it.
    watched: AtomicBool,
    /// The object has, or had, several numbers, and a handle beside them: see
    /// [`duplicates`](crate::table::duplicates).
    several: AtomicBool,
    /// It had, and they are the kernel's.
    left: AtomicBool,
    /// One of several numbers is just being given to another object.
    replaced: AtomicBool,
    /// What it has for a handle is a number of the program's.
    borrows: AtomicBool,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self {
            next: AtomicUsize::new(0),
            prev: AtomicUsize::new(0),
            carries: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            several: AtomicBool::new(false),
            left: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            borrows: AtomicBool::new(false),
        }
    }

    /// Whether it has several numbers now; whether it had before.
    pub(super) fn set_several(&self, several: bool) -> bool {
        self.left.store(false, Ordering::Relaxed);
        self.replaced.store(false, Ordering::Relaxed);
        self.borrows.store(false, Ordering::Relaxed);
        self.several.swap(several, Ordering::SeqCst)
    }

    #[inline(always)]
    pub(super) fn several(&self) -> bool {
        self.several.load(Ordering::SeqCst)
    }

    pub(super) fn set_left(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    pub(super) fn left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    pub(super) fn set_replaced(&self, replaced: bool) {
        self.replaced.store(replaced, Ordering::SeqCst);
    }

    pub(super) fn replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    pub(super) fn set_borrows(&self) {
        self.borrows.store(true, Ordering::SeqCst);
    }

    pub(super) fn borrows(&self) -> bool {
        self.borrows.load(Ordering::SeqCst)
    }

    pub(crate) fn set_lost(&self, lost: bool) {
        self.lost.store(lost, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// A migration begins with the object.
    pub(crate) fn begin(&self) {
        self.asked.store(false, Ordering::Relaxed);
        self.watched.store(false, Ordering::Relaxed);
    }

    /// Notes that this migration asks whether the number is lost; whether it has not before.
    pub(crate) fn ask_once(&self) -> bool {
        let asks = !self.asked.load(Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        asks
    }

    pub(crate) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    pub(crate) fn watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    pub(crate) fn set_carries(&self, carries: bool) {
        self.carries.store(carries, Ordering::Relaxed);
    }

    pub(crate) fn carries(&self) -> bool {
        self.carries.load(Ordering::Relaxed)
    }
}

/// Objects that migrate, in the order in which they were begun. Their numbers are kept from being
/// closed until the list goes. Whoever has one holds the migrations lock.
pub(crate) struct Migrating {
    first: Option<&'static SlotHead>,
    last: Option<&'static SlotHead>,
}

fn head_at(address: usize) -> Option<&'static SlotHead> {
    // SAFETY: links hold 0 or what `begin` stored, the address of a slot.
    (address != 0).then(|| unsafe { SlotHead::at(address) })
}

impl Migrating {
    pub(crate) const fn none() -> Self {
        Self { first: None, last: None }
    }

    /// Begins the migration of an object, if a number still stands for it and this has not been
    /// done; whether it has.
    pub(crate) fn begin(&mut self, head: &'static SlotHead) -> bool {
        if head.is_migrating() {
            return false;
        }
        head.set_migrating(true);
        // After the mark: either the closing thread sees the mark, or we see that it has been here.
        if !duplicates::is_named(head) {
            head.set_migrating(false);
            return false;
        }
        head.links.begin();
        away::begin(head);
        head.links.next.store(0, Ordering::Relaxed);
        head.links.prev.store(self.last.map_or(0, SlotHead::address), Ordering::Relaxed);
        match self.last {
            Some(last) => last.links.next.store(head.address(), Ordering::Relaxed),
            None => self.first = Some(head),
        }
        self.last = Some(head);
        true
    }

    /// From the first one on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static SlotHead> + use<> {
        core::iter::successors(self.first, |head| Self::after(head))
    }

    /// From the last one back.
    pub(crate) fn rev(&self) -> impl Iterator<Item = &'static SlotHead> + use<> {
        core::iter::successors(self.last, |head| head_at(head.links.prev.load(Ordering::Relaxed)))
    }

    pub(crate) fn first(&self) -> Option<&'static SlotHead> {
        self.first
    }

    /// The one begun after `head`.
    pub(crate) fn after(head: &SlotHead) -> Option<&'static SlotHead> {
        head_at(head.links.next.load(Ordering::Relaxed))
    }
}

impl Drop for Migrating {
    fn drop(&mut self) {
        // The links stay as they are when a number is let go: only the holder of the migrations
        // lock changes them.
        self.iter().for_each(|head| head.set_migrating(false));
    }
}
