//! The descriptor table: which numbers stand for objects that live in user space. One word each,
//! read without a lock.
//!
//! | entry | means | next |
//! |---|---|---|
//! | 0 | a kernel descriptor, or none | `COUNTER`, `SET`, `TIMER`, `PIPE`, `DOORBELL` when an object is made under this number |
//! | slot, `COUNTER` / `SET` / `TIMER` / `PIPE` | an in-process object, or one end of one | `VACANT` when it is closed or moves into the kernel |
//! | slot, `VACANT` | as 0, with memory for the next object of this number | `COUNTER`, `SET`, `TIMER`, `PIPE`, `DOORBELL` |
//! | slot, `AWAY` | an object that has migrated for forked children, and may come home; the slot is free | `COUNTER`, `SET`, `TIMER`, `PIPE` when it comes home; `VACANT` when it stays in the kernel, or is closed |
//! | 0, `INHERITED` | in a forked child: an object that may live on in its parent | `SHARED` when the child reads or writes it, which has it migrate; 0 when the child does anything else with it, or closes it |
//! | 0, `SHARED` | in a forked child: an object that may come home in its parent | 0 when the child does anything but read or write it |
//! | 0 or slot, `ALIAS` | a further number of an in-process object, after dup(2), or one that is being closed; the slot, if any, is the number's own | `VACANT` or 0 when it is closed or the object migrates |
//! | 0 or slot, `DOORBELL` | a hidden number: a doorbell of ours, say, which the program does not know | `CLAIMED` when it is closed, its set is gone, or the program needs the number |
//! | 0 or slot, `SPARE_DOORBELL` | a doorbell that no set uses | `DOORBELL` when a set needs one; `CLAIMED` as above |
//! | 0 or slot, `CLAIMED` | a hidden number that one thread closes or gives away: [`hidden::claims`] | 0 or `VACANT`; `SPARE_DOORBELL`; `LEFT` |
//! | 0 or slot, `LEFT` | a hidden number that is closed when a fork is over | `CLAIMED` |
//!
//! **Reclamation.** A thread may read an entry, stop, and go on after another closed the
//! descriptor. So slots are type-stable and each is used again only under *the same number*: what
//! the late thread then touches is the object its number stands for now, which is what a kernel
//! that got the call at that moment would have touched. A further number, which dup(2) makes, leads
//! to another number's slot; calls that come by one count themselves in first (`duplicates`).

#[cfg(test)]
pub(crate) mod alone;
pub(crate) mod away;
pub(crate) mod closing;
mod doorbells;
pub(crate) mod duplicates;
pub(crate) mod engine;
pub(crate) mod gate;
pub(crate) mod hidden;
pub(crate) mod inherited;
pub(crate) mod kept;
pub mod late;
pub(crate) mod left;
pub(crate) mod lifecycle;
pub(crate) mod low_numbers;
pub(crate) mod migrating;
pub(crate) mod object;
pub(crate) mod process;
pub(crate) mod slot;
mod words;

use crate::sys::reserved::{NUMBERS, Reserved};
use crate::sys::steps::step;
use crate::sys::vforked::{self, Wish};
pub(crate) use crate::table::doorbells::{put_doorbell, spare_doorbell, take_spare_doorbell};
pub(crate) use crate::table::duplicates::{
    Held, get_held, get_held_for_bytes, get_held_for_poll, get_held_of,
};
use crate::table::hidden::claims::{CLAIMED, DOORBELL, LEFT, SPARE_DOORBELL, TAG, VACANT};
pub(crate) use crate::table::slot::{Slot, SlotHead, Using};
pub(crate) use crate::table::words::{is_kernels, is_vacant_word, plain_object, words};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use wakeset::mutated;

/// Numbers for which it has no room are left to the kernel.
static TABLE: Reserved<AtomicUsize, NUMBERS> = Reserved::new();
/// One above the highest number that ever stood for something of ours.
static END: AtomicI32 = AtomicI32::new(0);

/// Stands for the closes under way, where a test follows who waits for whom.
#[cfg(wakeset_steps)]
pub(crate) static CLOSES: u8 = 0;

pub(crate) const COUNTER: usize = 1;
pub(crate) const SET: usize = 2;
pub(crate) const TIMER: usize = 6;
pub(crate) const PIPE: usize = 7;
const ALIAS: usize = 8;
/// The kind of a slot that is in no entry: a set in which a thread sleeps that is in poll(2).
pub(crate) const POLLER: usize = 9;
/// Above [`ALIAS`], for which no fast path looks either; so are those below.
const INHERITED: usize = 10;
const AWAY: usize = 11;
const SHARED: usize = 12;

