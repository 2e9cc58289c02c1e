//! Who is woken next.

/// Which of the idle waiters an event wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that has been idle longest: the work is spread evenly.
    #[default]
    Fifo,
    /// The one that has been idle shortest: its caches are warm, and some may never get anything to do.
    Lifo,
}
