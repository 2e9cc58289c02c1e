//! Objects that have migrated for forked children, and may come home once it is proved that nobody
//! else has them. `docs/design/home.md` has the proof.
//!
//! Such an object is the kernel's like any other that has migrated, and its slot is free. Its entry
//! in the table has the tag `AWAY`: a call that is answered by the kernel object alone, a read or a
//! write, is counted for its length ([`begin_call`]), and every other look-up is a *doubt*, after
//! which the object stays in the kernel. So is a look-up by a vfork(2) child.

mod known;
mod tries;
mod watched;
mod word;

use crate::sys::kind::is_epoll;
use crate::sys::process::is_foreign;
use crate::sys::reserved::{self, NUMBERS, Reserved};
use crate::sys::signal_guard::SignalGuard;
use crate::table::gate::wait_for_migrations;
use crate::table::object::Host;
use crate::table::{self, Entry, SlotHead, VACANT, late};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use wakeset::{DetachedWatch, mutated};
pub(crate) use watched::{Watched, lose as lose_watch, of as watched};
pub(crate) use word::{Begun, Word};

// SAFETY: zero says that the object is at home, and no call is counted.
unsafe impl reserved::Entry for Word {
    fn clear(&self) {
        self.forget_all();
    }
}

/// By number.
static WORDS: Reserved<Word, NUMBERS> = Reserved::new();
/// By number: the children that may have the object, a bit for each connection, and above them
/// whether it is a semaphore. Changed with the migrations lock held.
static HOLDERS: Reserved<AtomicU64, NUMBERS> = Reserved::new();
const SEMAPHORE: u64 = 1 << 32;
/// Whether any object has left.
static ANY: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The children for which objects migrate just now, and which may have them; 0 if it is not for
/// children, or not all of them are known. The migrations lock guards it.
static LENT_TO: AtomicU32 = AtomicU32::new(0);
/// How many such migrations have begun, and how many have ended: odd while one is under way.
static LENDINGS: AtomicU32 = AtomicU32::new(0);

/// Whether a number stands for an object that may come home, or is just coming.
#[inline]
pub(crate) fn is(fd: c_int) -> bool {
    ANY.load(Ordering::SeqCst) && has_tag(fd) && word(fd).is_some_and(Word::may_return)
}

fn has_tag(fd: c_int) -> bool {
    table::word_of(fd).is_some_and(|word| word.load(Ordering::SeqCst) & table::TAG == table::AWAY)
}

fn word(fd: c_int) -> Option<&'static Word> {
    WORDS.get(fd as u32 as usize)
}

fn holders(fd: c_int) -> Option<&'static AtomicU64> {
    HOLDERS.get(fd as u32 as usize)
}

/// The children that may have the object, a bit for each.
fn children(fd: c_int) -> u32 {
    holders(fd).map_or(0, |holders| holders.load(Ordering::SeqCst) as u32)
}

/// Runs a migration for forked children: what migrates in it may come home when none of these has
/// it any more, a bit for each. The caller holds the migrations lock.
pub(crate) fn lending(children: u32, migrate: impl FnOnce()) {
    LENDINGS.fetch_add(1, Ordering::SeqCst);
    LENT_TO.store(children, Ordering::Relaxed);
    migrate();
    LENT_TO.store(0, Ordering::Relaxed);
    LENDINGS.fetch_add(1, Ordering::SeqCst);
}

/// Whether an object, whose state `is_in_kernel` while the number still stands for it, does not
/// come home: no migration for children is under way, so it is another one that takes it there.
pub(crate) fn leaves_for_good(fd: c_int, head: &SlotHead, is_in_kernel: impl Fn() -> bool) -> bool {
    let before = LENDINGS.load(Ordering::SeqCst);
    before.is_multiple_of(2)
        && table::stands_for(fd, head)
        && is_in_kernel()
        && LENDINGS.load(Ordering::SeqCst) == before
}

/// Before the watches of an object that migrates leave: where they go is noted, if it may come
/// home.
pub(crate) fn begin(head: &SlotHead) {
    if LENT_TO.load(Ordering::Relaxed) != 0 {
        let _ = watched::begin(head.fd());
    }
}

/// A watch goes into the kernel half of a set, by a number of that one; -1 if it has several.
pub(crate) fn note_watch(fd: c_int, watch: &DetachedWatch, set: c_int) {
    if LENT_TO.load(Ordering::Relaxed) != 0 {
        watched::note(fd, watch, set);
    }
}

/// Takes note of the kernel object; whether it can be told from the next one of its number.
fn note(fd: c_int, kind: usize) -> bool {
    match kind {
        // The watch of a set tells as well.
        table::COUNTER | table::TIMER | table::PIPE => {
            watched(fd) != Watched::No || known::note(fd)
        }
        table::SET => is_epoll(fd),
        _ => false,
    }
}

/// Whether a number stands for the file, which no set watches, that it stood for when that left.
/// The caller holds the migrations lock.
pub(crate) fn is_known(fd: c_int) -> bool {
    known::is_same(fd) || mutated!("next_file_comes_home")
}

