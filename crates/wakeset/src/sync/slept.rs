//! How a sleep ended.

/// How a sleep on a [`Futex`](crate::sync::Futex) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    any(loom, shuttle),
    allow(dead_code, reason = "there the clock and signals do not exist")
)]
pub(crate) enum Slept {
    /// Woken, or the word had changed before the sleep began.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}
