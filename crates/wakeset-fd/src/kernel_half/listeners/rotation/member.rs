//! One listener in the rotation of a set.

use super::super::baton::{self, Notes, note_of};
use super::super::told::emptied;
use crate::kernel_half::KernelEpoll;
use crate::sys::{self, Errno, complaint};
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLEXCLUSIVE, epoll_event};
use wakeset::mutated;
use wakeset_group::listener::inode;

/// How often a plain watch is tried to be added where there is no memory.
const MOST_TRIES: u32 = 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// The listener, -1 for no member.
    pub(super) fd: c_int,
    /// The events of the watch in the kernel, without `EPOLLEXCLUSIVE`.
    pub(super) events: u32,
    pub(super) data: u64,
    /// Whether the program asked for `EPOLLEXCLUSIVE` itself.
    pub(super) asked_exclusive: bool,
    /// Whether an event was reported since the watch was added, or, for edges, since the listener
    /// was seen to be empty.
    pub(super) due: bool,
    /// How often accept(2) had [found nothing](emptied) on the listener at the last report.
    pub(super) emptied: u32,
    /// How many connections anybody had [accepted](baton::accepted) then, for edges.
    pub(super) accepted: u64,
    /// A look once in a rescue period has found something that it knows of.
    pub(super) seen: bool,
    /// Reports since the watch was added.
    pub(super) reports: u32,
    /// Whether the kernel had no memory to add the watch again.
    pub(super) missing: bool,
    /// Missing, because the set has stepped back (`steps`).
    pub(super) is_stepped: bool,
    /// Another watch of the set may have the same data.
    pub(super) is_ambiguous: bool,
    /// The listener's inode, where known.
    pub(super) inode: Option<u64>,
}

fn lacks_memory(error: Errno) -> bool {
    matches!(error, Errno::ENOMEM | Errno::ENOSPC)
}

impl Member {
    pub(super) const NONE: Self = Self {
        fd: -1,
        events: 0,
        data: 0,
        asked_exclusive: false,
        due: false,
        emptied: 0,
        accepted: 0,
        seen: false,
        reports: 0,
        missing: false,
        is_stepped: false,
        is_ambiguous: false,
        inode: None,
    };

    pub(super) fn is_some(&self) -> bool {
        self.fd >= 0
    }

    pub(super) fn is_edge(&self) -> bool {
        self.events & libc::EPOLLET as u32 != 0
    }

    /// An event was reported.
    pub(super) fn note_report(&mut self) {
        self.due = true;
        self.seen = false;
        self.emptied = emptied(self.fd);
        self.accepted = self.accepted_by_now();
        self.reports = self.reports.saturating_add(1);
    }

    /// What anybody has accepted on a listener that is watched by edges.
    fn accepted_by_now(&self) -> u64 {
        if self.is_edge() { baton::accepted(baton::note_of(self.inode)) } else { 0 }
    }

    /// Whether the program has been told, by an edge, of all that is there: it is not told again.
    /// Once it has followed the edge to its end, or anybody has accepted, what is there may have
    /// come since. The kernel may have woken another waiter alone for that, which declines it.
    /// Where one of several is accepted, this tells of the others once more.
    pub(super) fn knows(&self) -> bool {
        let is_followed =
            || self.emptied != emptied(self.fd) && !mutated!("drained_edge_stays_old");
        let is_taken =
            || self.accepted != self.accepted_by_now() && !mutated!("left_edge_stays_old");
        self.is_edge() && self.due && !is_followed() && !is_taken()
    }

    /// Whether a look once in a rescue period, which finds a connection, tells the program. What it
    /// knows of it may have left, or others have taken that in a way that nobody counts, and more
    /// have come: it is told of that by every second look.
    pub(super) fn is_told_by_look(&mut self) -> bool {
        let knows = self.knows();
        let was_seen = core::mem::replace(&mut self.seen, knows);
        !knows || was_seen && !mutated!("known_edge_stays_known")
    }

    /// Adds the watch to the kernel epoll `epoll`.
    pub(super) fn add(&mut self, epoll: c_int, exclusive: bool) -> Result<(), Errno> {
        let extra = if exclusive { EPOLLEXCLUSIVE as u32 } else { 0 };
        let event = epoll_event { events: self.events | extra, u64: self.data };
        let result = sys::epoll_ctl(epoll, EPOLL_CTL_ADD, self.fd, &raw const event);
        self.missing = result.is_err_and(lacks_memory);
        self.is_stepped = false;
        result
    }

    /// Whether its number is still the listener's, as far as that is known.
    pub(super) fn is_same_file(&self) -> bool {
        self.inode.is_none() || self.inode == inode(self.fd)
    }

    /// Removes the watch; `false` if this number no longer has one.
    pub(super) fn remove(&self, epoll: c_int) -> bool {
        if self.missing {
            return self.is_same_file();
        }
        sys::epoll_ctl(epoll, EPOLL_CTL_DEL, self.fd, ptr::null()).is_ok()
    }

    /// Removes the watch and adds it at the end of the listener's queue.
    pub(super) fn renew(&mut self, epoll: c_int) {
        let removed = self.remove(epoll);
        self.due = false;
        self.seen = false;
        self.reports = 0;
        if !removed || self.add(epoll, true).is_err_and(|error| !lacks_memory(error)) {
            *self = Self::NONE;
        }
    }

    /// Makes the watch what the program asked for, and forgets it.
    pub(super) fn make_plain(&mut self, set: &impl KernelEpoll) {
        let is_plain = self.asked_exclusive && !self.missing;
        if !is_plain && !set.is_closed() && self.remove(set.number()) {
            let exclusive = self.asked_exclusive;
            // A moment later there may be memory.
            let added = (0..MOST_TRIES).any(|_| {
                let result = self.add(set.number(), exclusive);
                if self.missing {
                    sys::sched_yield();
                }
                !self.missing && result != Err(Errno::EINTR)
            });
            if !added {
                complaint::of_watch(set.number(), self.fd, Errno::ENOMEM);
            }
        }
        *self = Self::NONE;
    }
}

/// The notes of all listeners among these.
pub(super) fn notes_of(members: &[Member]) -> Notes {
    let members = members.iter().filter(|member| member.is_some());
    members.fold(0, |notes, member| notes | note_of(member.inode))
}