/// Whether such an object can come home.
fn can_return(head: &'static SlotHead) -> bool {
    match head.kind() {
        table::COUNTER | table::TIMER => watched(head.fd()) != Watched::Unclear,
        // Both ends, or neither.
        table::PIPE => head.object().companion().is_some_and(|other| {
            [head, other].iter().all(|end| watched(end.fd()) != Watched::Unclear)
        }),
        // Sets around it know its number.
        table::SET => {
            !head.links.watched() && head.object().as_host().is_some_and(Host::may_return)
        }
        _ => false,
    }
}

/// In place of [`table::vacate`], for an object that has migrated: whether the number stood for it,
/// and the object may come home. The caller holds the migrations lock.
pub(crate) fn leave(head: &'static SlotHead) -> bool {
    let (children, fd) = (LENT_TO.load(Ordering::Relaxed), head.fd());
    if children == 0 || head.is_lost() || late::is_noted(fd) || !can_return(head) {
        return false;
    }
    let (Some(word), Some(holders)) = (WORDS.place(fd as usize), HOLDERS.place(fd as usize)) else {
        return false;
    };
    if !tries::begin(fd) || !note(fd, head.kind()) {
        return false;
    }
    let semaphore = if head.object().is_semaphore() { SEMAPHORE } else { 0 };
    holders.store(u64::from(children) | semaphore, Ordering::SeqCst);
    ANY.store(true, Ordering::SeqCst);
    // First: who finds the tag is told by the word.
    word.leave();
    let left = table::exchange(fd, head.address() | head.kind(), head.address() | table::AWAY);
    if !left {
        word.forget();
    }
    left
}

/// For a look-up of such a number by whatever may reach the object in another way than a counted
/// call: it stays in the kernel. Where it has come home meanwhile, what the number stands for.
#[cold]
pub(super) fn look_up(fd: c_int) -> Entry {
    if doubt(fd) { Entry::Kernel } else { table::get(fd) }
}

/// The object, if it is still away, stays in the kernel. `false`: it has come home. The tag stays,
/// because by now it may be that of the number's next object.
#[cold]
pub(crate) fn doubt(fd: c_int) -> bool {
    loop {
        match try_doubt(fd) {
            Some(stays) => return stays,
            None => wait_for_migrations(),
        }
    }
}

/// [`doubt`] without waiting for what is on its way home, for which `None` stands.
#[cold]
pub(crate) fn try_doubt(fd: c_int) -> Option<bool> {
    if !has_tag(fd) {
        return Some(!table::peek(fd).is_object());
    }
    let is_news = word(fd).is_some_and(Word::may_return);
    // Nothing comes home beside a vfork(2) child.
    let stays = word(fd).is_none_or(Word::doubt) || is_foreign();
    if stays && is_news {
        // At worst the next object of the number is no longer known, and stays.
        known::forget(fd);
    }
    stays.then_some(true)
}

/// A number is about to be closed: what is away under it does not come home any more. Where it has,
/// that is for the caller to see.
#[inline]
pub(crate) fn close(fd: c_int) {
    if is(fd) && !is_foreign() {
        let _ = doubt(fd);
    }
}

/// The kernel has just given a number out: what was away under it has been closed.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if !ANY.load(Ordering::SeqCst) {
        return;
    }
    tries::forget(fd);
    if has_tag(fd) && !is_foreign() && doubt(fd) {
        // Nothing migrates under the number before this thread has made something there.
        let _ = table::retag(fd, &[table::AWAY], VACANT);
    }
}

/// Whether what has been found away is in the kernel for good, and has not come home meanwhile.
pub(crate) fn has_left(fd: c_int) -> bool {
    word(fd).is_none_or(Word::has_left)
}

/// Before a call on the kernel object of such a number.
pub(crate) fn begin_call(fd: c_int) -> Begun {
    match try_begin_call(fd) {
        Begun::Again => {
            wait_for_migrations();
            Begun::Again
        }
        begun => begun,
    }
}

/// [`begin_call`] without waiting for what is on its way home.
pub(crate) fn try_begin_call(fd: c_int) -> Begun {
    if is_foreign() {
        let _ = doubt(fd);
        return Begun::Left;
    }
    word(fd).map_or(Begun::Left, Word::begin_call)
}

/// After a counted one, which began after so many [`forks`].
pub(crate) fn end_call(fd: c_int, begun: u32) {
    // Until it is counted out no handler forks.
    let _guard = SignalGuard::enter();
    if forks() == begun || mutated!("parents_call_ends_in_child") {
        word(fd).inspect(|word| word.end_call());
    }
}

/// How many forks have made this process of one that had objects away. A handler may fork within a
/// call, and its child return from the handler: the call is one of the parent's, and was forgotten.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::SeqCst)
}

