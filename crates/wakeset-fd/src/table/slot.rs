//! The memory of objects: slots that are never freed, and used again only under the same number.

use crate::sys;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::{step, step_lock, step_waited};
use crate::table::migrating::Links;
use crate::table::object::Object;
use crate::table::{duplicates, stands_for, vacant_slot};
use core::ffi::c_int;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// What every slot begins with, so that an entry can be asked what memory and what object it has.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SlotHead {
    /// [`Slot::KIND`] of this slot's type. 32 bits, so that the head and what an eventfd has beside
    /// its counter fill one cache line.
    kind: u32,
    /// A thread migrates the object and uses its number meanwhile: a close waits. Set before the
    /// migrating thread checks that the number still stands for the object, and read by the
    /// closing thread after it has seen to it that it does not. 2: a closing thread may sleep.
    migrating: AtomicU32,
    /// The slot as an object, whatever its type.
    object: unsafe fn(&'static Self) -> &'static dyn Object,
    /// The next slot of the same number, in a ring; 0 if this is the only one. Changed only by the
    /// thread that makes an object under the number.
    sibling: AtomicUsize,
    /// The slot's users: 1 for each descriptor, 1 for each call that sleeps in it or may. 0: free.
    users: AtomicU32,
    /// The number of its kernel object: its descriptor, or a hidden one if it has several.
    fd: AtomicI32,
    /// Its place among those that migrate with it; the migrating thread's.
    pub(crate) links: Links,
}

/// A slot: [`SlotHead`] at its beginning, and aligned so that its address has room for a tag.
///
/// # Safety
/// The implementing type is `repr(C)` with the head first, and `KIND` is its alone.
pub(crate) unsafe trait Slot: Object + Sized + 'static {
    /// The tag of its table entries.
    const KIND: usize;
    /// Fresh memory for one, never freed. `None` when there is none.
    fn allocate(head: SlotHead) -> Option<&'static Self>;
}

impl SlotHead {
    fn new<S: Slot>(fd: c_int) -> Self {
        Self {
            kind: S::KIND as u32,
            migrating: AtomicU32::new(0),
            // SAFETY: the head of a slot of type `S` is where that slot is.
            object: |head| unsafe { &*(ptr::from_ref(head) as *const S) },
            sibling: AtomicUsize::new(0),
            users: AtomicU32::new(1),
            fd: AtomicI32::new(fd),
            links: Links::new(),
        }
    }

    /// The head of a slot that stands for no number, and never will.
    pub(crate) fn unnumbered<S: Slot>() -> Self {
        Self::new::<S>(-1)
    }

    /// The head of the slot at `address`.
    ///
    /// # Safety
    /// There is a slot at `address`.
    pub(crate) unsafe fn at(address: usize) -> &'static Self {
        // SAFETY: slots begin with a head and are never freed.
        unsafe { &*(address as *const Self) }
    }

    /// The slot's address.
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    pub(crate) fn kind(&self) -> usize {
        self.kind as usize
    }

    /// The object in this slot.
    pub(crate) fn object(&'static self) -> &'static dyn Object {
        // SAFETY: this is the head that it was made for.
        unsafe { (self.object)(self) }
    }

    /// The slot, if it is of this kind.
    #[inline(always)]
    pub(crate) fn downcast<S: Slot>(&'static self) -> Option<&'static S> {
        // SAFETY: the kind says that it is an `S`.
        (self.kind() == S::KIND).then(|| unsafe { &*(ptr::from_ref(self) as *const S) })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.load(Ordering::Relaxed)
    }

    /// Whether it has, or had, several numbers.
    #[inline(always)]
    pub(crate) fn has_several(&self) -> bool {
        self.links.several()
    }

    /// From now on the kernel object is known by a handle.
    pub(super) fn become_several(&self, handle: c_int) {
        self.set_handle(handle);
        self.links.set_several(true);
    }

    pub(super) fn set_handle(&self, handle: c_int) {
        self.fd.store(handle, Ordering::SeqCst);
    }

    /// The handle, which is no more; -1 if there was none of its own.
    pub(super) fn stop_being_several(&self) -> c_int {
        let borrows = self.links.borrows();
        if !self.links.set_several(false) {
            return -1;
        }
        let handle = self.fd.swap(-1, Ordering::SeqCst);
        if borrows { -1 } else { handle }
    }

    pub(super) fn note_left(&self) {
        self.links.set_left();
    }

    /// Whether an object with several numbers has migrated.
    pub(super) fn has_left_table(&self) -> bool {
        self.links.left()
    }

    /// Counts a further number.
    pub(super) fn count_number(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a user, if there is one already: 0 is free, not an object any more.
    pub(super) fn join(&self) -> bool {
        let join = |users: u32| (users != 0).then(|| users + 1);
        self.users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok()
    }

    /// Whether its number may be another file's: see [`Links`].
    pub(crate) fn is_lost(&self) -> bool {
        self.links.lost()
    }

    /// The number of its kernel object; -1 if that is no more.
    pub(crate) fn kernel_fd(&self) -> c_int {
        if self.is_lost() { -1 } else { self.fd() }
    }

    pub(super) fn sibling(&self) -> usize {
        self.sibling.load(Ordering::Acquire)
    }

    /// Whether a call sleeps in the object, or may be about to.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.users.load(Ordering::SeqCst) > 1
    }

    /// Whether one call is in the object, and it has one number.
    pub(crate) fn has_one_sleeper(&self) -> bool {
        self.users.load(Ordering::SeqCst) == 2
    }

    /// Whether it has an object, or a call is still in the last one.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn set_migrating(&self, migrating: bool) {
        let before = self.migrating.swap(u32::from(migrating), Ordering::SeqCst);
        if migrating {
            step_lock!(Locked, &self.migrating);
        } else {
            if before == 2 {
                sys::futex_wake(&self.migrating, u32::MAX >> 1);
            }
            step_lock!(Unlocked, &self.migrating);
        }
    }

    pub(crate) fn is_migrating(&self) -> bool {
        self.migrating.load(Ordering::SeqCst) != 0
    }

    /// Waits for the thread that migrates the object. The number no longer stands for it, so no
    /// migration begins anew, but of an object that has been given another number.
    fn wait_until_migrated(&self) {
        while self.is_migrating() {
            step_lock!(Waiting, &self.migrating);
            let _ = self.migrating.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst);
            sys::futex_wait(&self.migrating, 2);
        }
        step_waited!();
    }

    /// Takes a free slot into use.
    fn claim(&self, fd: c_int) -> bool {
        let claimed = self.users.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if claimed {
            self.fd.store(fd, Ordering::Relaxed);
            self.links.set_lost(false);
        }
        claimed
    }
}

