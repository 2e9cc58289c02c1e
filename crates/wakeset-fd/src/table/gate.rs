//! The lock under which objects migrate, and the gate that keeps new objects in the kernel while a
//! process forks.

use crate::sys;
use crate::sys::signal_guard::SignalGuard;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use wakeset::{ScanGuard, ScanLock, mutated};

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

/// How many threads wait for migrations.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static WAITING: AtomicU32 = AtomicU32::new(0);
/// How many forks hold the lock, or will, for which no such thread waits.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static FORKING: AtomicU32 = AtomicU32::new(0);

/// Waits until the migrations under way are over.
pub(crate) fn wait_for_migrations() {
    let _guard = SignalGuard::enter();
    WAITING.fetch_add(1, Ordering::SeqCst);
    let is_forking = || FORKING.load(Ordering::SeqCst) > 0;
    if !is_forking() || mutated!("waits_for_a_fork") {
        drop(hold_migrations());
    }
    if WAITING.fetch_sub(1, Ordering::SeqCst) == 1 && is_forking() {
        sys::futex_wake(&WAITING, u32::MAX >> 1);
    }
}

/// Before a fork that may need another thread to come to its end: lets those go on that wait for
/// migrations, and has none wait for the fork until [`end_fork`]. Everything has migrated, and the
/// gate is closed, so that nothing comes to migrate while the lock is let go of.
pub(crate) fn begin_fork(migrating: ScanGuard<'static, ()>) -> ScanGuard<'static, ()> {
    FORKING.fetch_add(1, Ordering::SeqCst);
    drop(migrating);
    loop {
        match WAITING.load(Ordering::SeqCst) {
            0 => return hold_migrations(),
            // The last of them wakes us, if it has seen that we are here.
            some => _ = sys::futex_wait_for(&WAITING, some, Duration::from_millis(1)),
        }
    }
}

/// After that fork, in the parent.
pub(crate) fn end_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
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
    WAITING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    GATE.fetch_and(FOR_GOOD, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;
    extern crate std;
    use std::sync::mpsc;
    use std::thread;

    /// A thread in poll(2) waited for the lock of a fork that waited until this thread had read the
    /// fork's message from a userfaultfd.
    #[test]
    fn nobody_waits_for_a_fork_that_may_need_him() {
        let _alone = alone();
        let _guard = SignalGuard::enter();
        let migrating = hold_migrations();
        let (sender, came) = mpsc::channel();
        let wait = || {
            let sender = sender.clone();
            thread::spawn(move || {
                wait_for_migrations();
                let _ = sender.send(());
            })
        };
        let before = wait();
        thread::sleep(Duration::from_millis(20));
        let migrating = begin_fork(migrating);
        let during = wait();
        let both = [(); 2].map(|()| came.recv_timeout(Duration::from_secs(3)).is_ok());
        drop(migrating);
        end_fork();
        for thread in [before, during] {
            thread.join().expect("it comes back");
        }
        assert_eq!(both, [true; 2]);
    }
}
