//! Sources that time makes ready, without a wake: what a set has to ask them.

/// No time: of a plan that there is none, of a deadline that no waiter minds.
#[doc(hidden)]
pub const NEVER: u64 = u64::MAX;
/// Earlier than any plan, and later than no time at all.
pub(crate) const SOON: u64 = 1;

/// A source that becomes ready at a point in time.
///
/// A set that watches it *plans* to poll it then. All times are nanoseconds of `CLOCK_MONOTONIC`.
/// The set calls all three methods with its scan lock held.
#[doc(hidden)]
pub trait Timed {
    /// When the set has to poll the source next, [`NEVER`] for no time it knows. The source
    /// remembers the answer, and wakes its watches if it is set to an earlier time.
    fn plan(&self) -> u64;

    /// The set has carried out or dropped its plan: from now on any time is an earlier one.
    fn drop_plan(&self);

    /// A watch has been put into this slot of the source's wait queue.
    fn note_watch(&self, slot: u32);
}
