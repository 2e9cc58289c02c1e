//! Forks. Everything moves into the kernel first, so parent and child share kernel objects and no memory; the child begins
//! anew with an empty table.

use crate::bell;
use crate::engine;
use crate::escape;
use crate::listeners;
use crate::section::Section;
use crate::stats::Stat;
use crate::sys;
use crate::table;
use core::ffi::c_int;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, Ordering};

/// The process this memory belongs to; 0 before the first object.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// A fork under way: between [`prepare`] and [`Forking::in_parent`] or [`Forking::in_child`].
#[derive(Debug)]
#[must_use = "a prepared fork has to be finished on both sides"]
pub struct Forking {
    section: Section,
    moving: ManuallyDrop<wakeset::ScanGuard<'static, ()>>,
}

/// Before a fork: moves everything into the kernel and lets nothing new in until it is over.
pub fn prepare() -> Forking {
    let section = Section::enter();
    escape::everything(Stat::MovedFork);
    Forking { section, moving: ManuallyDrop::new(escape::hold_moves()) }
}

impl Forking {
    /// After a fork, in the parent.
    pub fn in_parent(self) {
        drop(ManuallyDrop::into_inner(self.moving));
        escape::open_gate();
        drop(self.section);
    }

    /// After a fork, in the child.
    pub fn in_child(self) {
        begin_anew();
        drop(self.section);
    }
}

/// Before a vfork(2): moves everything into the kernel and lets nothing new in until [`after_vfork`]. The child works on this memory with a descriptor table of
/// its own. As soon as another thread of the parent closes a number and uses it again, that means one thing here and another there,
/// so the child must find nothing to move, and nothing that would have to be.
pub fn before_vfork() {
    // In the child of a vfork there is nothing of ours that it could hand on.
    if may_make_objects() {
        escape::everything(Stat::MovedFork);
    }
}

/// After a vfork(2), in the parent.
pub fn after_vfork() {
    if !is_foreign() {
        escape::open_gate();
    }
}

/// Whether this is a process that shares another's memory: a vfork(2) child before its exec. What it closes is not closed
/// for the owner of the memory.
pub fn is_foreign() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != sys::getpid()
}

/// Before an object is made: notices a child of a fork that nobody told us of (clone(2) by hand), and begins anew. Whether the object
/// may live here: not if it is made by a vfork(2) child, whose numbers are not those of the owner of this memory.
pub fn may_make_objects() -> bool {
    let pid = sys::getpid();
    let process = PROCESS.load(Ordering::Relaxed);
    if process == 0 {
        let _ = PROCESS.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst);
    } else if process != pid {
        if shares_memory(process) {
            return false;
        }
        begin_anew();
    }
    true
}

/// Whether the process that this memory belongs to shares it with us: we are its vfork(2) child, and nothing may be begun anew
/// under its feet. kcmp(2) knows; where it does not answer, the safe side is yes.
fn shares_memory(process: c_int) -> bool {
    const KCMP_VM: usize = 1;
    // 0: equal; 1 and 2: less or greater, so different.
    !matches!(sys::raw!(kcmp, sys::getpid(), process, KCMP_VM, 0, 0), Ok(1 | 2))
}

fn begin_anew() {
    bell::forget_all();
    listeners::forget_private();
    table::forget_all();
    crate::polls::forget_in_child();
    crate::uring::forget_in_child();
    engine::abandon();
    escape::replace_lock();
    escape::reset_gate();
    PROCESS.store(sys::getpid(), Ordering::SeqCst);
}
