//! Which listeners have been watched with `EPOLLEXCLUSIVE`, as a hint to related processes.
//!
//! A process shares a page of bits with those that it forks. Threads that block in accept(2) need
//! not check a listener by themselves as long as only such threads wait on it; a bit says that a
//! listener has been watched exclusively, too. Bits are only ever set, so a process that
//! dies leaves nothing behind, and a bit too many costs a few system calls.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use wakeset_group::listener::inode;

struct Hint {
    /// Whether any bit is set.
    any: AtomicU64,
    /// A bit for each listener, by inode.
    listeners: [AtomicU64; WORDS],
}

const WORDS: usize = 4096 / 8 - 1;
/// Null where there is no memory for it.
static HINT: AtomicPtr<Hint> = AtomicPtr::new(ptr::null_mut());

/// Shares the hint with all processes that are forked from now on. For the time before main.
pub fn share_hint() {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    if let Ok(page) = crate::sys::raw!(mmap, 0, size_of::<Hint>(), protection, flags, -1_isize, 0) {
        HINT.store(ptr::with_exposed_provenance_mut(page), Ordering::Release);
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

/// Notes that a listener is about to be watched with `EPOLLEXCLUSIVE`.
pub fn note_exclusive(fd: c_int) {
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
