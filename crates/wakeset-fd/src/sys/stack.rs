//! The stack that a critical section needs.
//!
//! A program may leave a call that has run out of stack: its handler of SIGSEGV runs on another
//! stack and jumps away with siglongjmp(3). From the middle of a critical section it would take the
//! locks with it. So a section begins with a look at the last byte that it may use: if there is no
//! such byte, the fault comes before there is anything to leave behind. (A signal frame that the
//! kernel has no room for in a section is another matter: that fault waits for the section's end,
//! as any signal does.)
//!
//! The look is a load, which changes nothing wherever it leads. It goes no further than a page, the
//! least that a guard area has. Without an owner of the process's handlers there is none, because
//! valgrind reports a load from below the stack pointer.

use core::sync::atomic::{AtomicIsize, Ordering};

/// For a section of any kind: where it looks, as an offset from the stack pointer. The most that
/// has been measured is 2.4 KiB, in a debug build.
pub(super) static SECTION: AtomicIsize = AtomicIsize::new(0);
/// For a section of a fast path: one operation and its wakes.
pub(super) static FAST: AtomicIsize = AtomicIsize::new(0);
/// For a section that calls nothing.
pub(super) static BRIEF: AtomicIsize = AtomicIsize::new(0);

/// From now on each section looks whether it has room.
pub(super) fn look() {
    SECTION.store(-3072, Ordering::Relaxed);
    FAST.store(-1536, Ordering::Relaxed);
    BRIEF.store(-512, Ordering::Relaxed);
}