/// What a number stands for.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    /// The kernel's, or closed.
    Kernel,
    /// An object of the program's that lives here: a set, a source, or an end of a pair.
    Object(&'static SlotHead),
    /// A doorbell: for the program this number is closed.
    Doorbell,
}

impl Entry {
    /// The object, if it is one and of this kind.
    #[inline(always)]
    pub(crate) fn downcast<S: Slot>(self) -> Option<&'static S> {
        match self {
            Self::Object(head) => head.downcast(),
            Self::Kernel | Self::Doorbell => None,
        }
    }

    /// Whether it is an object of the program's that lives here.
    pub(crate) fn is_object(self) -> bool {
        matches!(self, Self::Object(_))
    }
}

/// The entry of a number; `None` if nothing of ours has ever stood near it.
#[inline(always)]
fn word_of(fd: c_int) -> Option<&'static AtomicUsize> {
    // A negative number becomes a huge one.
    TABLE.get(fd as u32 as usize)
}

/// The entry of a number, if there is one that can say something.
fn noted(fd: c_int) -> Option<&'static AtomicUsize> {
    TABLE.writable(fd as u32 as usize)
}

/// Whether it is a vfork(2) child that has looked an object up: what it names migrates, and is the
/// kernel's to the child, whose number may even be another file's.
#[inline(always)]
fn is_for_child(fd: c_int) -> bool {
    vforked::ask(Wish::Number(fd))
}

#[inline(always)]
fn load(fd: c_int) -> usize {
    word_of(fd).map_or(0, |place| place.load(Ordering::Acquire))
}

/// Looks a number up. What a vfork(2) or forked child looks up migrates.
#[inline(always)]
pub(crate) fn get(fd: c_int) -> Entry {
    match load(fd) {
        word if word & TAG < ALIAS => for_caller(fd, entry_of(word)),
        word => get_marked(fd, word),
    }
}

/// [`get`] of a number whose entry leads to no slot of its own.
#[cold]
fn get_marked(fd: c_int, word: usize) -> Entry {
    match word & TAG {
        ALIAS => match duplicates::entry(fd) {
            Some(entry) => for_caller(fd, entry),
            None => get(fd),
        },
        INHERITED | SHARED => inherited::give(fd),
        AWAY => away::look_up(fd),
        CLAIMED => {
            hidden::wait(fd);
            get(fd)
        }
        LEFT => Entry::Doorbell,
        _ => Entry::Kernel,
    }
}

/// What a number stands for that is read or written.
pub(crate) enum Bytes {
    Entry(Entry),
    /// An object that may come home.
    Away,
}

/// [`get`] for a read or a write, which shows nobody the object.
#[inline(always)]
pub(crate) fn get_for_bytes(fd: c_int) -> Bytes {
    match load(fd) {
        word if word & TAG < ALIAS => Bytes::Entry(for_caller(fd, entry_of(word))),
        word if word & TAG == ALIAS => Bytes::Entry(get(fd)),
        word => get_marked_for_bytes(fd, word),
    }
}

/// [`get`] for a poll, as [`get_held_for_poll`].
#[inline]
pub(crate) fn get_for_poll(fd: c_int) -> Bytes {
    match load(fd) {
        word if word & TAG == AWAY => Bytes::Away,
        word if word & TAG < ALIAS => Bytes::Entry(for_caller(fd, entry_of(word))),
        word => Bytes::Entry(get_marked(fd, word)),
    }
}

#[cold]
fn get_marked_for_bytes(fd: c_int, word: usize) -> Bytes {
    match word & TAG {
        AWAY => Bytes::Away,
        INHERITED => Bytes::Entry(inherited::ask(fd)),
        CLAIMED => {
            hidden::wait(fd);
            get_for_bytes(fd)
        }
        LEFT => Bytes::Entry(Entry::Doorbell),
        _ => Bytes::Entry(Entry::Kernel),
    }
}

/// What an entry is to the calling process, which may be a vfork(2) child.
#[inline(always)]
fn for_caller(fd: c_int, entry: Entry) -> Entry {
    match entry {
        Entry::Object(_) if is_for_child(fd) => Entry::Kernel,
        entry => entry,
    }
}

/// Looks a number up without using it.
#[inline(always)]
pub(crate) fn peek(fd: c_int) -> Entry {
    match load(fd) {
        word if word & TAG < ALIAS => entry_of(word),
        word => peek_marked(fd, word),
    }
}

/// [`peek`] of a number whose entry leads to no slot of its own.
#[cold]
fn peek_marked(fd: c_int, word: usize) -> Entry {
    match word & TAG {
        ALIAS => duplicates::entry(fd).unwrap_or_else(|| peek(fd)),
        CLAIMED => {
            hidden::wait(fd);
            peek(fd)
        }
        LEFT => Entry::Doorbell,
        _ => Entry::Kernel,
    }
}

