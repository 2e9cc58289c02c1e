//! Which threads sleep on a lock so that its holder inherits their priority.

use crate::sync::atomics::{AtomicU32, Ordering};
use syscalls::{Sysno, syscall};

/// Nobody so far.
const UNUSED: u32 = 0;
/// A thread under a real-time policy has waited for a lock: every thread.
const IN_USE: u32 = 1;
/// None, ever.
const OFF: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(UNUSED);

pub(crate) fn enable(enabled: bool) {
    STATE.store(if enabled { UNUSED } else { OFF }, Ordering::Relaxed);
}

/// Makes locks be waited for as in a process with real-time threads, or without.
#[cfg(wakeset_steps)]
pub fn set_in_use(in_use: bool) {
    STATE.store(if in_use { IN_USE } else { UNUSED }, Ordering::Relaxed);
}

/// Whether the calling thread is to sleep that way.
pub(crate) fn wanted() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNUSED if is_real_time() => {
            let _ = STATE.compare_exchange(UNUSED, IN_USE, Ordering::Relaxed, Ordering::Relaxed);
            true
        }
        state => state == IN_USE,
    }
}

/// sched_getscheduler(2): SCHED_FIFO, SCHED_RR or SCHED_DEADLINE, whatever a forked child would
/// get.
pub(crate) fn is_real_time() -> bool {
    const RESET_ON_FORK: usize = 0x4000_0000;
    // SAFETY: asks for the calling thread's policy and takes no pointer.
    let policy = unsafe { syscall!(Sysno::sched_getscheduler, 0) };
    matches!(policy.map(|policy| policy & !RESET_ON_FORK), Ok(1 | 2 | 6))
}