/// Whether the object of a number that has been found away is neither on its way home nor there.
pub(crate) fn is_in_kernel(fd: c_int) -> bool {
    word(fd).is_none_or(Word::is_in_kernel) || is_foreign()
}

/// Whether a call is to try to bring the object home. Counts the call.
pub(crate) fn is_due(fd: c_int) -> bool {
    may_return(fd) && tries::is_due(fd)
}

/// Whether nobody else has the object, and no call is in it.
pub(crate) fn may_return(fd: c_int) -> bool {
    (children(fd) == 0 || mutated!("comes_home_beside_a_child"))
        && word(fd).is_some_and(Word::is_idle)
}

/// What has become of a try to bring an object home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    Home,
    /// It is in the kernel as before, and may come later.
    Later,
    /// It is in the kernel as before, for good.
    Never,
}

impl From<bool> for Return {
    fn from(has_come: bool) -> Self {
        if has_come { Self::Home } else { Self::Later }
    }
}

/// Brings an object home that has these numbers, by `make`, which makes an object of the kernel's
/// under them, of a semaphore or not. Where that is in vain too often, by calls of the first
/// number, the object stays. The caller has a signal guard and holds the migrations lock; the gate
/// is open.
pub(crate) fn bring_home<const N: usize>(
    numbers: [c_int; N],
    make: impl FnOnce(bool) -> Return,
) -> bool {
    if !numbers.iter().all(|fd| has_tag(*fd) && may_return(*fd)) {
        return false;
    }
    let words = numbers.iter().filter_map(|fd| word(*fd));
    if !Word::begin_return_of(words.clone()) {
        return false;
    }
    let is_semaphore = numbers.iter().filter_map(|fd| holders(*fd)).any(is_semaphore);
    let is_late = numbers.iter().any(|fd| late::is_noted(*fd));
    let came = if is_late { Return::Later } else { make(is_semaphore) };
    words.clone().for_each(|word| word.end_return(came == Return::Home));
    let stays = match came {
        Return::Home => false,
        Return::Later => numbers.first().is_none_or(|fd| tries::note(*fd)),
        Return::Never => true,
    };
    if stays {
        words.for_each(|word| _ = word.doubt());
    }
    for fd in numbers {
        if came == Return::Home {
            tries::end(fd);
        }
        if came == Return::Home || stays {
            known::forget(fd);
        }
    }
    came == Return::Home
}

fn is_semaphore(holders: &AtomicU64) -> bool {
    holders.load(Ordering::SeqCst) & SEMAPHORE != 0
}

/// What is away: the kind of the slot that it had.
pub(crate) fn kind(fd: c_int) -> Option<usize> {
    slot_of(table::word_of(fd)?.load(Ordering::SeqCst)).map(SlotHead::kind)
}

/// The slot that it had, if something is away under the number.
pub(crate) fn slot(fd: c_int) -> Option<&'static SlotHead> {
    let word = table::word_of(fd)?.load(Ordering::SeqCst);
    slot_of(word).filter(|_| word & table::TAG == table::AWAY)
}

fn slot_of(word: usize) -> Option<&'static SlotHead> {
    let slot = word & !table::TAG;
    // SAFETY: entries lead to slots, which are never freed.
    (slot != 0).then(|| unsafe { SlotHead::at(slot) })
}

/// The numbers of the objects that are away.
fn all() -> impl Iterator<Item = c_int> {
    let numbers = if ANY.load(Ordering::SeqCst) { table::numbers() } else { 0..0 };
    numbers.filter(|fd| has_tag(*fd))
}

/// Whether any object may come home.
pub(crate) fn any() -> bool {
    all().any(is)
}

/// A child has, from now on, whatever is away. The caller holds the migrations lock.
pub(crate) fn lend_to(child: u32) {
    all().filter_map(holders).for_each(|it| _ = it.fetch_or(u64::from(child), Ordering::SeqCst));
}

/// Whether a child may have something that may come home.
pub(crate) fn is_held_by(child: u32) -> bool {
    all().any(|fd| is(fd) && children(fd) & child != 0)
}

/// A child has nothing any more. The caller holds the migrations lock.
pub(crate) fn given_back_by(child: u32) {
    all().filter_map(holders).for_each(|it| _ = it.fetch_and(!u64::from(child), Ordering::SeqCst));
}

/// A child may have passed on what it had, or it is not known whether it still has it: that stays
/// in the kernel. The caller holds the migrations lock.
pub(crate) fn kept_by(child: u32) {
    all().filter(|fd| children(*fd) & child != 0).for_each(|fd| _ = doubt(fd));
}

/// In a forked child, before [`forget_parents`].
pub(super) fn begin_anew() {
    if ANY.load(Ordering::SeqCst) {
        FORKS.fetch_add(1, Ordering::SeqCst);
    }
}

/// In a forked child: the entry of one number.
pub(super) fn forget_parents(fd: c_int) {
    if ANY.load(Ordering::SeqCst) {
        WORDS.clear(fd as u32 as usize);
    }
}

#[cfg(test)]
pub(crate) mod tests;
