//! The way home of a pair that has migrated for forked children: only while nothing is in it and
//! both ends are open, so that it is as new.
//!
//! Both ends set out, and no call is in either, so nothing changes in the kernel's pair meanwhile.
//! How much it holds is asked before the first write, as of a new one.

use super::{FdPipe, NONBLOCK, SOCKET, capacity, create};
use crate::objects::home::{self, Watcher};
use crate::objects::migratable::Migratable;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys;
use crate::table::away::Return;
use crate::table::slot::end_use_guarded;
use crate::table::{self, away, left};
use core::ffi::{c_int, c_short};
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{POLLIN, POLLOUT, POLLPRI, POLLRDHUP, pollfd};
use wakeset::mutated;

/// The end that was under a number, if it may come home or is just coming.
fn end_away(fd: c_int) -> Option<&'static FdPipe> {
    away::slot(fd).filter(|_| away::is(fd))?.downcast()
}

/// The numbers of a pair of which both ends are away, by that of one. `None`: the other end is
/// closed, or stays in the kernel.
pub(crate) fn numbers_away(fd: c_int) -> Option<[c_int; 2]> {
    let end = end_away(fd)?;
    let bound = end.bound()?;
    let other = bound.end(1 - bound.index())?;
    let number = other.head.fd();
    // Its slot may be that of an end of another pair by now.
    let is_away = end_away(number).is_some_and(|found| ptr::eq(found, other));
    let binding = |end: &FdPipe| end.binding.load(Ordering::Acquire);
    if !is_away || binding(end) != binding(other) {
        return None;
    }
    Some(if bound.index() == 0 { [fd, number] } else { [number, fd] })
}

/// Makes a pair of the kernel's one of ours, with the watches of its ends. It has these numbers,
/// the first end's first; nobody else has it, and no call is in it.
pub(crate) fn come_home(fds: [c_int; 2], watchers: [Option<Watcher>; 2]) -> Return {
    let was_socket = |end: &FdPipe| end.mode.load(Ordering::Relaxed) & SOCKET != 0;
    let is_socket = end_away(fds[0]).is_some_and(was_socket);
    match state_of(fds, is_socket) {
        Return::Home => {}
        state => return state,
    }
    let kind = if is_socket { SOCKET } else { 0 };
    let mode = |nonblocking| kind | if nonblocking { NONBLOCK } else { 0 };
    let [Some(first), Some(second)] = fds.map(|fd| home::is_nonblocking(fd).map(mode)) else {
        return Return::Later;
    };
    let Some(ends) = create::slots(fds) else { return Return::Later };
    if !give_up_watches(fds, watchers) {
        ends.into_iter().for_each(end_use_guarded);
        return Return::Later;
    }
    create::begin_here(ends, [first, second]);
    if !take_watches_back(fds, ends, watchers) {
        end_at_once(ends);
        leave_watches(fds, watchers);
        return Return::Later;
    }
    for (fd, end) in fds.into_iter().zip(ends) {
        left::forget(fd);
        table::put_object(fd, end);
    }
    count(Stat::HomeFork, 1);
    Return::Home
}

/// What the kernel says of a pair: it may come home only while it is as new.
fn state_of(fds: [c_int; 2], is_socket: bool) -> Return {
    let events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP;
    let mut entries = fds.map(|fd| pollfd { fd, events, revents: 0 });
    if !sys::poll_all_now(&mut entries) {
        return Return::Later;
    }
    let found = entries.map(|entry| entry.revents);
    let is_odd = |found: &c_short| found & !(POLLIN | POLLOUT) != 0;
    if found.iter().any(is_odd) {
        // An end is closed or shut down, by whatever call.
        return Return::Never;
    }
    let is_new = found == if is_socket { [POLLOUT; 2] } else { [0, POLLOUT] };
    if !is_new && !mutated!("pair_comes_home_full") {
        return Return::Later;
    }
    // Messages that have been read may count for a moment more.
    let counts = |fd: &c_int| capacity::unread(*fd) != Some(0);
    Return::from(!is_socket || !fds.iter().any(counts))
}

/// Takes the watches of both ends out of the kernel halves of their sets. `false`: a number is
/// another file's, and nothing has changed.
fn give_up_watches(fds: [c_int; 2], watchers: [Option<Watcher>; 2]) -> bool {
    let is_known =
        |(fd, watcher): (c_int, Option<Watcher>)| watcher.is_some() || away::is_known(fd);
    // Those without a watch first, because to ask changes nothing.
    if !fds.into_iter().zip(watchers).all(is_known) {
        return false;
    }
    let gives_up =
        |fd: c_int, watcher: Option<Watcher>| watcher.is_none_or(|watcher| watcher.give_up(fd));
    let ([first, second], [firsts, seconds]) = (fds, watchers);
    if !gives_up(first, firsts) {
        return false;
    }
    let both = gives_up(second, seconds);
    if !both && let Some(watcher) = firsts {
        watcher.leave(first);
    }
    both
}

/// Watches both ends here; whether that could be done.
fn take_watches_back(
    fds: [c_int; 2],
    ends: [&'static FdPipe; 2],
    watchers: [Option<Watcher>; 2],
) -> bool {
    let mut watched = fds.into_iter().zip(ends).zip(watchers);
    watched.all(|((fd, end), watcher)| watcher.is_none_or(|it| it.take_back(fd, &end.head)))
}

/// Watches both ends in the kernel halves again.
fn leave_watches(fds: [c_int; 2], watchers: [Option<Watcher>; 2]) {
    for (fd, watcher) in fds.into_iter().zip(watchers) {
        if let Some(watcher) = watcher {
            watcher.leave(fd);
        }
    }
}

/// Ends a pair that no number stands for, with its watches. What a call has written that comes
/// late, with an end of the pair before this one, goes to the kernel.
fn end_at_once(ends: [&'static FdPipe; 2]) {
    if mutated!("given_up_pair_goes_on") {
        return;
    }
    if let Some(bound) = ends[0].bound() {
        bound.pair.residence.close();
        ends[0].seal_words();
        bound.pair.pipes.iter().for_each(|pipe| _ = pipe.wake_sealed());
    }
    ends.iter().for_each(|end| end.queue.close());
    ends.into_iter().for_each(end_use_guarded);
}

#[cfg(test)]
mod tests;