/// What a word stands for with a tag below [`ALIAS`].
#[inline(always)]
fn entry_of(word: usize) -> Entry {
    match word & TAG {
        COUNTER | SET | TIMER | PIPE => {
            // SAFETY: entries with these tags lead to slots, which begin with a head and are never
            // freed.
            Entry::Object(unsafe { &*((word & !TAG) as *const SlotHead) })
        }
        DOORBELL | SPARE_DOORBELL => Entry::Doorbell,
        _ => Entry::Kernel,
    }
}

/// Whether a number is a further one of an object.
#[inline(always)]
fn is_alias(fd: c_int) -> bool {
    word_of(fd).is_some_and(|place| place.load(Ordering::SeqCst) & TAG == ALIAS)
}

/// The object of this kind that a number stands for, and nothing else.
#[inline(always)]
pub(crate) fn find<S: Slot>(fd: c_int) -> Option<&'static S> {
    let word = TABLE.get(fd as u32 as usize)?.load(Ordering::Acquire);
    if word & TAG >= ALIAS {
        return get(fd).downcast();
    }
    // SAFETY: entries with this tag lead to slots of this kind, which are never freed.
    (word & TAG == S::KIND && !is_for_child(fd))
        .then(|| unsafe { &*((word - S::KIND) as *const S) })
}

/// [`find`] of a number whose own slot has the object, in a process that no vfork(2) child asks
/// anything of. `None` for anything else.
#[inline(always)]
pub(crate) fn find_plain<S: Slot>(fd: c_int) -> Option<&'static S> {
    let word = TABLE.get(fd as u32 as usize)?.load(Ordering::Acquire);
    // SAFETY: as in `find`.
    (word & TAG == S::KIND && !vforked::may_exist())
        .then(|| unsafe { &*((word - S::KIND) as *const S) })
}

/// [`find`] for a wait, which shows nobody the set. `Err`: it may come home.
#[inline(always)]
pub(crate) fn find_for_wait<S: Slot>(fd: c_int) -> Result<Option<&'static S>, ()> {
    let Some(place) = TABLE.get(fd as u32 as usize) else { return Ok(None) };
    match place.load(Ordering::Acquire) & TAG {
        AWAY if away::kind(fd) == Some(S::KIND) => Err(()),
        _ => Ok(find(fd)),
    }
}

/// [`find`] for the fast path of read and write, which touches nothing in the object but a word
/// that knows its generation: a late reader is told by that.
#[inline(always)]
pub(crate) fn find_relaxed<S: Slot>(fd: c_int) -> Option<&'static S> {
    // Relaxed: the slot's address is a dependency.
    let word = TABLE.get(fd as u32 as usize)?.load(Ordering::Relaxed);
    // SAFETY: as in `find`.
    (word & TAG == S::KIND && !is_for_child(fd))
        .then(|| unsafe { &*((word - S::KIND) as *const S) })
}

/// Whether a number may stand for something that lives here, or comes home: an object, also one
/// that is away, or what a forked child has inherited. By one look, because an object that comes
/// home in between two is found by neither.
pub(crate) fn may_be_here(fd: c_int) -> bool {
    if mutated!("new_program_looks_twice") {
        let is_object = peek(fd).is_object() || inherited::is(fd);
        if !is_object {
            crate::sys::sched_yield();
        }
        return is_object || away::is(fd);
    }
    !is_kernels(load(fd))
}

/// Whether the number is the kernel's, or closed.
#[inline(always)]
pub(crate) fn is_vacant(fd: c_int) -> bool {
    is_vacant_word(load(fd))
}

/// The highest number of the standard streams, which libc reads and writes without calling anything
/// that could be replaced.
const LAST_STREAM: c_int = 2;

/// Whether the table has room for the number. From then on it has.
pub(crate) fn has_room(fd: c_int) -> bool {
    TABLE.place(fd as u32 as usize).is_some()
}

/// Whether what can be read or written may live here under this number.
pub(crate) fn has_room_for_bytes(fd: c_int) -> bool {
    fd > LAST_STREAM && has_room(fd)
}

fn put(fd: c_int, word: usize) {
    if has_room(fd) {
        put_in_room(fd, word);
    }
}

/// [`put`] where there is [room](has_room).
fn put_in_room(fd: c_int, word: usize) {
    if let Some(place) = word_of(fd) {
        step!(entry_before_put);
        low_numbers::note(fd);
        // It does not fall while there are other threads.
        if END.load(Ordering::SeqCst) <= fd {
            END.fetch_max(fd + 1, Ordering::SeqCst);
        }
        // SeqCst, pairing with the gate that `migrate::all` closes before it looks at the table.
        place.store(word, Ordering::SeqCst);
    }
}

