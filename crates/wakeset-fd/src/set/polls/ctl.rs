//! epoll_ctl(2) on what an io_uring polls, or is to poll.

use super::life::{begin, give_up};
use crate::kernel_half::uring::sockets::is_plain_socket;
use crate::kernel_half::uring::watches::{Watches, can_ask_for};
use crate::set::FdSet;
use crate::sys::sync::Ordering;
use crate::sys::{self, Errno};
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Event, Events};

/// epoll_ctl(2) on a kernel descriptor; `None` if the kernel epoll has to do it.
pub(crate) fn epoll_ctl(
    set: &FdSet,
    op: c_int,
    fd: c_int,
    asked: Event,
) -> Option<Result<(), Errno>> {
    let polls = &set.polls;
    let wants = polls.wanted.load(Ordering::SeqCst) != 0;
    if !(polls.are_active() || wants && op == EPOLL_CTL_ADD) {
        return None;
    }
    if !polls.are_mine() {
        give_up(set);
        return None;
    }
    let suits = op == EPOLL_CTL_ADD && can_ask_for(asked.events) && is_plain_socket(fd);
    if wants && suits {
        begin(set);
    }
    let result = polls.with(|watches| {
        if !polls.are_usable(watches) {
            return None;
        }
        let watched = watches.is_watched(fd)?;
        match op {
            EPOLL_CTL_ADD if watched => {
                // In this order, as epoll_ctl(2).
                let exclusive = asked.events.contains(Events::EXCLUSIVE);
                let invalid = exclusive && !Events::EXCLUSIVE_OK.contains(asked.events);
                Some(Err(if invalid { Errno::EINVAL } else { Errno::EEXIST }))
            }
            EPOLL_CTL_ADD if suits => {
                let also_in = (!set.state.has_only_polls()).then(|| set.fd());
                watches.add(fd, asked, also_in)
            }
            EPOLL_CTL_MOD if watched => {
                let modified = watches.modify(fd, asked);
                Some(modified.unwrap_or_else(|| move_to_epoll(set, watches, fd, asked)))
            }
            EPOLL_CTL_DEL if watched => {
                watches.remove(fd);
                Some(Ok(()))
            }
            _ => None,
        }
    });
    if polls.with(|watches| watches.broken) {
        give_up(set);
    }
    result
}

/// Watches a number in the kernel epoll from now on, as asked.
fn move_to_epoll(set: &FdSet, watches: &mut Watches, fd: c_int, asked: Event) -> Result<(), Errno> {
    let event = epoll_event { events: asked.events.bits(), u64: asked.data };
    set.state.note_kernel_edges();
    set.state.note_not_only_polls();
    let added = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event);
    if added.is_ok() {
        watches.remove(fd);
    }
    added
}
