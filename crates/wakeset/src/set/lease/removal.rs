//! What a removal says about the events of its watch.

use crate::memory::counted::Counted;
use crate::set::base::set_core::SetCore;
use crate::set::lease::leases::{Known, LeaseCore};
use crate::sync::time::{Deadline, Timeout};
use core::fmt;

/// Whether a thread still uses an event of a watch that has just been removed. No later wait
/// reports one.
#[derive(Debug)]
#[must_use = "the answer says whether what the data stands for can be freed"]
pub enum Removal<'a> {
    /// No thread does: what its data stands for can be freed.
    Idle,
    /// These leases hold one; they can be waited for.
    InUse(LeaseHolders<'a>),
    /// The watch was one-shot, and a thread that waited without a [`Lease`](crate::Lease) got its
    /// event and has not re-armed it. That thread finds out: re-arming fails with
    /// [`Error::NotWatched`](crate::Error::NotWatched), and then the freeing is its business.
    /// Exact as long as only a thread that has the event re-arms the watch.
    Disarmed,
    /// A thread has waited without a [`Lease`](crate::Lease), and the watch was not one-shot at all
    /// times: the set cannot tell.
    Unknown,
}

/// The leases that hold an event of a removed watch.
pub struct LeaseHolders<'a> {
    pub(in crate::set) set: &'a SetCore,
    pub(in crate::set) known: Known,
    /// The lease of the thread that asked.
    pub(in crate::set) but: Option<Counted<LeaseCore>>,
}

impl LeaseHolders<'_> {
    fn holder(&self) -> Option<(Counted<LeaseCore>, u32)> {
        self.set.scan.lock().leases.holder(self.known, self.but.as_deref())
    }

    /// Whether no lease holds one any more. Once true, it stays so.
    pub fn have_released(&self) -> bool {
        self.holder().is_none()
    }

    /// Waits until no lease holds one any more: each thread has waited again, released, or dropped
    /// its lease. `false` if the time is up before.
    ///
    /// Two threads that wait for each other's leases wait for ever: release your own first.
    pub fn wait(&self, timeout: Timeout) -> bool {
        let deadline = Deadline::of(timeout);
        while let Some((lease, round)) = self.holder() {
            if timeout == Timeout::Now || !lease.wait_past(round, deadline) {
                return false;
            }
        }
        true
    }
}

impl fmt::Debug for LeaseHolders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHolders").field("done", &self.have_released()).finish()
    }
}
