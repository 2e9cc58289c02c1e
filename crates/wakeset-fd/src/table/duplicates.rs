//! Descriptions with several numbers: what dup(2) makes of an in-process object.
//!
//! The slot stays where it is, under the number that the object was made with, which is its *home*.
//! Each further number has an entry with the tag `ALIAS`, which keeps the vacant slots of that
//! number; where it leads is in an array of its own, by number. The fast paths of read and write
//! look for the tag of a kind and do not take an alias for one, so they cost what they did.
//!
//! **Reclamation.** A slot is used again only under its home number, so a thread that came by an
//! alias, and comes late, could meet another number's object. It therefore counts itself as a user
//! of the slot before it touches the object, and looks again whether the number still leads there
//! ([`Held`], [`Using`](super::Using)): what fget() does in Linux.
//!
//! **The kernel object.** From the first duplicate on the handle of the kernel object is a hidden
//! number, so that no close of one of the program's numbers takes it from a thread that came by
//! another. It is closed when the object ends, or has migrated and nobody uses it any more.
//!
//! **Numbers.** They are linked by number, beginning at the handle, and count as one user each. The
//! migrations lock guards every addition to a list, every change of an alias, and who walks a list.
//! Another lock, under which no thread waits, guards what is taken out, and who finds that nothing
//! is left. The close of a number is one of two:
//!
//! | the closing thread | the duplicating thread |
//! |---|---|
//! | finds one number: vacates the entry without a lock | marks the object as migrating |
//! | waits while the object is marked | looks whether the number still stands for it |
//! | looks whether it has several numbers by now | publishes that it has, and unmarks it |
//!
//! so either the duplicating thread sees that it came too late, or the closing one sees that the
//! object goes on. Where the object has several numbers, its close takes the migrations lock. The
//! closing thread that found one must not: a migration waits, with that lock, for the closes under
//! way, whose watches it still finds in a set.

use crate::sys::reserved::{NUMBERS, Reserved};
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::table::closing;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::slot::{end_use, end_use_guarded};
use crate::table::{self, Bytes, Entry, Slot, SlotHead, away, gate, hidden};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wakeset::{ScanGuard, ScanLock, mutated};

/// By number: the slot that an alias or a handle leads to. It stays when the number is closed, for
/// [`has_led_to`].
static TARGETS: Reserved<AtomicUsize, NUMBERS> = Reserved::new();
/// By number: the next number of the same description, plus one; 0 after the last. That of a handle
/// is the first.
static NEXT: Reserved<AtomicUsize, NUMBERS> = Reserved::new();
/// Whether there has been any handle.
static MADE: AtomicBool = AtomicBool::new(false);
/// Guards what is taken out of the lists, and the end of a handle. Taken after the migrations lock,
/// or without it; no thread waits for another within it.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static LINKS: ScanLock<()> = ScanLock::new(());

fn hold_links() -> ScanGuard<'static, ()> {
    LINKS.lock()
}

fn target(fd: c_int) -> usize {
    TARGETS.get(fd as u32 as usize).map_or(0, |target| target.load(Ordering::SeqCst))
}

fn next_of(fd: c_int) -> Option<c_int> {
    let next = NEXT.get(fd as u32 as usize)?.load(Ordering::SeqCst);
    (next != 0).then(|| next as c_int - 1)
}

/// Where there is [room](has_room).
fn set_next(fd: c_int, next: Option<c_int>) {
    if let Some(entry) = NEXT.place(fd as u32 as usize) {
        entry.store(next.map_or(0, |next| next as usize + 1), Ordering::SeqCst);
    }
}

/// Says that a number leads to this slot, or to none. Returns where it led before; `None`: there is
/// no room.
pub(super) fn lead_to(fd: c_int, address: usize) -> Option<usize> {
    lifecycle::sign_up(&DUPLICATES);
    TARGETS.place(fd as u32 as usize).map(|target| target.swap(address, Ordering::SeqCst))
}

/// Whether the arrays have room for a number. From then on they have.
fn has_room(fd: c_int) -> bool {
    let index = fd as u32 as usize;
    TARGETS.place(index).is_some() && NEXT.place(index).is_some() && table::has_room(fd)
}

/// What an alias stands for, when it is not being closed. `None`: the number is no alias any more.
#[cold]
pub(super) fn entry(fd: c_int) -> Option<Entry> {
    loop {
        // First: an entry that is loaded when the close is over is vacant.
        closing::wait(fd);
        let word = table::load(fd);
        if word & table::TAG != table::ALIAS {
            return None;
        }
        let found = target_of(fd);
        // Where the number leads is forgotten after the close.
        if table::load(fd) == word {
            return Some(found);
        }
    }
}

