//! epoll_ctl(2) on what an io_uring polls, or is to poll.

use super::life::{begin, give_up};
use crate::kernel_half::uring::sockets::is_plain_socket;
use crate::kernel_half::uring::watches::can_ask_for;
use crate::set::FdSet;
use crate::sys::sync::{Ordering, mutant};
use crate::sys::{self, Errno};
use crate::table::gate::hold_migrations;
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
    let mut moves = false;
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
                moves = modified.is_none();
                modified
            }
            EPOLL_CTL_DEL if watched => {
                watches.remove(fd);
                Some(Ok(()))
            }
            _ => None,
        }
    });
    let result = if moves { move_to_epoll(set, fd, asked) } else { result };
    if polls.with(|watches| watches.broken) {
        give_up(set);
    }
    result
}

/// Watches a number in the kernel epoll from now on, as asked. `None`: it is no longer watched
/// here, so the kernel epoll has to do it.
fn move_to_epoll(set: &FdSet, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
    let has_edges = asked.events.intersects(Events::ET | Events::ONESHOT);
    // Not while a migration is taking reports out of the kernel epoll.
    let waits = has_edges && !set.state.has_asked_edges();
    let _migrating = (waits && !mutant!("polls_moved_beside_a_migration")).then(hold_migrations);
    set.polls.with(|watches| {
        if !set.polls.are_usable(watches) || watches.is_watched(fd) != Some(true) {
            return None;
        }
        if has_edges {
            set.state.note_kernel_edges();
        }
        set.state.note_not_only_polls();
        let event = epoll_event { events: asked.events.bits(), u64: asked.data };
        let added = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event);
        if added.is_ok() {
            watches.remove(fd);
        }
        Some(added)
    })
}
