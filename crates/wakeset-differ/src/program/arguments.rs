//! The arguments of calls that are more than a number: addresses, time limits, signal masks, and
//! the ways to duplicate a descriptor.

use serde::{Deserialize, Serialize};

/// The address that a call is given for its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum At {
    /// The address of the buffer.
    Good,
    /// The null pointer.
    Null,
    /// Address 8, where nothing is mapped.
    Low,
    /// An address of the kernel's half.
    High,
    /// A page without access.
    Forbidden,
    /// A page that cannot be written.
    ReadOnly,
    /// This many units (bytes, or events of a wait) before a page without access.
    Before(u8),
}

/// How a description gets another descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Duplication {
    /// dup(2): the lowest number.
    Lowest,
    /// fcntl(2) with `F_DUPFD` and this lower bound.
    From(u16),
    /// fcntl(2) with `F_DUPFD_CLOEXEC` and this lower bound.
    CloexecFrom(u16),
    /// dup2(2) onto this number.
    Onto(u16),
    /// dup2(2) onto the number of this slot.
    OntoSlot(u8),
    /// dup3(2) onto the number of this slot, with these flags.
    OntoSlotWith(u8, i32),
    /// `SCM_RIGHTS`: sent over a socket and received again.
    Passed,
    /// `SCM_RIGHTS`, with the original closed between sending and receiving.
    PassedAndClosed,
}

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitCall {
    /// epoll_wait(2).
    Wait,
    /// epoll_pwait(2).
    Pwait(Mask),
    /// epoll_pwait2(2).
    Pwait2(Mask),
}

/// The signal mask of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mask {
    /// The null pointer: no mask.
    Null,
    /// A mask that blocks nothing.
    Empty,
    /// A mask at an address without access.
    Nowhere,
}

/// The time limit of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timeout {
    /// 0: the wait does not sleep.
    Zero,
    /// Some microseconds; epoll_wait(2) and epoll_pwait(2) round up to milliseconds.
    Micros(u16),
    /// No limit if it is certain that something is ready, else 0.
    Infinite,
    /// A time that epoll_pwait2(2) may refuse: seconds and nanoseconds.
    Nonsense(i8, i64),
}

/// What a timer is set to. It does not matter when the call is made: the time has passed already,
/// or does not come while the program runs, or not before an operation that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Time {
    /// A time that has passed: the timer expires at once.
    Past,
    /// A time that has passed, with an interval of a hundred years.
    PastAndAgain,
    /// So soon that [`Op::Expiry`](super::Op::Expiry) can wait for it.
    Near,
    /// A hundred years from now.
    Far,
    /// 0: the timer is disarmed.
    Never,
    /// Flags, seconds and nanoseconds of any kind.
    Nonsense(i32, i8, i64),
}

/// How a forked child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It calls `_exit`.
    Exit,
    /// A signal ends it.
    Killed,
    /// It executes a program, which ends at once.
    Exec,
}
