//! Which listeners have been watched with `EPOLLEXCLUSIVE`, as a hint to related processes.
//!
//! A process shares bits with those that it forks. Threads that block in accept(2) need
//! not check a listener by themselves as long as only such threads wait on it; a bit says that a
//! listener has been watched exclusively, too. Bits are only ever set, so a process that
//! dies leaves nothing behind, and a bit too many costs a few system calls.
//!
//! They are a mapping that each fork copies, and most processes have no listener. So it is
//! mapped, with the [`baton`](super::baton), by a process that binds a stream socket, listens,
//! waits for a listener or forks with one that it began with. That is before it forks those that
//! share the listener, but for a master that is passed its listener in a message and does nothing
//! with it: its children's hints are apart (docs/herd.md). The mapping is of a file of memory,
//! which those that are executed find ([`family`](super::family)); where there is none, of no file,
//! and those that are executed have their own.

use super::baton::{NOTES, Names};
use super::family::MODE;
use super::shares::Slots;
use crate::sys;
use crate::sys::refusable::refusable;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use wakeset_group::listener::inode;

#[repr(C)]
pub(super) struct Hint {
    /// [`LAYOUT`], in a file that another process may use.
    layout: AtomicU64,
    /// Whether any bit is set.
    any: AtomicU64,
    /// The baton's: see [`baton`](super::baton).
    declined: Declined,
    /// The inodes of listeners that the processes have bound, listen on or wait for; 0 for none.
    family: [AtomicU64; FAMILY],
    /// A bit for each listener, by inode.
    listeners: [AtomicU64; WORDS],
    /// What waiters say of themselves: see [`shares`](super::shares).
    slots: Slots,
}

/// Changes whenever the layout of [`Hint`] does, or what a word of it means. Processes with
/// different ones share nothing.
const LAYOUT: u64 = u64::from_ne_bytes(*b"wakeset4");
const FAMILY: usize = 64;
const WORDS: usize = 4096 / 8 - 13 - 5 * NOTES - FAMILY;
/// The size of the mapping and its file: whole pages.
pub(super) const BYTES: usize = 3 * 4096;
const _: () = assert!(size_of::<Hint>() == BYTES, "whole pages");

/// Null before it is needed, and where there is no memory for it.
static HINT: AtomicPtr<Hint> = AtomicPtr::new(ptr::null_mut());

/// Whether there are hints.
pub(super) fn is_shared() -> bool {
    Hint::shared().is_some()
}

/// Maps hints: of a file, or of memory that forked children share.
fn map(file: Option<c_int>) -> Option<*mut Hint> {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let (flags, number) = match file {
        Some(file) => (kind, file as isize),
        None => (kind | libc::MAP_ANONYMOUS, -1),
    };
    let page = sys::raw!(mmap, 0, BYTES, protection, flags, number, 0).ok()?;
    Some(ptr::with_exposed_provenance_mut(page))
}

/// Those of one process, unless there are some.
fn adopt(made: *mut Hint) {
    let null = ptr::null_mut();
    if HINT.compare_exchange(null, made, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Another thread's are as good.
        let _ = sys::raw!(munmap, made, BYTES);
    }
}

/// Makes hints that are shared with all processes that are forked from now on, unless there are
/// some. Returns the file with which those that are executed share them, if there is one;
/// `has_file`: whether there may be.
pub(super) fn share_hint(has_file: bool) -> Option<c_int> {
    if is_shared() {
        return None;
    }
    let file = if has_file { make_file() } else { None };
    let made = map(file).or_else(|| map(None))?;
    // SAFETY: a fresh mapping of this size; all zeros are valid.
    unsafe { &*made }.layout.store(LAYOUT, Ordering::SeqCst);
    adopt(made);
    file
}

/// Shares the hints in another process's file, if it is `family`'s: where one of these inodes is
/// noted. The file has the right size, which it keeps.
pub(super) fn join_hint(file: c_int, family: &[u64]) -> bool {
    let Some(found) = map(Some(file)) else { return false };
    // SAFETY: a mapping of this size of a file that keeps it; any bytes are valid.
    let hint = unsafe { &*found };
    let knows = || family.iter().any(|inode| hint.is_of(*inode));
    if hint.layout.load(Ordering::SeqCst) == LAYOUT && knows() {
        adopt(found);
        return true;
    }
    let _ = sys::raw!(munmap, found, BYTES);
    false
}

/// What nobody may change of the file: its size, and what is sealed.
pub(super) const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn make_file() -> Option<c_int> {
    const CLOSED_BY_EXEC: u32 = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    /// Since Linux 6.3.
    const NEVER_EXECUTED: u32 = 8;
    // A file that becomes longer than it may ends the process with SIGXFSZ.
    if sys::file_limit() < BYTES as u64 {
        return None;
    }
    let create = |flags: u32| refusable!(memfd_create, c"wakeset-listeners".as_ptr(), flags);
    let made = create(CLOSED_BY_EXEC | NEVER_EXECUTED).or_else(|_| create(CLOSED_BY_EXEC));
    let file = made.ok()? as c_int;
    let is_done = refusable!(ftruncate, file, BYTES).is_ok()
        && refusable!(fchmod, file, MODE).is_ok()
        && refusable!(fcntl, file, libc::F_ADD_SEALS, SEALS).is_ok();
    if !is_done {
        let _ = sys::close(file);
    }
    is_done.then_some(file)
}

