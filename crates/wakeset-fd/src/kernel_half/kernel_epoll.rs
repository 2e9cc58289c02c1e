//! What this room has to know of a set. Under loom this file is what it is in every build.

use core::ffi::c_int;

/// The kernel epoll of a set, as far as this room has to know the set.
pub(crate) trait KernelEpoll {
    /// Its number.
    fn number(&self) -> c_int;

    /// Returns whether the set has migrated, or is about to: its watches are left as they are.
    fn is_in_kernel(&self) -> bool;

    /// Returns whether the number has been closed, and may be another file's.
    fn is_closed(&self) -> bool;

    /// The data of a watch of the baton, whose events a wait takes out of what the kernel reports
    /// from now on.
    fn admit_baton(&self) -> u64;

    /// The same of the alarm's.
    fn admit_alarm(&self) -> u64;

    /// Returns whether no call is in the set but the caller's.
    fn is_in_one_call(&self) -> bool {
        false
    }

    /// Returns whether watches may be changed here.
    fn is_usable(&self) -> bool {
        !self.is_in_kernel() && !self.is_closed()
    }
}
