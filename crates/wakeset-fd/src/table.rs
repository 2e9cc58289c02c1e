//! The descriptor table: which numbers stand for objects that live in user space. One word each, read without a lock.
//!
//! | entry | means | next |
//! |---|---|---|
//! | 0 | a kernel descriptor, or none | `COUNTER`, `SET`, `TIMER`, `PIPE`, `BELL` when an object is made under this number |
//! | slot, `COUNTER` / `SET` / `TIMER` / `PIPE` | an in-process object, or one end of one | `VACANT` when it is closed or moves into the kernel |
//! | slot, `VACANT` | as 0, with memory for the next object of this number | `COUNTER`, `SET`, `TIMER`, `PIPE`, `BELL` |
//! | 0 or slot, `BELL` | a doorbell of ours, which the program does not know | `SPARE_BELL` when its set is gone; 0 or `VACANT` when the program needs the number |
//! | 0 or slot, `SPARE_BELL` | a doorbell that no set uses | `BELL` when a set needs one; 0 or `VACANT` as above |
//!
//! **Reclamation.** A thread may read an entry, stop, and go on after another closed the descriptor. So slots are type-stable and
//! each is used again only under *the same number*: what the late thread then touches is the object its number stands
//! for now, which is what a kernel that got the call at that moment would have touched. This holds because an in-process object
//! has exactly one descriptor: a second one (dup, fork, SCM_RIGHTS…) moves it into the kernel.

use crate::counter::FdCounter;
use crate::moving::Links;
use crate::pipe::FdPipe;
use crate::set::FdSet;
use crate::steps::{step, step_lock, step_waited};
use crate::timer::FdTimer;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Numbers from here on are left to the kernel. The table is untouched zero pages where nobody looks.
const NUMBERS: usize = 1 << 20;

static TABLE: [AtomicUsize; NUMBERS] = [const { AtomicUsize::new(0) }; NUMBERS];
/// One above the highest number that ever stood for something of ours.
static END: AtomicI32 = AtomicI32::new(0);
/// How many entries are `SPARE_BELL`, at least at rest.
static SPARE_BELLS: AtomicU32 = AtomicU32::new(0);
/// Where one was found last.
static LAST_BELL: AtomicI32 = AtomicI32::new(0);

/// Stands for the closes under way, where a test follows who waits for whom.
#[cfg(wakeset_steps)]
pub(crate) static CLOSES: u8 = 0;

const TAG: usize = 7;
const COUNTER: usize = 1;
const SET: usize = 2;
const VACANT: usize = 3;
const BELL: usize = 4;
const SPARE_BELL: usize = 5;
const TIMER: usize = 6;
const PIPE: usize = 7;

/// What a number stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// The kernel's, or closed.
    Kernel,
    Counter(&'static FdCounter),
    Timer(&'static FdTimer),
    Set(&'static FdSet),
    /// An end of a pipe or socket pair.
    Pipe(&'static FdPipe),
    /// A doorbell: for the program this number is closed.
    Bell,
}

fn place(fd: c_int) -> Option<&'static AtomicUsize> {
    // A negative number becomes a huge one.
    TABLE.get(fd as u32 as usize)
}

/// Looks a number up.
#[inline(always)]
pub(crate) fn get(fd: c_int) -> Entry {
    let Some(place) = place(fd) else { return Entry::Kernel };
    let word = place.load(Ordering::Acquire);
    match word & TAG {
        // SAFETY: entries with these tags lead to slots of these types, which are never freed.
        COUNTER => Entry::Counter(unsafe { &*((word & !TAG) as *const FdCounter) }),
        // SAFETY: as above.
        SET => Entry::Set(unsafe { &*((word & !TAG) as *const FdSet) }),
        // SAFETY: as above.
        TIMER => Entry::Timer(unsafe { &*((word & !TAG) as *const FdTimer) }),
        // SAFETY: as above.
        PIPE => Entry::Pipe(unsafe { &*((word & !TAG) as *const FdPipe) }),
        BELL | SPARE_BELL => Entry::Bell,
        _ => Entry::Kernel,
    }
}

/// The counter a number stands for, and nothing else: the fast path of read and write.
#[inline(always)]
pub(crate) fn counter(fd: c_int) -> Option<&'static FdCounter> {
    let word = TABLE.get(fd as u32 as usize)?.load(Ordering::Relaxed);
    // Relaxed: the slot's address is a dependency, and what a late reader sees in it the value word decides.
    // SAFETY: entries with this tag lead to counters, which are never freed.
    (word & TAG == COUNTER).then(|| unsafe { &*((word - COUNTER) as *const FdCounter) })
}

/// The end of a pipe a number stands for, and nothing else: the fast path of read and write.
#[inline(always)]
pub(crate) fn pipe(fd: c_int) -> Option<&'static FdPipe> {
    // Relaxed: as in `counter`; here the pair's word decides.
    let word = TABLE.get(fd as u32 as usize)?.load(Ordering::Relaxed);
    // SAFETY: entries with this tag lead to ends of pipes, which are never freed.
    (word & TAG == PIPE).then(|| unsafe { &*((word - PIPE) as *const FdPipe) })
}

