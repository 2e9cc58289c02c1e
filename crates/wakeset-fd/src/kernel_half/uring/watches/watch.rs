//! One polled descriptor: its state, and the events it can be watched for.

use core::ffi::c_int;
use wakeset::{Events, mutated};

/// One watch; all zero for none.
#[repr(C)]
pub(crate) struct Watch {
    pub(crate) data: u64,
    pub(crate) events: u32,
    /// Counts the polls of this number. A completion of an earlier poll belongs to no watch.
    pub(super) generation: u32,
    /// The next watch in the queue, by number plus one.
    pub(super) next: c_int,
    /// [`WATCHED`] and so on.
    pub(super) state: u32,
    /// The events that completions have named since the watch was last checked.
    pub(super) hinted: u32,
}

/// State: the number is watched here.
pub(super) const WATCHED: u32 = 1;
/// State: the io_uring has a poll for it.
pub(super) const ARMED: u32 = 2;
/// State: the watch is in the queue of those to check.
pub(super) const QUEUED: u32 = 4;
/// State: the completions since the last check do not name all there is to report.
pub(super) const CHECK: u32 = 8;
/// State: nor will they ever. Either the wake-ups of this file do not say why they came, or the
/// file has come to an end, which later completions do not name.
pub(super) const ALWAYS_CHECK: u32 = 16;

/// What a watch can ask for here.
const ALLOWED: u32 = 0x27df | libc::EPOLLET as u32;
/// The part of it that poll(2) is asked for.
pub(super) const POLLED: u32 = 0x27df & !ALWAYS;
/// What a completion can be believed about.
pub(super) const DATA: u32 =
    (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
/// What it cannot be believed about: a socket's wake-ups for data and for room name these too,
/// whatever has come.
pub(super) const URGENT: u32 = (libc::EPOLLPRI | libc::EPOLLRDBAND | libc::EPOLLWRBAND) as u32;
/// What is reported without being asked for.
pub(super) const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// The user data of a poll.
pub(super) fn user_data(fd: c_int, generation: u32) -> u64 {
    u64::from(generation) << 32 | (fd as u32 as u64 + 1)
}

/// The number that a poll with this user data is for, below 0 for none.
pub(super) fn number_in(user_data: u64) -> c_int {
    (user_data as u32).wrapping_sub(1) as c_int
}

/// The wake-ups that a poll for `events` has to hear of: those that Linux's epoll would, and no
/// other, or an edge would be reported twice. io_uring does not heed `POLLPRI`, which no socket
/// says without `POLLIN` or `POLLERR`.
pub(super) fn wake_ups_for(events: u32) -> u32 {
    if mutated!("polls_hear_of_all") {
        return ALLOWED & !(libc::EPOLLET as u32);
    }
    let urgent = if events & libc::EPOLLPRI as u32 != 0 { libc::EPOLLIN as u32 } else { 0 };
    events & POLLED | ALWAYS | urgent
}

/// Returns whether a watch here can ask for these events.
pub(crate) fn can_ask_for(events: Events) -> bool {
    events.bits() & !ALLOWED == 0
}

impl Watch {
    pub(crate) fn is_queued(&self) -> bool {
        self.state & QUEUED != 0
    }

    pub(super) fn is_watched(&self) -> bool {
        self.state & WATCHED != 0
    }

    pub(super) fn is_armed(&self) -> bool {
        self.state & ARMED != 0
    }
}