/// What a number last led to, as an alias or a handle.
fn target_of(fd: c_int) -> Entry {
    match target(fd) {
        0 => Entry::Kernel,
        // SAFETY: `put` stores the address of a slot, which is never freed.
        address => Entry::Object(unsafe { SlotHead::at(address) }),
    }
}

/// Whether a number that is an alias leads to this slot.
#[cold]
pub(super) fn leads_to(fd: c_int, head: &SlotHead) -> bool {
    target(fd) == head.address()
}

/// Whether the slot at `address` is that which a number last led to as an alias.
pub(super) fn has_led_to(fd: c_int, address: usize) -> bool {
    address != 0 && target(fd) == address
}

/// The numbers of a description that has several, or had. The caller holds the migrations lock, so
/// that none is added; one that is taken out meanwhile leads to those that were behind it.
fn numbers(head: &SlotHead) -> impl Iterator<Item = c_int> + use<> {
    core::iter::successors(next_of(head.fd()), |number| next_of(*number))
}

/// A number by which the program knows an object; -1 if there is none. The caller holds the
/// migrations lock.
pub(crate) fn number_of(head: &SlotHead) -> c_int {
    match head.has_several() {
        // One that is just being closed is still linked.
        true => names(head).next().unwrap_or(-1),
        false => head.fd(),
    }
}

/// All numbers by which the program knows an object. The caller holds the migrations lock.
pub(crate) fn names(head: &SlotHead) -> impl Iterator<Item = c_int> {
    let several = head.has_several();
    let one = (!several).then(|| head.fd());
    let all = several.then(|| numbers(head)).into_iter().flatten().chain(one);
    all.filter(|number| table::stands_for(*number, head))
}

/// Whether any number stands for the object. The caller holds the migrations lock.
pub(super) fn is_named(head: &SlotHead) -> bool {
    names(head).next().is_some()
}

/// Prepares an object for a further number: gives it a handle if it has none. `None`: there is no
/// number left for one. The caller holds the migrations lock, has marked the object as migrating
/// and seen that it has a number.
pub(crate) fn prepare(head: &SlotHead) -> Option<()> {
    if head.has_several() {
        return Some(());
    }
    lifecycle::sign_up(&DUPLICATES);
    let home = head.fd();
    let handle = hidden::hidden_duplicate(home)?;
    // That of one whose handle was closed by a call that was not seen begins its list.
    if !has_room(handle) || !has_room(home) || of_handle(handle).is_some() {
        hidden::close(handle);
        return None;
    }
    MADE.store(true, Ordering::SeqCst);
    set_next(home, None);
    set_next(handle, Some(home));
    if let Some(entry) = TARGETS.place(handle as u32 as usize) {
        entry.store(head.address(), Ordering::SeqCst);
    }
    head.become_several(handle);
    Some(())
}

/// Makes a number stand for an object that has been [prepared](prepare), in one step where it stood
/// for another, which the caller then lets [go on](leave_one) without it, or gives it back by
/// another `put`; until then no other close of that one's numbers finds that it was the last.
/// `false`: there is no room for it. The caller holds the migrations lock.
pub(crate) fn put(fd: c_int, head: &'static SlotHead) -> bool {
    if !has_room(fd) {
        return false;
    }
    let links = hold_links();
    if let Entry::Object(other) = table::peek(fd)
        && other.has_several()
    {
        other.links.set_replaced(true);
        unlink(other, fd);
    }
    head.links.set_replaced(false);
    head.count_number();
    let handle = head.fd();
    set_next(fd, next_of(handle));
    set_next(handle, Some(fd));
    if let Some(entry) = TARGETS.place(fd as u32 as usize) {
        entry.store(head.address(), Ordering::SeqCst);
    }
    drop(links);
    table::put_alias(fd);
    true
}

/// Takes a number out of an object's list, if it is in there. The caller holds [`LINKS`].
fn unlink(head: &SlotHead, fd: c_int) {
    let mut before = head.fd();
    while let Some(number) = next_of(before) {
        if number == fd {
            return set_next(before, next_of(number));
        }
        before = number;
    }
}

/// What became of an object when it lost one of several numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It goes on under another number.
    GoesOn,
    /// It was the last one: the caller ends the object.
    Last,
    /// The number stands for something else by now.
    Stale,
}