/// A slot for a new object under `fd`: a free one of that number, or fresh memory. One that a call
/// still sleeps in comes free when that call is over.
pub(crate) fn slot_for<S: Slot>(fd: c_int) -> Option<&'static S> {
    let vacant = vacant_slot(fd);
    let mut candidate = vacant;
    while candidate != 0 {
        // SAFETY: vacant entries and siblings lead to slots.
        let head = unsafe { SlotHead::at(candidate) };
        if head.kind() == S::KIND && head.claim(fd) {
            return head.downcast();
        }
        candidate = head.sibling();
        if candidate == vacant {
            break;
        }
    }
    let slot = S::allocate(SlotHead::new::<S>(fd))?;
    if vacant != 0 {
        // SAFETY: as above.
        let head = unsafe { SlotHead::at(vacant) };
        let next = match head.sibling() {
            0 => vacant,
            next => next,
        };
        slot.head().sibling.store(next, Ordering::Release);
        head.sibling.store(slot.head().address(), Ordering::Release);
    }
    Some(slot)
}

/// A use of a slot by a call that may sleep in it: the object lives on until the call is over, even
/// if its number is closed meanwhile, as the kernel holds a file for the length of a call.
#[derive(Debug)]
pub(crate) struct Using<S: Slot>(&'static S);

impl<S: Slot> Using<S> {
    /// Begins a use of the object `fd` stands for, if `slot` still is that.
    pub(crate) fn begin(fd: c_int, slot: &'static S) -> Option<Self> {
        if !slot.head().join() {
            return None;
        }
        step!(use_counted);
        let using = Self(slot);
        stands_for(fd, slot.head()).then_some(using)
    }
}

impl<S: Slot> Using<S> {
    /// Leaves the use to whoever calls [`end_use`].
    pub(crate) fn leave_counted(self) -> &'static SlotHead {
        let head = self.0.head();
        core::mem::forget(self);
        head
    }
}

impl<S: Slot> Deref for Using<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.0
    }
}

impl<S: Slot> Drop for Using<S> {
    #[inline(always)]
    fn drop(&mut self) {
        end_use(self.0);
    }
}

/// Ends a use, the descriptor's or a call's; the last one ends the object.
#[inline(always)]
pub(crate) fn end_use<O: Object + ?Sized>(object: &O) {
    end_use_with(object, finalize);
}

/// [`end_use`] by a caller that has a signal guard.
#[inline]
pub(crate) fn end_use_guarded<O: Object + ?Sized>(object: &O) {
    end_use_with(object, finalize_guarded);
}

#[inline(always)]
fn end_use_with<O: Object + ?Sized>(object: &O, finalize: impl Fn(&O)) {
    let users = &object.head().users;
    loop {
        let now = users.load(Ordering::SeqCst);
        if now == 1 {
            // While the count is still 1, so that no thread takes the slot into use before it is
            // done.
            finalize(object);
        }
        step!(use_before_end);
        if users
            .compare_exchange(now, now.saturating_sub(1), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            step!(use_ended);
            return;
        }
    }
}

#[cold]
fn finalize<O: Object + ?Sized>(object: &O) {
    let _guard = SignalGuard::enter();
    finalize_guarded(object);
}

#[inline]
fn finalize_guarded<O: Object + ?Sized>(object: &O) {
    object.finalize();
    if object.head().has_several() {
        duplicates::release(object.head());
    }
    step!(object_ended);
}

/// Ends the descriptor's use of an object whose number, its only one, is about to be closed, and
/// which this call has made vacant. `false`: the object has been given further numbers meanwhile,
/// and goes on or has migrated; the use is the caller's to end. The caller has a signal guard.
#[inline]
#[must_use]
pub(crate) fn end<O: Object + ?Sized>(fd: c_int, object: &'static O) -> bool {
    step!(entry_vacated);
    if !wakeset::mutated!("close_beside_mover") {
        object.head().wait_until_migrated();
    }
    if object.head().has_several() && !duplicates::was_last(object.head(), fd) {
        return false;
    }
    end_last(object);
    true
}

/// Ends an object without a number, and the use of the descriptor that was its last.
#[inline]
pub(crate) fn end_last<O: Object + ?Sized>(object: &'static O) {
    object.lose_number();
    step!(number_lost);
    end_use_guarded(object);
}
