//! The order in which waiters are woken.

/// Which of the idle waiters an event wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The waiter that has been idle longest: the work is spread evenly.
    #[default]
    Fifo,
    /// A waiter that has been busy of late: its caches are warm, and some waiters may never get
    /// anything to do. Of a userfaultfd's waiters, the one that has been idle shortest; of a
    /// listener's, the first idle one in the order in which they came, which is what the kernel's
    /// exclusive watches do.
    Lifo,
    /// In between: the first waiter of the queue stays there for [`Order::TURN`] events and then
    /// goes to the end. Its caches are warm for all but the first of these events, and in the long
    /// run the work is as even as in [`Order::Fifo`]. For a userfaultfd it is the same as
    /// [`Order::Fifo`].
    Turns,
}

impl Order {
    /// The events of one turn in [`Order::Turns`].
    pub const TURN: u32 = 32;

    /// Whether a waiter that has been woken `wakes` times since it last went to the end of the
    /// queue is to go there again.
    pub const fn ends_turn(self, wakes: u32) -> bool {
        match self {
            Order::Fifo => wakes > 0,
            Order::Turns => wakes >= Self::TURN,
            Order::Lifo => false,
        }
    }
}