impl Entry {
    /// Whether it is an object of the program's that lives here.
    pub(crate) fn is_object(self) -> bool {
        matches!(self, Self::Counter(_) | Self::Timer(_) | Self::Set(_) | Self::Pipe(_))
    }
}

/// The highest number of the standard streams, which libc reads and writes without calling anything that could be replaced.
const LAST_STREAM: c_int = 2;

/// Whether the number is one the table has room for.
pub(crate) fn has_room(fd: c_int) -> bool {
    place(fd).is_some()
}

/// Whether what can be read or written may live here under this number.
pub(crate) fn has_room_for_bytes(fd: c_int) -> bool {
    fd > LAST_STREAM && has_room(fd)
}

fn put(fd: c_int, word: usize) {
    if let Some(place) = place(fd) {
        step!(entry_before_put);
        END.fetch_max(fd + 1, Ordering::SeqCst);
        // SeqCst, pairing with the gate that `escape::all` closes before it looks at the table.
        place.store(word, Ordering::SeqCst);
    }
}

pub(crate) fn put_counter(fd: c_int, counter: &'static FdCounter) {
    put(fd, core::ptr::from_ref(counter).addr() | COUNTER);
}

pub(crate) fn put_timer(fd: c_int, timer: &'static FdTimer) {
    put(fd, core::ptr::from_ref(timer).addr() | TIMER);
}

pub(crate) fn put_pipe(fd: c_int, end: &'static FdPipe) {
    put(fd, core::ptr::from_ref(end).addr() | PIPE);
}

pub(crate) fn put_set(fd: c_int, set: &'static FdSet) {
    put(fd, core::ptr::from_ref(set).addr() | SET);
}

/// Changes the tag of an entry from one of `from`; whether it had one. The slot of an entry stays.
fn retag(fd: c_int, from: &[usize], to: usize) -> Option<usize> {
    let place = place(fd)?;
    let change = |word: usize| {
        from.contains(&(word & TAG)).then_some(if word & !TAG == 0 && to == VACANT { 0 } else { word & !TAG | to })
    };
    place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).ok().map(|before| before & TAG)
}

pub(crate) fn put_bell(fd: c_int) {
    put(fd, vacant_slot(fd) | BELL);
}

/// A bell is no more.
pub(crate) fn forget_bell(fd: c_int) {
    if retag(fd, &[BELL, SPARE_BELL], VACANT) == Some(SPARE_BELL) {
        let _ = count_spare_bell_out();
    }
}

fn count_spare_bell_out() -> Result<u32, u32> {
    SPARE_BELLS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |spare| spare.checked_sub(1))
}

/// A set no longer uses a bell.
pub(crate) fn spare_bell(fd: c_int) {
    if retag(fd, &[BELL], SPARE_BELL).is_some() {
        SPARE_BELLS.fetch_add(1, Ordering::SeqCst);
    }
}

/// A bell that no set uses, for one that will. Looks through the table, and only if there is one.
pub(crate) fn take_spare_bell() -> Option<c_int> {
    count_spare_bell_out().ok()?;
    // The latest one taken lay among the others, most likely.
    let (begin, end) = (LAST_BELL.load(Ordering::Relaxed), END.load(Ordering::SeqCst));
    let found = (begin..end).chain(0..begin.min(end)).find(|fd| retag(*fd, &[SPARE_BELL], BELL).is_some());
    if let Some(fd) = found {
        LAST_BELL.store(fd, Ordering::Relaxed);
    }
    found
}

