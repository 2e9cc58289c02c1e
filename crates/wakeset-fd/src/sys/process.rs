//! Which process this memory belongs to.

use crate::sys;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

/// The process this memory belongs to; 0 before the first object.
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
pub fn is_foreign() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != sys::getpid()
}

/// Whether nobody has asked to make an object here yet.
pub(crate) fn has_no_owner() -> bool {
    PROCESS.load(Ordering::Relaxed) == 0
}

/// Looks at whose memory this is; the first to ask is its owner.
pub(crate) fn memory() -> Memory {
    let pid = sys::getpid();
    let process = PROCESS.load(Ordering::Relaxed);
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

/// In a forked child: the memory is this process's from now on.
pub(crate) fn own_memory() {
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
