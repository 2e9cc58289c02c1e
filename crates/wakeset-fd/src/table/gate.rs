//! The lock under which objects migrate, and the gate that keeps new objects in the kernel while a
//! process forks.

use crate::sys::signal_guard::SignalGuard;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use wakeset::{ScanGuard, ScanLock};

/// Serializes migrations, and what must not happen during one.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static MIGRATIONS: ScanLock<()> = ScanLock::new(());

/// Not 0: new objects are the kernel's from the start. Counts forks under way; the top bit stays
/// once set.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static GATE: AtomicU32 = AtomicU32::new(0);
const FOR_GOOD: u32 = 1 << 31;
/// How often it has been closed for a fork.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Takes the lock under which objects migrate.
pub(crate) fn hold_migrations() -> ScanGuard<'static, ()> {
    MIGRATIONS.lock()
}

/// The same, if nobody holds it: a fork does for its length, which may be that of a userfaultfd's
/// handler.
pub(crate) fn try_hold_migrations() -> Option<ScanGuard<'static, ()>> {
    MIGRATIONS.try_lock()
}

/// Waits until the migrations under way are over.
pub(crate) fn wait_for_migrations() {
    let _guard = SignalGuard::enter();
    drop(hold_migrations());
}

/// Whether new objects may live in user space.
pub(crate) fn is_open() -> bool {
    GATE.load(Ordering::SeqCst) == 0
}

/// Whether the gate is closed for a fork at most, and not for good.
#[inline]
pub(crate) fn may_open() -> bool {
    GATE.load(Ordering::SeqCst) & FOR_GOOD == 0
}

/// The gate as it is before an object's descriptor is made.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    closed: u32,
    pub(crate) is_open: bool,
}

impl Gate {
    /// As it is now.
    pub(crate) fn now() -> Self {
        Self { closed: CLOSED.load(Ordering::SeqCst), is_open: is_open() }
    }

    /// Whether it has been closed since, also if it is open again: a forked child then has the
    /// descriptor.
    pub(crate) fn has_been_closed(self) -> bool {
        !is_open() || CLOSED.load(Ordering::SeqCst) != self.closed
    }
}

/// Closes the gate until [`open`].
pub(crate) fn close() {
    GATE.fetch_add(1, Ordering::SeqCst);
    CLOSED.fetch_add(1, Ordering::SeqCst);
}

/// Undoes one [`close`].
pub(crate) fn open() {
    GATE.fetch_sub(1, Ordering::SeqCst);
}

/// Closes the gate for the rest of the process's life.
pub(crate) fn close_for_good() {
    GATE.fetch_or(FOR_GOOD, Ordering::SeqCst);
}

/// Whether all timers are the kernel's.
static TIMERS_LEFT_TO_KERNEL: AtomicBool = AtomicBool::new(false);

pub(crate) fn timers_are_left_to_kernel() -> bool {
    TIMERS_LEFT_TO_KERNEL.load(Ordering::SeqCst)
}

/// Leaves new timers to the kernel from now on: a set's number is polled by somebody who does not
/// know when its timers expire. Whether there is something to be done about those there are.
pub(crate) fn leave_timers_to_kernel() -> bool {
    !TIMERS_LEFT_TO_KERNEL.swap(true, Ordering::SeqCst)
}

/// In a forked child: no fork is under way, and the lock may be held by a thread that does not
/// exist.
pub(crate) fn begin_anew() {
    // SAFETY: a forked child has one thread, which comes from a fork it prepared with the lock
    // held, or from one by hand, which does not go on with anything it had begun.
    unsafe { MIGRATIONS.free_in_child() };
    GATE.fetch_and(FOR_GOOD, Ordering::SeqCst);
}
