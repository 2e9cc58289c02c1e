//! What the decision needs of the machine.

use crate::sync::spin;
use crate::sync::thread_id;
use crate::sync::time::Deadline;

/// A wait of the process every so often (ns) or more rarely: too slow to be a chain of threads that
/// wake each other, where wakes take no longer than they do on most machines.
pub(super) const SLOW: u64 = 100_000;

pub(super) trait Machine {
    /// The calling thread.
    fn thread(&self) -> u32;
    fn now(&self) -> u64;
    /// How much processor time a thread has had (ns); `None` if it has ended.
    fn time_of(&self, thread: u32) -> Option<u64>;
    fn process_time(&self) -> Option<u64>;
    fn has_processors(&self) -> bool;
    /// How long a joint spin may take (ns).
    fn joint_limit(&self) -> u64;

    /// How much time (ns) passes for a wait at most where threads may be a chain: each of them has
    /// to be woken.
    fn slow(&self) -> u64 {
        SLOW.max(self.joint_limit())
    }
}

/// This one.
#[derive(Debug)]
pub(super) struct Real {
    pub(super) joint_limit: u64,
}

impl Machine for Real {
    fn thread(&self) -> u32 {
        thread_id::current()
    }

    fn now(&self) -> u64 {
        Deadline::now().as_nanos()
    }

    fn time_of(&self, thread: u32) -> Option<u64> {
        spin::time_of(thread)
    }

    fn process_time(&self) -> Option<u64> {
        spin::process_time()
    }

    fn has_processors(&self) -> bool {
        spin::has_processors()
    }

    fn joint_limit(&self) -> u64 {
        self.joint_limit
    }
}