/// A bell has another number: spare or not, as it was.
pub(crate) fn renumber_bell(fd: c_int, new: c_int) {
    if let Some(tag) = retag(fd, &[BELL, SPARE_BELL], VACANT) {
        put(new, vacant_slot(new) | tag);
    }
}

/// Makes the entry of an object vacant; whether it was this call that did.
pub(crate) fn vacate(fd: c_int, slot: usize) -> bool {
    let Some(place) = place(fd) else { return false };
    let word = place.load(Ordering::SeqCst);
    // Two objects never share a slot address with the same tag, and the slot's first word keeps its kind.
    matches!(word & TAG, COUNTER | SET | TIMER | PIPE)
        && word & !TAG == slot
        && place.compare_exchange(word, slot | VACANT, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Whether a number stands for this object.
pub(crate) fn stands_for<S: Slot>(fd: c_int, slot: &'static S) -> bool {
    place(fd).is_some_and(|place| place.load(Ordering::SeqCst) == core::ptr::from_ref(slot).addr() | S::KIND)
}

/// The vacant slot of a number: its address, 0 for none.
pub(crate) fn vacant_slot(fd: c_int) -> usize {
    let word = place(fd).map_or(0, |place| place.load(Ordering::SeqCst));
    if word & TAG == VACANT { word & !TAG } else { 0 }
}

/// Whether a slot at `address` has ever been used for an object of this number.
pub(crate) fn has_slot(fd: c_int, address: usize) -> bool {
    let first = place(fd).map_or(0, |place| place.load(Ordering::SeqCst)) & !TAG;
    let mut slot = first;
    while slot != 0 && slot != address {
        // SAFETY: entries and siblings lead to slots, which begin with a head and are never freed.
        slot = unsafe { &*(slot as *const SlotHead) }.sibling.load(Ordering::Acquire);
        if slot == first {
            return false;
        }
    }
    slot != 0
}

/// The numbers that may stand for something of ours.
pub(crate) fn numbers() -> core::ops::Range<c_int> {
    0..END.load(Ordering::SeqCst)
}

/// Forgets everything, slots and all: a forked child begins anew.
pub(crate) fn forget_all() {
    for fd in numbers() {
        if let Some(place) = place(fd) {
            place.store(0, Ordering::SeqCst);
        }
    }
    END.store(0, Ordering::SeqCst);
    SPARE_BELLS.store(0, Ordering::SeqCst);
    LAST_BELL.store(0, Ordering::SeqCst);
}

/// What every slot begins with, so that a vacant entry can be asked what memory it has.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SlotHead {
    /// `COUNTER`, `SET`, `TIMER` or `PIPE`: the type of this slot.
    kind: usize,
    /// The next slot of the same number, in a ring; 0 if this is the only one. Changed only by who makes an object under the number.
    sibling: AtomicUsize,
    /// Who uses the slot: 1 for the descriptor, 1 for each call that sleeps in it or may. 0: free.
    users: AtomicU32,
    /// The number it stands for.
    fd: AtomicI32,
    /// Somebody moves the object and uses its number meanwhile: a close waits. Set before the mover looks whether the number
    /// still stands for the object, and looked at by the closer after he has seen to it that it does not. 2: somebody may sleep.
    moving: AtomicU32,
    /// Its place among those that move with it; the mover's.
    pub(crate) links: Links,
}

/// A slot: [`SlotHead`] at its beginning, and aligned so that its address has room for a tag.
///
/// # Safety
/// The implementing type is `repr(C)` with the head first.
pub(crate) unsafe trait Slot: Sized + 'static {
    const KIND: usize;
    fn head(&self) -> &SlotHead;
    /// Fresh memory for one, never freed. `None` when there is none.
    fn allocate(head: SlotHead) -> Option<&'static Self>;
    /// The number is about to be closed. Calls may still be asleep in the object; nobody may touch the number any more.
    fn lose_number(&self);
    /// Ends the object: nobody uses it any more.
    fn finalize(&self);
}

pub(crate) const KIND_COUNTER: usize = COUNTER;
pub(crate) const KIND_SET: usize = SET;
pub(crate) const KIND_TIMER: usize = TIMER;
pub(crate) const KIND_PIPE: usize = PIPE;