/// Takes one of several numbers away from an object. `close` closes it, if it is not the last one:
/// before the table forgets it, because a call that then found nothing there would use the kernel
/// object. The kernel may give the number out at once, but whoever gets it waits for this
/// ([`closing`]). Where it returns `false` the object keeps the number. The caller holds the
/// migrations lock and has a signal guard.
pub(crate) fn lose_held(fd: c_int, head: &'static SlotHead, close: impl FnOnce() -> bool) -> Loss {
    if !table::stands_for(fd, head) {
        return Loss::Stale;
    }
    let mut forgotten = false;
    if numbers(head).any(|number| number != fd) {
        if mutated!("number_forgotten_before_its_close") {
            forgotten = table::vacate(fd, head);
        }
        let is_closed = closing::while_closing(fd, head, || {
            let is_closed = close();
            step!(one_number_closed);
            forgotten |= is_closed && table::vacate(fd, head);
            is_closed
        });
        if !is_closed {
            return Loss::GoesOn;
        }
    } else {
        forgotten = table::vacate(fd, head);
    }
    // It may be lost to a closing thread that found one number, and waits for us.
    if forgotten { leave_one(fd, head) } else { Loss::Stale }
}

/// As [`lose_held`], where another object has just got the number.
pub(crate) fn leave_one(fd: c_int, head: &'static SlotHead) -> Loss {
    let links = hold_links();
    head.links.set_replaced(false);
    unlink(head, fd);
    let is_last = next_of(head.fd()).is_none();
    drop(links);
    if is_last {
        return Loss::Last;
    }
    end_use_guarded(head.object());
    Loss::GoesOn
}

/// For a close that has found one number and vacated it, of an object that has been given several
/// meanwhile: whether it was the last one all the same, which ends the object. Not under the
/// migrations lock: if the other numbers are closed before this one, or the dup(2) fails, no number
/// stands for the object, but sets still have its watches. A migration of such a set cannot take
/// the object along, and waits for this close, with that lock.
#[cold]
pub(super) fn was_last(head: &SlotHead, fd: c_int) -> bool {
    let _links = hold_links();
    unlink(head, fd);
    next_of(head.fd()).is_none() && !head.has_left_table() && !head.links.replaced()
}

/// The object has migrated: its numbers are the kernel's. Returns how many of them stood for it.
/// The caller holds the migrations lock.
pub(crate) fn leave_all(head: &'static SlotHead) -> usize {
    let links = hold_links();
    let mut next = next_of(head.fd());
    set_next(head.fd(), None);
    // Before a close can find that none is left.
    head.note_left();
    drop(links);
    let mut left = 0;
    while let Some(number) = next {
        next = next_of(number);
        left += usize::from(table::vacate(number, head));
    }
    left
}

/// Nobody uses the object any more: closes its handle. The caller has a signal guard.
#[cold]
pub(super) fn release(head: &SlotHead) {
    // Not beside a thread that gives the handle's number to the program.
    let links = hold_links();
    let handle = head.stop_being_several();
    if handle < 0 {
        return;
    }
    TARGETS.clear(handle as u32 as usize);
    let claim = hidden::claim(handle);
    drop(links);
    // It takes the kernel long where a set watches much.
    if let Some(claim) = claim {
        claim.close();
    }
}

/// A use of an object by a call that came by an alias; of one that was found under its home number,
/// which needs none, it holds nothing.
#[must_use]
pub(crate) struct Held(Option<&'static SlotHead>);

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if let Some(head) = self.0 {
            end_use(head.object());
        }
    }
}

/// Looks a number up, for a call that is about to use the object. Where it is an alias, the object
/// stays what it is until the second value goes.
#[inline]
pub(crate) fn get_held(fd: c_int) -> (Entry, Held) {
    get_held_by(fd, table::load(fd))
}

/// [`get_held`] for a call that shows nobody an object of this kind. `Err`: it may come home.
#[inline]
pub(crate) fn get_held_of<S: Slot>(fd: c_int) -> Result<(Entry, Held), ()> {
    match table::load(fd) {
        word if word & table::TAG == table::AWAY && away::kind(fd) == Some(S::KIND) => Err(()),
        word if word & table::TAG == table::ALIAS => {
            get_alias(fd).map_or_else(|| get_held_of::<S>(fd), Ok)
        }
        word => Ok(get_held_by(fd, word)),
    }
}

#[inline(always)]
fn get_held_by(fd: c_int, word: usize) -> (Entry, Held) {
    match word {
        word if word & table::TAG < table::ALIAS => {
            (table::for_caller(fd, table::entry_of(word)), Held(None))
        }
        word if word & table::TAG == table::ALIAS => get_alias(fd).unwrap_or_else(|| get_held(fd)),
        word => (table::get_marked(fd, word), Held(None)),
    }
}

/// [`get_held`] for a read or a write, which shows nobody the object.
#[inline]
pub(crate) fn get_held_for_bytes(fd: c_int) -> (Bytes, Held) {
    match table::load(fd) {
        word if word & table::TAG < table::ALIAS => {
            (Bytes::Entry(table::for_caller(fd, table::entry_of(word))), Held(None))
        }
        word if word & table::TAG == table::ALIAS => match get_alias(fd) {
            Some((entry, held)) => (Bytes::Entry(entry), held),
            None => get_held_for_bytes(fd),
        },
        word => (table::get_marked_for_bytes(fd, word), Held(None)),
    }
}

