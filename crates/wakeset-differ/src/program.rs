//! Programs: lists of calls whose arguments are slots.
//!
//! A slot holds a descriptor number: of what was last made for it, also after a close, so that a program naturally uses
//! numbers that are closed, or that stand for another object by now.

use serde::{Deserialize, Serialize};

/// Slots a program has.
pub const SLOTS: u8 = 16;

/// Numbers that no program's object has, named as the slots from [`SLOTS`] on. Those from 400 on are where Wakeset keeps its doorbells.
pub const BAD_NUMBERS: [i32; 8] = [-1, 399, 400, 401, 1023, 1 << 20, i32::MAX, i32::MIN];

/// Where a call is told to find its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum At {
    /// Where it is.
    Good,
    /// Nowhere: null.
    Null,
    /// Nowhere: address 8.
    Low,
    /// Nowhere: an address of the kernel's.
    High,
    /// A page without access.
    Forbidden,
    /// A page that cannot be written.
    ReadOnly,
    /// So many bytes before a page without access.
    Before(u8),
}

/// How a description gets another descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Duplication {
    /// dup(2): the lowest number.
    Lowest,
    /// fcntl(2), `F_DUPFD` from this number on.
    From(u16),
    /// fcntl(2), `F_DUPFD_CLOEXEC` from this number on.
    CloexecFrom(u16),
    /// dup2(2) onto this number.
    Onto(u16),
    /// dup2(2) onto the number of this slot.
    OntoSlot(u8),
    /// dup3(2) onto the number of this slot, with these flags.
    OntoSlotWith(u8, i32),
    /// `SCM_RIGHTS`: sent over a socket and received again.
    Passed,
    /// `SCM_RIGHTS`, and closed between the two.
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

/// The signal mask given to a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mask {
    /// None.
    Null,
    /// One that blocks nothing.
    Empty,
    /// One at an address that is not there.
    Nowhere,
}

/// How long a wait is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patience {
    /// Not at all.
    None,
    /// Some microseconds; epoll_wait(2) and epoll_pwait(2) round up to milliseconds.
    Micros(u16),
    /// For ever, if it is certain that something is ready; else not at all.
    ForEver,
    /// A time that is none, for epoll_pwait2(2): seconds and nanoseconds.
    Nonsense(i8, i64),
}

/// One command of a batch.
#[allow(missing_docs, reason = "the fields are the call's arguments")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub op: i32,
    pub target: u8,
    pub events: u32,
    pub data: u64,
}

/// Commands in a batch.
pub const BATCH: usize = 4;

/// What a timer is set to. Times are such that it does not matter when a call is made: one that has passed, or one that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Time {
    /// A time that has passed: it expires at once.
    Past,
    /// The same, and again after a hundred years.
    PastAndAgain,
    /// In a hundred years.
    Far,
    /// Not at all.
    Never,
    /// Flags, seconds and nanoseconds of any kind.
    Nonsense(i32, i8, i64),
}

/// One call. `u8`s are slots unless said otherwise.
#[allow(missing_docs, reason = "the fields are the calls' arguments")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// eventfd(2).
    Counter { slot: u8, initial: u32, flags: i32 },
    /// timerfd_create(2) on `CLOCK_MONOTONIC`.
    Timer { slot: u8, flags: i32 },
    /// timerfd_settime(2).
    SetTimer { slot: u8, time: Time, at: At },
    /// epoll_create1(2).
    Set { slot: u8, flags: i32 },
    /// pipe2(2), non-blocking: read end, write end.
    Pipe { slot: u8, other: u8 },
    /// socketpair(2), non-blocking streams.
    Sockets { slot: u8, other: u8 },
    /// open(2) of a directory, which epoll does not take.
    Directory { slot: u8 },
    /// close(2).
    Close { slot: u8 },
    /// A second descriptor.
    Duplicate { slot: u8, to: u8, how: Duplication },
    /// write(2) of `len` bytes that begin with `value`.
    Write { slot: u8, value: u64, len: u8, at: At },
    /// read(2) of up to `len` bytes.
    Read { slot: u8, len: u8, at: At },
    /// writev(2) of `value` in one piece.
    WriteVector { slot: u8, value: u64 },
    /// readv(2) of eight bytes in one piece.
    ReadVector { slot: u8 },
    /// pread(2) of eight bytes, which none of the objects can.
    ReadAt { slot: u8 },
    /// epoll_ctl(2).
    Ctl { set: u8, op: i32, target: u8, events: u32, data: u64, at: At },
    /// Several epoll_ctl(2), in one call where the side has one; with `stop` none behind an error.
    Batch { set: u8, stop: bool, commands: [Command; BATCH] },
    /// An event ring of so many slots, where the side has rings. The kernel has none, and the same events.
    /// With `polls` its sockets are watched through an io_uring.
    Ring {
        set: u8,
        entries: u8,
        #[serde(default)]
        polls: bool,
    },
    /// epoll_wait(2) and its kin.
    Wait { set: u8, room: i32, patience: Patience, call: WaitCall, at: At },
    /// fcntl(2) with `F_SETFL`, or ioctl(2) with `FIONBIO`.
    Nonblocking { slot: u8, on: bool, ioctl: bool },
    /// poll(2) of two, without waiting.
    Poll { slots: [u8; 2], events: i16 },
    /// select(2) for reading and writing, without waiting.
    Select { slot: u8 },
    /// splice(2) of eight bytes.
    Splice { from: u8, to: u8 },
    /// shutdown(2).
    Shutdown { slot: u8, how: i32 },
    /// fork(2) of a child that ends at once.
    Fork,
    /// Closes everything, as between programs.
    CloseAll,
    /// From here on calls are made by syscall(2), or not; see [`Program::by_number`].
    Route { by_number: bool },
}

/// A list of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Make the calls by syscall(2) where the side has a choice.
    pub by_number: bool,
    /// In this order.
    pub ops: Vec<Op>,
}

/// Several programs as one.
pub fn join(programs: &[Program]) -> Program {
    let mut ops = Vec::new();
    for (i, program) in programs.iter().enumerate() {
        if i > 0 {
            ops.extend([Op::CloseAll, Op::Route { by_number: program.by_number }]);
        }
        ops.extend_from_slice(&program.ops);
    }
    Program { by_number: programs.first().is_some_and(|program| program.by_number), ops }
}