impl SlotHead {
    fn new(kind: usize, fd: c_int) -> Self {
        Self {
            kind,
            sibling: AtomicUsize::new(0),
            users: AtomicU32::new(1),
            fd: AtomicI32::new(fd),
            moving: AtomicU32::new(0),
            links: Links::new(),
        }
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.load(Ordering::Relaxed)
    }

    pub(crate) fn set_moving(&self, moving: bool) {
        let before = self.moving.swap(u32::from(moving), Ordering::SeqCst);
        if moving {
            step_lock!(Locked, &self.moving);
        } else {
            if before == 2 {
                crate::sys::futex_wake(&self.moving, u32::MAX >> 1);
            }
            step_lock!(Unlocked, &self.moving);
        }
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.moving.load(Ordering::SeqCst) != 0
    }

    /// Waits for whoever moves the object. The number no longer stands for it, so nobody begins anew.
    pub(crate) fn wait_for_mover(&self) {
        while self.is_moving() {
            step_lock!(Waiting, &self.moving);
            let _ = self.moving.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst);
            crate::sys::futex_wait(&self.moving, 2);
        }
        step_waited!();
    }

    /// Takes a free slot into use.
    fn claim(&self, fd: c_int) -> bool {
        let claimed = self.users.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if claimed {
            self.fd.store(fd, Ordering::Relaxed);
        }
        claimed
    }
}

/// A slot for a new object under `fd`: a free one of that number, or fresh memory. One that a call still sleeps in comes free
/// when that call is over.
pub(crate) fn slot_for<S: Slot>(fd: c_int) -> Option<&'static S> {
    let vacant = vacant_slot(fd);
    let mut candidate = vacant;
    while candidate != 0 {
        // SAFETY: vacant entries and siblings lead to slots, which begin with a head and are never freed.
        let head = unsafe { &*(candidate as *const SlotHead) };
        if head.kind == S::KIND && head.claim(fd) {
            // SAFETY: the kind says that it is an `S`.
            return Some(unsafe { &*(candidate as *const S) });
        }
        candidate = head.sibling.load(Ordering::Acquire);
        if candidate == vacant {
            break;
        }
    }
    let slot = S::allocate(SlotHead::new(S::KIND, fd))?;
    if vacant != 0 {
        // SAFETY: as above.
        let head = unsafe { &*(vacant as *const SlotHead) };
        let next = match head.sibling.load(Ordering::Acquire) {
            0 => vacant,
            next => next,
        };
        slot.head().sibling.store(next, Ordering::Release);
        head.sibling.store(core::ptr::from_ref(slot).addr(), Ordering::Release);
    }
    Some(slot)
}

/// A use of a slot by a call that may sleep in it: the object lives on until the call is over, even if its number is closed
/// meanwhile, as the kernel holds a file for the length of a call.
#[derive(Debug)]
pub(crate) struct Using<S: Slot>(&'static S);

impl<S: Slot> Using<S> {
    /// Begins a use of the object `fd` stands for, if `slot` still is that.
    pub(crate) fn begin(fd: c_int, slot: &'static S) -> Option<Self> {
        let users = &slot.head().users;
        // 0 is free: not an object any more.
        let join = |users: u32| (users != 0).then(|| users + 1);
        users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).ok()?;
        step!(use_counted);
        let using = Self(slot);
        stands_for(fd, slot).then_some(using)
    }
}

impl<S: Slot> core::ops::Deref for Using<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.0
    }
}

impl<S: Slot> Drop for Using<S> {
    fn drop(&mut self) {
        end_use(self.0);
    }
}

/// Ends a use, the descriptor's or a call's; the last one ends the object.
pub(crate) fn end_use<S: Slot>(slot: &'static S) {
    let users = &slot.head().users;
    loop {
        let now = users.load(Ordering::SeqCst);
        if now == 1 {
            // While the count is still 1, so that nobody takes the slot into use before it is done.
            let _section = crate::section::Section::enter();
            slot.finalize();
            step!(object_ended);
        }
        step!(use_before_end);
        if users.compare_exchange(now, now.saturating_sub(1), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            step!(use_ended);
            return;
        }
    }
}

/// Ends the descriptor's use of an object whose number is about to be closed, and which this call has made vacant.
pub(crate) fn end<S: Slot>(slot: &'static S) {
    step!(entry_vacated);
    if !wakeset::mutated!("close_beside_mover") {
        slot.head().wait_for_mover();
    }
    slot.lose_number();
    step!(number_lost);
    end_use(slot);
}
