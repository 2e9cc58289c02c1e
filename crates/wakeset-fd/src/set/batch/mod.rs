//! Several epoll_ctl(2) commands in one call, in order, each with its own result:
//! `epoll_ctl_batch`, proposed to Linux in 2012 and 2015 and merged neither time.
//!
//! The result of a batch is that of a loop of epoll_ctl(2). What it saves:
//!
//! - the lock of the set's in-process half is taken once for all commands of a window;
//! - commands on kernel descriptors, if there are many, go to the kernel together
//!   (`CommandUring`), where it allows that.
//!
//! All commands are done when the call returns: a caller that has removed a descriptor may close it
//! then, and use its number for another.
//!
//! **Order.** Commands on different descriptors do not see each other. So in a window of `WINDOW`
//! commands in which no descriptor comes twice the two kinds are gathered, and the kernel may put a
//! command aside that meets a lock. In other windows, and in a batch that stops at an error, each
//! command begins when the one before it is done.
//!
//! | file | what |
//! |---|---|
//! | this one | the call and its commands |
//! | `window` | one window: which way each command goes |
//! | `in_process` | the commands on the set's in-process half |
//! | `in_kernel` | the commands that go to the kernel together |

mod in_kernel;
mod in_process;
mod window;

use crate::kernel_half::uring::command_uring::CommandUring;
use crate::sys::Errno;
use crate::table::{self, Entry};
use core::ffi::c_int;
use core::fmt;
use libc::{ECANCELED, EPOLL_CTL_DEL, epoll_event};
use wakeset::{Event, Events, mutated};

/// Commands that are treated together. With the preload library, signals that come to the program
/// meanwhile wait for the end of a window.
const WINDOW: usize = 256;
/// The number of commands on kernel descriptors from which an io_uring is worth making: it saves
/// some 0.1 µs a command, and costs 20 µs.
const WORTH_A_URING: usize = 512;

/// Flag of [`epoll_ctl_batch`]: make no further change after one that fails.
pub const STOP_AT_ERROR: c_int = 1;
/// Flag of [`epoll_ctl_batch`]: do not use io_uring. This is for a program whose own seccomp(2)
/// filter kills a process that calls io_uring_setup(2). A filter that makes that call fail needs no
/// flag.
pub const SINGLE_CALLS: c_int = 2;

/// One command, as in C: `struct ws_epoll_ctl_cmd`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Command {
    /// `EPOLL_CTL_ADD`, `EPOLL_CTL_MOD` or `EPOLL_CTL_DEL`.
    pub op: c_int,
    /// The descriptor that the command is about.
    pub fd: c_int,
    /// As in epoll_ctl(2); ignored by `EPOLL_CTL_DEL`.
    pub event: epoll_event,
    /// Set by the call: 0, or the errno of this command, negated; `-ECANCELED` if the batch
    /// stopped before it.
    pub result: c_int,
}

impl Command {
    /// A command that has not been carried out.
    pub const fn new(op: c_int, fd: c_int, events: u32, data: u64) -> Self {
        Self { op, fd, event: epoll_event { events, u64: data }, result: 0 }
    }

    fn asked(&self) -> Event {
        match self.op {
            EPOLL_CTL_DEL => Event::default(),
            _ => Event::new(Events::from_bits_retain(self.event.events), self.event.u64),
        }
    }

    fn set_result(&mut self, result: Result<(), Errno>) {
        self.result = result.map_or_else(|error| -error.into_raw(), |()| 0);
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (events, data) = (self.event.events, self.event.u64);
        let named = &mut f.debug_struct("Command");
        named
            .field("op", &self.op)
            .field("fd", &self.fd)
            .field("events", &events)
            .field("data", &data);
        named.field("result", &self.result).finish()
    }
}

/// Makes several changes to the set `epfd`, in order, each as epoll_ctl(2) would. Returns how many
/// succeeded.
///
/// Each command has its own result afterwards, and all changes that were made are in force. This is
/// no transaction: what was changed stays so if a later command fails.
///
/// `flags`: 0, or [`STOP_AT_ERROR`] and [`SINGLE_CALLS`].
///
/// Where io_uring is used and another thread is busy in the set at that moment, a limit (ENOSPC,
/// ENOMEM, the path limits) may refuse another of the commands than in a loop, and the order in
/// which what is ready is reported first may differ.
///
/// # Errors
/// EINVAL for unknown flags, and nothing is done. All other errors, also that of a wrong `epfd`,
/// are results of the commands.
#[doc(alias = "ws_epoll_ctl_batch")]
pub fn epoll_ctl_batch(
    epfd: c_int,
    flags: c_int,
    commands: &mut [Command],
) -> Result<usize, Errno> {
    if flags & !(STOP_AT_ERROR | SINGLE_CALLS) != 0 {
        return Err(Errno::EINVAL);
    }
    let stop = flags & STOP_AT_ERROR != 0;
    let mut batch = Batch { epfd, stop, uring: None };
    if flags & SINGLE_CALLS == 0 && commands.len() >= WORTH_A_URING {
        let of_kernel = commands
            .iter()
            .filter(|command| matches!(table::get(command.fd), Entry::Kernel))
            .count();
        batch.uring = (of_kernel >= WORTH_A_URING).then(CommandUring::open).flatten();
    }
    let mut stopped = false;
    for window in commands.chunks_mut(WINDOW) {
        if stopped && !mutated!("batch_stops_one_window") {
            window.iter_mut().for_each(|command| command.result = -ECANCELED);
        } else {
            stopped = batch.run_window(window);
        }
    }
    Ok(commands.iter().filter(|command| command.result == 0).count())
}

/// One call.
struct Batch {
    epfd: c_int,
    /// Whether it stops at an error.
    stop: bool,
    uring: Option<CommandUring>,
}