/// [`get_held`] for a poll, which shows nobody the object either. A poll by a forked child counts
/// as a look-up by which the object may be passed on.
#[inline]
pub(crate) fn get_held_for_poll(fd: c_int) -> (Bytes, Held) {
    match table::load(fd) {
        word if word & table::TAG == table::AWAY => (Bytes::Away, Held(None)),
        word if word & table::TAG == table::ALIAS => match get_alias(fd) {
            Some((entry, held)) => (Bytes::Entry(entry), held),
            None => get_held_for_poll(fd),
        },
        word => {
            let (entry, held) = get_held_by(fd, word);
            (Bytes::Entry(entry), held)
        }
    }
}

/// What a number stands for as an alias. `None`: it is none any more, and is to be looked up again:
/// the object that has it by now may come home, or be a parent's.
#[cold]
pub(super) fn get_alias(fd: c_int) -> Option<(Entry, Held)> {
    for _ in 0..LOOKS {
        let found = table::for_caller(fd, entry(fd)?);
        let Entry::Object(head) = found else { return Some((found, Held(None))) };
        // Joined only while it has a user. One that has ended has lost its numbers before.
        if head.join() {
            let held = Held(Some(head));
            step!(use_counted);
            if table::stands_for(fd, head) {
                return Some((Entry::Object(head), held));
            }
        }
    }
    Some((Entry::Kernel, Held(None)))
}

/// How often an alias is looked up that leads to what has ended, and has lost its numbers before.
const LOOKS: u32 = 1000;

/// Makes a number the kernel's that leads to an object which has migrated or ended, although no
/// migration and no close is under way: it was not in the list of the object's numbers.
#[cold]
pub(crate) fn leave_lost(fd: c_int, head: &'static SlotHead, is_sealed: impl Fn() -> bool) {
    let _guard = SignalGuard::enter();
    let Some(_migrating) = gate::try_hold_migrations() else { return };
    if is_sealed() && table::vacate(fd, head) {
        end_use_guarded(head.object());
    }
}

static DUPLICATES: Participant = Participant {
    rank: Rank::Duplicates,
    // The table is forgotten, with what is here.
    begin_anew: || {
        // SAFETY: the forked child has one thread. It comes from a fork that it called itself, not
        // within this lock, or from one by hand, which does not go on with anything it had begun.
        unsafe { LINKS.free_in_child() };
    },
    renumber: Some(renumber),
    before_close: None,
};

/// The object whose handle is hidden under a number.
pub(crate) fn of_handle(handle: c_int) -> Option<&'static SlotHead> {
    let Entry::Object(head) = target_of(handle) else { return None };
    let is_one = head.has_several() && head.fd() == handle && !head.links.borrows();
    is_one.then_some(head)
}

/// There is no number left for the handle of an object that has migrated, for which `number` of the
/// program's stood. Calls that are still in it go on by that one, and leave it open when they are
/// over. The caller holds the migrations lock.
pub(crate) fn give_up_handle(handle: c_int, number: c_int) {
    let _links = hold_links();
    let Some(head) = of_handle(handle) else { return };
    TARGETS.clear(handle as u32 as usize);
    head.links.set_borrows();
    head.set_handle(number);
}

fn renumber(old: c_int, new: c_int) {
    let _links = hold_links();
    // One for which there is no number has been given up.
    let Some(head) = of_handle(old).filter(|_| new >= 0) else { return };
    if !has_room(new) {
        return;
    }
    set_next(new, next_of(old));
    if let Some(entry) = TARGETS.place(new as u32 as usize) {
        entry.store(head.address(), Ordering::SeqCst);
    }
    head.set_handle(new);
    TARGETS.clear(old as u32 as usize);
}

/// The objects with handles.
pub(crate) fn with_handles() -> impl Iterator<Item = &'static SlotHead> {
    let all = if MADE.load(Ordering::SeqCst) { table::numbers() } else { 0..0 };
    all.filter_map(of_handle)
}

/// Whether there has been any handle.
pub(crate) fn were_made() -> bool {
    MADE.load(Ordering::SeqCst)
}

/// As if another object had its handle.
#[cfg(test)]
pub(crate) fn lose_list(head: &SlotHead) {
    set_next(head.fd(), None);
}

/// In a forked child, whose table is forgotten: the entry of one number.
pub(super) fn forget(fd: c_int) {
    for array in [&TARGETS, &NEXT] {
        array.clear(fd as u32 as usize);
    }
}
