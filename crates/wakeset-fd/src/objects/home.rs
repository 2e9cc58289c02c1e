//! The way home: a call that finds its object away brings it home, or is made on the kernel object
//! and counted there. `docs/design/home.md` has why that is exact.

use crate::objects::counter;
use crate::sys::Errno;
use crate::sys::cancel;
use crate::sys::process::is_owner;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::verdict::Verdict;
use crate::table::away::{self, Begun, Watched};
use crate::table::migrating::Migrating;
use crate::table::object::Host;
use crate::table::{self, Entry, SlotHead, gate};
use core::ffi::c_int;
use wakeset::{Event, Events, mutated};

/// A write of an object that is away. `None`: it has come home, or is just coming; look the number
/// up again.
pub(crate) fn write(
    fd: c_int,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Option<Verdict<usize>> {
    if (!has_edges(fd) || mutated!("edge_is_tried_unread")) && comes(fd) {
        return None;
    }
    counted(fd, call)
}

/// A read of one, as [`write`].
pub(crate) fn read(
    fd: c_int,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Option<Verdict<usize>> {
    if !has_edges(fd) {
        return if comes(fd) { None } else { counted(fd, call) };
    }
    let verdict = counted(fd, call)?;
    // Now it is empty, unless somebody has just written.
    if matches!(verdict, Verdict::Done(Ok(_) | Err(Errno::EAGAIN))) {
        let _ = comes(fd);
    }
    Some(verdict)
}

/// Whether what is away comes home only while it is empty, because edges of it are reported.
fn has_edges(fd: c_int) -> bool {
    matches!(away::watched(fd), Watched::By { asked, .. } if asked.events.contains(Events::ET))
}

/// Brings an eventfd home, if that is due.
fn comes(fd: c_int) -> bool {
    away::is_due(fd) && is_set_here(fd) && come(fd, |is_semaphore| counter_comes(fd, is_semaphore))
}

/// A call on the kernel object of a number that is away, where nothing has come home. `None`: look
/// the number up again.
pub(crate) fn counted<T>(fd: c_int, call: impl FnOnce() -> Result<T, Errno>) -> Option<Verdict<T>> {
    // First: a handler may fork at any moment.
    let forks = away::forks();
    match away::begin_call(fd) {
        Begun::Again => None,
        Begun::Left => Some(Verdict::Kernel),
        Begun::Counted => {
            // As any call on a kernel object.
            let result = cancel::point(call);
            away::end_call(fd, forks);
            Some(Verdict::Done(result))
        }
    }
}

/// Brings an object home by `make`, as [`away::bring_home`], if nothing is in the way.
#[cold]
pub(crate) fn come(fd: c_int, make: impl FnOnce(bool) -> bool) -> bool {
    if signal_guard::is_inside() || !is_owner() {
        return false;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    // A fork or a vfork(2) waits for us, or its child has the number already.
    gate::is_open() && away::bring_home(fd, make)
}

/// A set that watches what comes home, in its kernel half so far.
#[derive(Clone, Copy)]
pub(crate) struct Watcher {
    set: &'static dyn Host,
    pub(crate) asked: Event,
}

impl Watcher {
    /// Takes the watch out of the kernel half. `false`: it is not there, because the number stands
    /// for another file by now.
    pub(crate) fn give_up(&self, fd: c_int) -> bool {
        let was_there = self.set.give_up_watch(fd, self.asked) || mutated!("next_file_is_watched");
        if !was_there {
            away::lose_watch(fd);
        }
        was_there
    }

    /// Watches the object here.
    pub(crate) fn take_back(&self, fd: c_int, source: &'static SlotHead) -> bool {
        self.set.take_back(fd, source, self.asked)
    }

    /// Watches it in the kernel half again.
    pub(crate) fn leave(&self, fd: c_int) {
        self.set.leave_watch(fd, self.asked);
    }
}

fn set_at(fd: c_int) -> Option<&'static SlotHead> {
    match table::peek(fd) {
        Entry::Object(head) if head.kind() == table::SET => Some(head),
        _ => None,
    }
}

/// Whether the set that watches an object is here, if there is one. If it is the kernel's for good,
/// so is the object.
fn is_set_here(fd: c_int) -> bool {
    match away::watched(fd) {
        Watched::No => true,
        // In this order: it may come home in between.
        Watched::By { set, .. } if away::is(set) => false,
        Watched::By { set, .. } if set_at(set).is_some() => true,
        Watched::By { .. } | Watched::Unclear => {
            let _ = away::doubt(fd);
            false
        }
    }
}

/// An eventfd comes home, with its watch. The caller holds the migrations lock.
fn counter_comes(fd: c_int, is_semaphore: bool) -> bool {
    let Watched::By { set, asked } = away::watched(fd) else {
        return counter::come_home(fd, is_semaphore, None);
    };
    // Its number stays what it is meanwhile.
    let mut marked = Migrating::none();
    let Some(head) = set_at(set).filter(|head| marked.begin(head)) else { return false };
    let Some(set) = head.object().as_host().filter(|set| set.begin_return(asked)) else {
        // It does not watch here what it watches there. The next call keeps the object there.
        away::lose_watch(fd);
        return false;
    };
    let has_come = counter::come_home(fd, is_semaphore, Some(Watcher { set, asked }));
    set.toggle_unsettled();
    has_come
}
