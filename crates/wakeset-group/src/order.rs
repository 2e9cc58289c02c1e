//! Who is woken next.

/// Which of the idle waiters an event wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that has been idle longest: the work is spread evenly.
    #[default]
    Fifo,
    /// One that has been busy of late: its caches are warm, and some may never get anything to do. For a userfaultfd the one idle
    /// shortest; for a listener the first idle one in the order in which they came, which is what the kernel's exclusive watches do.
    Lifo,
}
