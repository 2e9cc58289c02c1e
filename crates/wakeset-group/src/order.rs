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
    /// In between: the first in the queue stays there for [`Order::TURN`] events, and then goes to the end. Its caches are warm for all but the first of
    /// them, and in the long run the work is as even as in [`Order::Fifo`], which it is for a userfaultfd.
    Turns,
}

impl Order {
    /// The events of one turn in [`Order::Turns`].
    pub const TURN: u32 = 32;

    /// Whether a waiter that was woken so many times since it last went to the end of the queue belongs there again.
    pub const fn ends_turn(self, wakes: u32) -> bool {
        match self {
            Order::Fifo => wakes > 0,
            Order::Turns => wakes >= Self::TURN,
            Order::Lifo => false,
        }
    }
}