/// Makes a number stand for an object, where the table [has room](has_room) for it.
pub(crate) fn put_object<S: Slot>(fd: c_int, object: &'static S) {
    put_in_room(fd, core::ptr::from_ref(object).addr() | S::KIND);
}

/// Makes a number an alias, whatever it stood for. The caller holds the migrations lock, and has
/// said where it leads.
fn put_alias(fd: c_int) {
    let slots = word_of(fd).map_or(0, |place| place.load(Ordering::SeqCst)) & !TAG;
    put_in_room(fd, slots | ALIAS);
}

/// Makes the entry of an object with a tag of its own an alias, for [`closing`]; whether it was one
/// with such a tag. The caller has said where the number leads.
fn begin_alias(fd: c_int, head: &SlotHead) -> bool {
    exchange(fd, head.address() | head.kind(), head.address() | ALIAS)
}

/// Undoes [`begin_alias`], if the entry is not vacant by now.
fn end_alias(fd: c_int, head: &SlotHead) {
    exchange(fd, head.address() | ALIAS, head.address() | head.kind());
}

fn exchange(fd: c_int, old: usize, new: usize) -> bool {
    word_of(fd).is_some_and(|entry| {
        entry.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    })
}

/// Changes the tag of an entry from one of `from`; whether it had one. The slot of an entry stays.
fn retag(fd: c_int, from: &[usize], to: usize) -> Option<usize> {
    let place = word_of(fd)?;
    let change = |word: usize| {
        from.contains(&(word & TAG)).then_some(if word & !TAG == 0 && to == VACANT {
            0
        } else {
            word & !TAG | to
        })
    };
    place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).ok().map(|before| before & TAG)
}

/// Makes the entry of an object vacant; whether it was this call that did. For an alias the caller
/// holds the migrations lock.
pub(crate) fn vacate(fd: c_int, head: &SlotHead) -> bool {
    if is_alias(fd) {
        return duplicates::leads_to(fd, head) && retag(fd, &[ALIAS], VACANT).is_some();
    }
    exchange(fd, head.address() | head.kind(), head.address() | VACANT)
}

/// Whether a number stands for the object in this slot.
pub(crate) fn stands_for(fd: c_int, head: &SlotHead) -> bool {
    let Some(place) = word_of(fd) else { return false };
    match place.load(Ordering::SeqCst) {
        word if word & TAG == ALIAS => duplicates::leads_to(fd, head),
        word => word == head.address() | head.kind(),
    }
}

/// The vacant slot of a number: its address, 0 for none.
pub(crate) fn vacant_slot(fd: c_int) -> usize {
    loop {
        let word = word_of(fd).map_or(0, |place| place.load(Ordering::SeqCst));
        match word & TAG {
            VACANT | AWAY => return word & !TAG,
            // The kernel has given the number out before the table has forgotten what it was.
            CLAIMED => hidden::wait(fd),
            _ => return 0,
        }
    }
}

/// Calls `f` with each slot that has ever been used for an object of this number.
pub(crate) fn each_slot(fd: c_int, mut f: impl FnMut(&'static SlotHead)) {
    let first = word_of(fd).map_or(0, |place| place.load(Ordering::SeqCst)) & !TAG;
    let mut slot = first;
    while slot != 0 {
        // SAFETY: entries and siblings lead to slots, which begin with a head and are never freed.
        let head: &'static SlotHead = unsafe { &*(slot as *const SlotHead) };
        f(head);
        slot = head.sibling();
        if slot == first {
            return;
        }
    }
}

/// Whether a slot at `address` has ever been used for an object of this number, or is that which it
/// last led to as a further one.
pub(crate) fn has_slot(fd: c_int, address: usize) -> bool {
    let mut found = false;
    each_slot(fd, |slot| found |= slot.address() == address);
    found || duplicates::has_led_to(fd, address)
}

/// The numbers that may stand for something of ours.
#[inline]
pub(crate) fn numbers() -> core::ops::Range<c_int> {
    0..END.load(Ordering::SeqCst)
}

/// Forgets everything, slots and all: a forked child begins anew. Where it `inherits`, it keeps in
/// mind which numbers stood for objects.
pub(crate) fn forget_all(inherits: bool) {
    away::begin_anew();
    for fd in numbers() {
        let stays = inherits && (peek(fd).is_object() || away::is(fd));
        away::forget_parents(fd);
        // A page that is not written to is not copied.
        if let Some(place) = word_of(fd).filter(|place| place.load(Ordering::SeqCst) != 0) {
            place.store(if stays { INHERITED } else { 0 }, Ordering::SeqCst);
        }
        duplicates::forget(fd);
    }
    if !inherits {
        END.store(0, Ordering::SeqCst);
    }
    doorbells::begin_anew();
}
