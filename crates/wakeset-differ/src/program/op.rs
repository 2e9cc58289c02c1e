//! One call of a program.

use super::{At, Duplication, Ending, Road, Time, Timeout, WaitCall};
use serde::{Deserialize, Serialize};

/// Commands of a batch.
pub const BATCH: usize = 4;

/// How long each of several buffers is.
pub type Lens = [u8; 4];

/// One command of a batch.
#[allow(missing_docs, reason = "the fields are the call's arguments")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub op: i32,
    pub target: u8,
    pub events: u32,
    pub data: u64,
}

/// One call. A field of type `u8` is a slot unless its description says otherwise.
#[allow(missing_docs, reason = "the fields are the calls' arguments")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// eventfd(2).
    Counter { slot: u8, initial: u32, flags: i32 },
    /// timerfd_create(2) on `CLOCK_MONOTONIC`.
    Timer { slot: u8, flags: i32 },
    /// timerfd_settime(2).
    SetTimer { slot: u8, time: Time, at: At },
    /// timerfd_gettime(2).
    TimeLeft { slot: u8 },
    /// epoll_create1(2).
    Set { slot: u8, flags: i32 },
    /// pipe2(2), non-blocking: read end, write end. From an even slot the pipe has `O_DIRECT`.
    Pipe { slot: u8, other: u8 },
    /// socketpair(2), non-blocking: streams, or `SOCK_SEQPACKET` from an even slot.
    Sockets { slot: u8, other: u8 },
    /// open(2) of a directory, which epoll does not take.
    Directory { slot: u8 },
    /// open(2) of a new regular file.
    File { slot: u8 },
    /// close(2).
    Close { slot: u8 },
    /// close(2), open(2) of a new regular file, write(2) and pread(2), each by a road of its own:
    /// the number is used again. By instruction where that is not seen, only if it is the next one.
    Reuse { slot: u8, roads: [Road; 4] },
    /// One of the ways to get a second descriptor.
    Duplicate { slot: u8, to: u8, how: Duplication },
    /// write(2) of `len` bytes that begin with `value`.
    Write { slot: u8, value: u64, len: u8, at: At },
    /// read(2) of up to `len` bytes.
    Read { slot: u8, len: u8, at: At },
    /// writev(2) of `value` in one piece.
    WriteVector { slot: u8, value: u64 },
    /// readv(2) of eight bytes in one piece.
    ReadVector { slot: u8 },
    /// writev(2) of several buffers of so many bytes, which begin with `value`; as a message:
    /// sendmsg(2).
    WritePieces { slot: u8, value: u64, lens: Lens, message: bool },
    /// readv(2) into several buffers of so many bytes; as a message: recvmsg(2).
    ReadPieces { slot: u8, lens: Lens, message: bool },
    /// Several write(2) into a pipe, of which the last ones wait for room, by a second thread; and
    /// read(2), each of up to four times `len` bytes, until all have come. With `late` the reads
    /// begin when the second thread is likely to sleep.
    WriteWaiting { slot: u8, value: u8, len: u8, late: bool },
    /// pread(2) of eight bytes, which none of the objects supports.
    ReadAt { slot: u8 },
    /// epoll_ctl(2).
    Ctl { set: u8, op: i32, target: u8, events: u32, data: u64, at: At },
    /// Several epoll_ctl(2), in one call where the side has such a call. With `stop` the commands
    /// after a failed one are not carried out.
    Batch { set: u8, stop: bool, commands: [Command; BATCH] },
    /// An event ring of `entries` slots, where the side has rings. The kernel has none, and reports
    /// the same events. With `polls` an io_uring watches the set's sockets.
    Ring {
        set: u8,
        entries: u8,
        #[serde(default)]
        polls: bool,
    },
    /// epoll_wait(2), epoll_pwait(2) or epoll_pwait2(2).
    Wait { set: u8, maxevents: i32, timeout: Timeout, call: WaitCall, at: At },
    /// Waits on this set until the timer expires that has been set to [`Time::Near`]: with an
    /// epoll_wait(2) that sleeps, unless something is ready before.
    Expiry { set: u8 },
    /// fcntl(2) with `F_SETFL`, or ioctl(2) with `FIONBIO`.
    Nonblocking { slot: u8, on: bool, ioctl: bool },
    /// poll(2) of two descriptors, without waiting.
    Poll { slots: [u8; 2], events: i16 },
    /// select(2) for reading and writing, without waiting.
    Select { slot: u8 },
    /// splice(2) of eight bytes.
    Splice { from: u8, to: u8 },
    /// shutdown(2).
    Shutdown { slot: u8, how: i32 },
    /// fork(2) of a child that ends at once.
    Fork,
    /// fork(2) of a child that lives and is called by this number, from 1 on.
    Child { child: u8 },
    /// From here on, which process makes the calls: this child, or the parent if there is none.
    Turn { child: u8 },
    /// A living child ends, and is waited for.
    End { child: u8, how: Ending },
    /// From here on the process has a second thread, which sleeps.
    Thread,
    /// The program pauses.
    Pause { millis: u16 },
    /// Closes everything, as between two programs.
    CloseAll,
    /// From here on, whether calls are made through syscall(2): see
    /// [`Program::by_number`](super::Program::by_number).
    Route { by_number: bool },
    /// From here on, by which road calls are made, where there are several.
    Take { road: Road },
    /// A plugin is opened in a name space of its own, where there are several roads.
    NameSpace,
}

impl Op {
    /// The slots that the call reads, in the order of its arguments.
    pub fn slots(&self) -> Vec<u8> {
        match *self {
            Op::Close { slot }
            | Op::Reuse { slot, .. }
            | Op::Duplicate { slot, .. }
            | Op::Write { slot, .. }
            | Op::Read { slot, .. }
            | Op::WriteVector { slot, .. }
            | Op::ReadVector { slot }
            | Op::WritePieces { slot, .. }
            | Op::ReadPieces { slot, .. }
            | Op::WriteWaiting { slot, .. }
            | Op::ReadAt { slot }
            | Op::TimeLeft { slot }
            | Op::Nonblocking { slot, .. }
            | Op::Select { slot }
            | Op::Shutdown { slot, .. } => vec![slot],
            Op::Ctl { set, target, .. } => vec![set, target],
            Op::Batch { set, commands, .. } => {
                commands.iter().map(|command| command.target).chain([set]).rev().collect()
            }
            Op::Wait { set, .. } | Op::Ring { set, .. } | Op::Expiry { set } => vec![set],
            Op::Poll { slots, .. } => slots.to_vec(),
            Op::Splice { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }
}