/// A listener of this process's, which those that it executes may be passed.
pub(super) fn note_listener(fd: c_int) {
    let (Some(hint), Some(inode)) = (Hint::shared(), inode(fd)) else { return };
    if hint.is_of(inode) {
        return;
    }
    let (one, all) = (Ordering::SeqCst, &hint.family);
    let is_noted = all.iter().any(|place| place.compare_exchange(0, inode, one, one).is_ok());
    // A client that binds an address of its own takes no listener's place.
    let listens = || sys::socket_option(fd, libc::SO_ACCEPTCONN).is_ok_and(|listens| listens != 0);
    if !is_noted
        && listens()
        && let Some(place) = all.get(inode as usize % FAMILY)
    {
        // In place of one that may be closed by now.
        place.store(inode, one);
    }
}

impl Hint {
    fn shared() -> Option<&'static Self> {
        // SAFETY: null, or a mapping of this size that stays; all zeros are valid.
        unsafe { HINT.load(Ordering::Acquire).as_ref() }
    }

    fn is_of(&self, inode: u64) -> bool {
        self.family.iter().any(|of| of.load(Ordering::SeqCst) == inode)
    }

    fn bit_of(&self, inode: u64) -> Option<(&AtomicU64, u64)> {
        let word = self.listeners.get((inode / 64) as usize % WORDS)?;
        Some((word, 1 << (inode % 64)))
    }
}

/// What related processes have declined: see [`rounds`](super::baton).
#[repr(C)]
pub(super) struct Declined {
    /// The latest round.
    pub(super) round: AtomicU64,
    /// Bits of listeners of which one may have been left.
    pub(super) any: AtomicU64,
    /// The listeners' inodes, by note.
    pub(super) names: Names,
    /// By note, the latest round in which a connection was declined, or left to another.
    pub(super) left: [AtomicU64; NOTES],
    /// The same of those that are for whoever is asked first, whatever it holds.
    pub(super) urgent: [AtomicU64; NOTES],
    /// By note, the latest round before a look that has found no connection.
    pub(super) empty: [AtomicU64; NOTES],
    /// Whether a set watches a listener by edges, so that what is accepted is counted.
    pub(super) edges: AtomicU64,
    /// By note, how many connections were accepted since.
    pub(super) accepted: [AtomicU64; NOTES],
}

/// What related processes have declined. Each has its own where there is no memory to share.
pub(super) fn declined() -> &'static Declined {
    static OWN: Declined = Declined {
        round: AtomicU64::new(0),
        any: AtomicU64::new(0),
        names: [const { AtomicU64::new(0) }; NOTES],
        left: [const { AtomicU64::new(0) }; NOTES],
        urgent: [const { AtomicU64::new(0) }; NOTES],
        empty: [const { AtomicU64::new(0) }; NOTES],
        edges: AtomicU64::new(0),
        accepted: [const { AtomicU64::new(0) }; NOTES],
    };
    Hint::shared().map_or(&OWN, |hint| &hint.declined)
}

/// What the waiters of related processes say of themselves; `None` where there is no memory to
/// share.
pub(super) fn slots() -> Option<&'static Slots> {
    Hint::shared().map(|hint| &hint.slots)
}

/// Notes that a listener is about to be watched with `EPOLLEXCLUSIVE`, if there are hints
/// ([`make`](super::baton::make)).
pub fn note_exclusive(fd: c_int) {
    if is_shared()
        && let Some(inode) = inode(fd)
    {
        note_exclusive_inode(inode);
    }
}

/// [`note_exclusive`] for the listener with this inode.
pub(super) fn note_exclusive_inode(inode: u64) {
    if let Some(hint) = Hint::shared()
        && let Some((word, bit)) = hint.bit_of(inode)
    {
        word.fetch_or(bit, Ordering::SeqCst);
        hint.any.store(1, Ordering::SeqCst);
    }
}

/// Returns whether any listener has been watched with `EPOLLEXCLUSIVE` by this process or one that
/// shares its page.
#[inline]
pub fn any_exclusive() -> bool {
    Hint::shared().is_some_and(|hint| hint.any.load(Ordering::Relaxed) != 0)
}

/// Returns whether this listener may have been watched with `EPOLLEXCLUSIVE`.
pub fn is_exclusive(fd: c_int) -> bool {
    let bit = Hint::shared().and_then(|hint| hint.bit_of(inode(fd)?));
    bit.is_some_and(|(word, bit)| word.load(Ordering::SeqCst) & bit != 0)
}
