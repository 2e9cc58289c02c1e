//! A set in its slot.

use crate::kernel_half::KernelEpoll;
use crate::kernel_half::listeners::rotation::Rotation;
use crate::migrate;
use crate::set::doorbell;
use crate::set::polls::{self, Polls};
use crate::set::state::SetState;
use crate::stats::Stat;
use crate::stats::count::SetPlace;
use crate::sys::{self, memory};
use crate::table::object::{Host, Lists, Object};
use crate::table::{self, Slot, SlotHead, engine};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use wakeset::{EventPoll, Events, SetRef, Source, WaitQueue};

/// An epoll set. Its number belongs to a real kernel epoll, which is its kernel half.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdSet {
    head: SlotHead,
    pub(crate) set: EventPoll,
    pub(crate) state: SetState,
    /// Counts the watches that have migrated to the kernel half.
    pub(crate) migrated_watches: AtomicU32,
    /// Odd while a set in this one, or further in, is on its way to the kernel: what happens there
    /// is not heard of here.
    pub(crate) unsettled: AtomicU32,
    /// A migration's lists that the set is in.
    pub(super) lists: Lists,
    /// The doorbell in the kernel half, below 0 for none.
    pub(crate) doorbell: AtomicI32,
    /// Counts the wakers that are about to ring it.
    pub(super) rings: AtomicU32,
    /// The listeners in the kernel half.
    pub(crate) rotation: Rotation,
    /// What an io_uring watches in its place.
    pub(crate) polls: Polls,
    /// Counts the waits that had both halves to look at, each of which goes first in its turn.
    pub(crate) round_robin: AtomicU32,
    /// How many of the next waits are not quiet ones.
    pub(super) general_waits: AtomicU32,
    /// How long (µs) the kernel half has been told to poll devices.
    pub(crate) busy_poll: AtomicU32,
    /// Where its waiters count.
    pub(crate) counted: SetPlace,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdSet {
    const KIND: usize = table::SET;

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        let set = EventPoll::new(engine::get()?).ok()?;
        // SAFETY: all fields are written.
        let slot = unsafe { memory::leak_in_place(|place| write_new(place, head, set)) }?;
        slot.set.set_owner(ptr::from_ref(slot).addr());
        Some(slot)
    }
}

/// Writes a set without watches. Each field is written to its place and not by way of the stack: a
/// signal handler may make a set where little stack is left.
///
/// # Safety
/// There is memory for a set.
unsafe fn write_new(place: *mut FdSet, head: SlotHead, set: EventPoll) {
    macro_rules! write {
        ($($field:ident: $value:expr,)*) => {
            // A field that is not written is missing here.
            let _ = |FdSet { $($field: _),* }: &FdSet| ();
            // SAFETY: the caller's contract.
            unsafe { $((&raw mut (*place).$field).write($value);)* }
        };
    }
    write! {
        head: head,
        set: set,
        state: SetState::new(),
        migrated_watches: AtomicU32::new(0),
        unsettled: AtomicU32::new(0),
        lists: const { Lists::new() },
        doorbell: AtomicI32::new(-1),
        rings: AtomicU32::new(0),
        rotation: const { Rotation::new() },
        polls: Polls::new(),
        round_robin: AtomicU32::new(0),
        general_waits: AtomicU32::new(0),
        busy_poll: AtomicU32::new(0),
        counted: SetPlace::none(),
    }
}

impl Object for FdSet {
    fn head(&self) -> &SlotHead {
        &self.head
    }

    /// A set that has begun in the slot since is empty, as this one is found.
    fn poll_found(&self) -> Option<Events> {
        let events = self.poll();
        (!events.is_empty() || !self.state.is_closed()).then_some(events)
    }

    fn as_host(&'static self) -> Option<&'static dyn Host> {
        Some(self)
    }

    fn lose_number(&self) {
        self.state.close();
        // Now, and not when the last thread in here has left: a thread that migrates a set around
        // this one waits until nothing is left in it.
        self.set.wait_queue().close();
        // A migration that takes a watch of this set to the number does so under the scan lock, and
        // looks at the mark first.
        if self.is_unused() {
            // All at once. A call that comes late finds that the number is another's.
            self.set.close();
        } else {
            self.set.between_scans(|| {});
        }
        polls::forget(self);
        self.rotation.leave_number(self.doorbell.load(Ordering::SeqCst) >= 0);
        self.rotation.end_alarm(self);
        doorbell::remove(self);
    }

    fn finalize(&self) {
        self.counted.release();
        if !self.set.is_closed() {
            self.set.close();
        }
        if self.state.end_export() {
            self.set.leave_remote();
        }
    }

    fn has_left(&self) -> bool {
        self.state.is_in_kernel()
    }

    // A set has no state of its own to carry: its watches go one by one, and then it is empty.
    fn seal(&self) -> bool {
        false
    }

    fn carry(&self) -> usize {
        0
    }

    fn settle(&self) {}
}

impl FdSet {
    pub(crate) fn fd(&self) -> c_int {
        self.head.fd()
    }

    /// Whether it has, or had, several numbers.
    pub(crate) fn has_several(&self) -> bool {
        self.head.has_several()
    }

    /// Migrates it, and what has to go with it.
    pub(crate) fn migrate(&self, reason: Stat) {
        migrate::object(self.slot_head(), reason);
    }

    /// [`migrate`](Self::migrate) for a caller that holds the migrations lock.
    pub(super) fn migrate_held(&self, reason: Stat) {
        migrate::object_held(self.slot_head(), reason);
    }

    fn slot_head(&self) -> &'static SlotHead {
        // SAFETY: sets are made in slots, which are never freed.
        unsafe { SlotHead::at(self.head.address()) }
    }

    /// Whether it has no watch and no doorbell, and no call sleeps in it.
    fn is_unused(&self) -> bool {
        !self.head.has_sleepers()
            && self.set.is_empty()
            && !self.polls.are_active()
            && self.doorbell.load(Ordering::SeqCst) < 0
    }

    /// Notes that the kernel half has something to say from now on, and sends sleeping waiters
    /// there.
    pub(crate) fn note_kernel_watch(&self) {
        if self.state.note_kernel_watch() {
            self.set.kick_all();
        }
    }
}

impl KernelEpoll for FdSet {
    fn number(&self) -> c_int {
        self.fd()
    }

    fn is_in_kernel(&self) -> bool {
        self.state.is_in_kernel()
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }

    fn is_in_one_call(&self) -> bool {
        self.head.has_one_sleeper()
    }

    fn admit_baton(&self) -> u64 {
        doorbell::admit(self);
        doorbell::baton_cookie(self)
    }

    fn admit_alarm(&self) -> u64 {
        doorbell::admit(self);
        doorbell::alarm_cookie(self)
    }
}

impl Source for FdSet {
    fn poll(&self) -> Events {
        let mut events = self.set.poll();
        if events.is_empty() && !self.state.is_pure() {
            // About to migrate into the kernel half of the set around it: until then that one sees
            // both halves.
            let now = sys::poll_now(self.fd(), libc::POLLIN | libc::POLLRDNORM);
            events = Events::from_bits_retain(u32::from(now as u16));
        }
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.set.wait_queue()
    }

    fn as_set(&self) -> Option<SetRef<'_>> {
        self.set.as_set()
    }
}
