//! Which listeners have been watched with `EPOLLEXCLUSIVE`, as a hint to related processes.
//!
//! A process shares bits with those that it forks. Threads that block in accept(2) need
//! not check a listener by themselves as long as only such threads wait on it; a bit says that a
//! listener has been watched exclusively, too. Bits are only ever set, so a process that
//! dies leaves nothing behind, and a bit too many costs a few system calls.
//!
//! They are a mapping that each fork copies, and most processes have no listener. So it is
//! mapped, with the [`baton`](super::baton), by a process that listens, waits for a listener or
//! forks with one that it began with. That is before it forks those that share the listener, but
//! for a master that is passed its listener in a message and does nothing with it, and for one
//! whose children call listen(2): their children's hints are apart (docs/herd.md).

use super::shares::Slots;
use crate::sys;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use wakeset_group::listener::inode;

struct Hint {
    /// Whether any bit is set.
    any: AtomicU64,
    /// The baton's: see [`baton`](super::baton).
    declined: Declined,
    /// A bit for each listener, by inode.
    listeners: [AtomicU64; WORDS],
    /// What waiters say of themselves: see [`shares`](super::shares).
    slots: Slots,
}

const WORDS: usize = 4096 / 8 - 12;
const _: () = assert!(size_of::<Hint>() == 3 * 4096, "whole pages");

/// Null before it is needed, and where there is no memory for it.
static HINT: AtomicPtr<Hint> = AtomicPtr::new(ptr::null_mut());

/// Shares the hint with all processes that are forked from now on, unless it is shared already.
pub(super) fn share_hint() {
    if Hint::shared().is_some() {
        return;
    }
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let len = size_of::<Hint>();
    if let Ok(page) = sys::raw!(mmap, 0, len, protection, flags, -1_isize, 0) {
        let (null, made) = (ptr::null_mut(), ptr::with_exposed_provenance_mut(page));
        if HINT.compare_exchange(null, made, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Another thread's is as good.
            let _ = sys::raw!(munmap, page, len);
        }
    }
}

impl Hint {
    fn shared() -> Option<&'static Self> {
        // SAFETY: null, or a mapping of this size that stays; all zeros are valid.
        unsafe { HINT.load(Ordering::Acquire).as_ref() }
    }

    fn bit_of(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let inode = inode(fd)?;
        let word = self.listeners.get((inode / 64) as usize % WORDS)?;
        Some((word, 1 << (inode % 64)))
    }
}

/// What related processes have declined.
pub(super) struct Declined {
    /// The latest round.
    pub(super) round: AtomicU32,
    /// The listeners of which a connection was declined, and that no waiter has checked since.
    pub(super) listeners: AtomicU64,
    /// Those of which the next connection is for whoever is asked first, whatever it holds.
    pub(super) urgent: AtomicU64,
}

/// What related processes have declined. Each has its own where there is no memory to share.
pub(super) fn declined() -> &'static Declined {
    static OWN: Declined = Declined {
        round: AtomicU32::new(0),
        listeners: AtomicU64::new(0),
        urgent: AtomicU64::new(0),
    };
    Hint::shared().map_or(&OWN, |hint| &hint.declined)
}

/// What the waiters of related processes say of themselves; `None` where there is no memory to
/// share.
pub(super) fn slots() -> Option<&'static Slots> {
    Hint::shared().map(|hint| &hint.slots)
}

/// Notes that a listener is about to be watched with `EPOLLEXCLUSIVE`.
pub fn note_exclusive(fd: c_int) {
    share_hint();
    if let Some(hint) = Hint::shared()
        && let Some((word, bit)) = hint.bit_of(fd)
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
    let bit = Hint::shared().and_then(|hint| hint.bit_of(fd));
    bit.is_some_and(|(word, bit)| word.load(Ordering::SeqCst) & bit != 0)
}
