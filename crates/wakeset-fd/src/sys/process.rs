//! Which process this memory belongs to.
//!
//! That is asked whenever an object is made or closed, so it must not cost a system call. The
//! engine knows the number of the process from a page that every fork wipes, however it was made.
//! A child of vfork(2), which has its parent's memory and that page with it, is known only from the
//! calls that make such children. So the page is believed while none of them is under way, in a
//! process whose calls all pass us ([`see_children`]); elsewhere getpid(2) is asked each time.

use crate::sys::{self, forked, vforked};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use wakeset::mutated;

// Whatever is written on both sides of every fork stands in one section, `wakeset_fork`, because
// each page that is written to is copied, twice. The preload library has it begin on a page.

/// Whether processes may share this memory: 0 if none does. Counts the calls of vfork(2) under way;
/// one of the two upper bits stays for good.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static SHARERS: AtomicU32 = AtomicU32::new(UNSEEN);
/// Children are not seen.
const UNSEEN: u32 = 1 << 31;
/// There may be one whose end is not seen.
const ENDLESS: u32 = 1 << 30;

/// From now on the process says so before it makes a child that shares its memory
/// (`begin_sharing`, [`share_for_good`]).
pub fn see_children() {
    SHARERS.fetch_and(!UNSEEN, Ordering::SeqCst);
}

/// A call that makes a child on this memory has begun. It is over when [`end_sharing`] has been
/// called, by the parent and not by the child.
pub(crate) fn begin_sharing() {
    if !mutated!("vfork_child_is_its_parent") {
        SHARERS.fetch_add(1, Ordering::SeqCst);
    }
}

/// The child has a memory of its own, or has ended.
pub(crate) fn end_sharing() {
    if !mutated!("vfork_child_is_its_parent") {
        SHARERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call is about to make a child on this memory that may live on beside its parent.
pub fn share_for_good() {
    SHARERS.fetch_or(ENDLESS, Ordering::SeqCst);
    // The first to ask is the owner, and must not be the child.
    let _ = memory();
}

/// The number of the calling process.
#[inline]
fn number() -> c_int {
    if SHARERS.load(Ordering::Relaxed) == 0 {
        wakeset::process_id() as c_int
    } else {
        sys::getpid()
    }
}

/// The process this memory belongs to; 0 before the first object.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// What the calling process is to this memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// It is its own, and has been so far.
    Own,
    /// It is that of a parent that is still there: this is a vfork(2) child.
    Shared,
    /// It is a copy of a parent's: this is a forked child, and has not said so yet.
    Copied,
}

/// Whether this is a process that shares another's memory: a vfork(2) child before its exec. What
/// it closes is not closed for the owner of the memory.
#[inline]
pub fn is_foreign() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != number()
}

/// The process that this memory is known to belong to; 0 for none.
pub(super) fn owner() -> c_int {
    PROCESS.load(Ordering::Relaxed)
}

/// Whether the calling process is the one that this memory is known to belong to.
#[inline]
pub(crate) fn is_owner() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process == number()
}

/// Whether nobody has asked to make an object here yet.
#[inline]
pub(crate) fn has_no_owner() -> bool {
    PROCESS.load(Ordering::Relaxed) == 0
}

/// Looks at whose memory this is; the first to ask is its owner.
pub(crate) fn memory() -> Memory {
    let pid = number();
    let process = PROCESS.load(Ordering::Relaxed);
    if pid == 0 {
        // A filter refuses to say it. A child would be taken for its parent.
        return Memory::Shared;
    }
    if process == 0 {
        let _ = PROCESS.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst);
        Memory::Own
    } else if process == pid {
        Memory::Own
    } else if shares_memory(process) {
        Memory::Shared
    } else {
        Memory::Copied
    }
}

/// In a forked child: nobody has asked to make an object here.
pub(crate) fn disown() {
    vforked::forget();
    forked::forget_children();
    SHARERS.fetch_and(UNSEEN, Ordering::SeqCst);
    PROCESS.store(0, Ordering::SeqCst);
}

/// In a forked child: the memory is this process's from now on, and no other's.
pub(crate) fn own_memory() {
    vforked::forget();
    forked::forget_children();
    SHARERS.fetch_and(UNSEEN, Ordering::SeqCst);
    PROCESS.store(sys::getpid(), Ordering::SeqCst);
}

/// Whether the process that this memory belongs to shares it with us: we are its vfork(2) child,
/// and nothing may be begun anew under its feet. kcmp(2) knows; where it does not answer, the safe
/// side is yes.
fn shares_memory(process: c_int) -> bool {
    const KCMP_VM: usize = 1;
    // 0: equal; 1 and 2: less or greater, so different.
    !matches!(sys::raw!(kcmp, sys::getpid(), process, KCMP_VM, 0, 0), Ok(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;
    extern crate std;

    extern "C" fn ask(_: *mut core::ffi::c_void) -> c_int {
        c_int::from(is_foreign()) + 2 * c_int::from(memory() == Memory::Shared)
    }

    /// What a child on this memory answers.
    fn ask_in_child() -> c_int {
        let mut stack = std::vec![0_u128; 1 << 12];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child runs on a stack of its own and ends before we go on.
        let child = unsafe {
            libc::clone(ask, stack.as_mut_ptr_range().end.cast(), flags, core::ptr::null_mut())
        };
        let mut status = -1;
        // SAFETY: our own child.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(ended == child && libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_vfork_child_is_told_apart_while_there_is_one() {
        let _alone = alone();
        assert_eq!(memory(), Memory::Own);
        assert_eq!(ask_in_child(), 3, "children are not seen");
        see_children();
        let _ = wakeset::process_id();
        begin_sharing();
        assert_eq!(ask_in_child(), 3, "a child by vfork(2)");
        assert!(!is_foreign() && memory() == Memory::Own);
        end_sharing();
        assert!(!is_foreign() && memory() == Memory::Own);
        assert_eq!(SHARERS.load(Ordering::SeqCst), 0);
        share_for_good();
        assert_eq!(ask_in_child(), 3, "a child by clone(2)");
        SHARERS.store(UNSEEN, Ordering::SeqCst);
    }
}
