//! io_uring_enter(2).

use super::commands;
use super::named::{Hooks, Passed, leave, migrate_named};
use core::ffi::{c_int, c_uint};
use wakeset_fd::program_rings::{self, Entry, Queue, Ring};
use wakeset_fd::{fork, migrate};

/// Flags of io_uring_enter(2).
pub(super) mod flag {
    use core::ffi::c_uint;

    pub(in super::super) const GETEVENTS: c_uint = 1 << 0;
    pub(in super::super) const EXT_ARG: c_uint = 1 << 3;
    pub(in super::super) const REGISTERED_RING: c_uint = 1 << 4;
}

/// A call of io_uring_enter(2).
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Request {
    pub(in super::super) fd: c_int,
    pub(in super::super) count: c_uint,
    pub(in super::super) wanted: c_uint,
    pub(in super::super) flags: c_uint,
    pub(in super::super) argument: usize,
    pub(in super::super) size: usize,
    pub(in super::super) hooks: Hooks,
}

/// io_uring_enter(2), which `make` makes.
pub(in super::super) fn enter(request: Request, make: impl Fn(Request) -> c_int) -> c_int {
    if is_nothing_to_see(request.count) {
        return make(request);
    }
    let Some(ring) = ring_of(request.fd, request.flags) else {
        leave();
        return make(request);
    };
    match look(ring, request, true) {
        Seen::All => make(request),
        Seen::Command => commands::submit(ring, request, make),
    }
}

/// Before an io_uring_enter(2) that is made by instruction. Nothing is answered here.
pub(in super::super) fn before_caught(request: Request) {
    if is_nothing_to_see(request.count) {
        return;
    }
    match ring_of(request.fd, request.flags) {
        Some(ring) => _ = look(ring, request, false),
        None => leave(),
    }
}

/// Whether nothing is submitted, or nothing of this process can be named.
fn is_nothing_to_see(count: c_uint) -> bool {
    count == 0 || migrate::is_for_good()
}

/// The io_uring that is entered. `None`: it is not known.
fn ring_of(fd: c_int, flags: c_uint) -> Option<&'static Ring> {
    if fork::is_foreign() {
        // The numbers of a vfork(2) child are its own.
        return None;
    }
    match flags & flag::REGISTERED_RING {
        0 => program_rings::find(fd),
        _ => program_rings::find_registered(fd),
    }
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// All that is in the queue may go to the kernel.
    All,
    /// There is an epoll_ctl(2) that is to be answered.
    Command,
}

/// So many entries are copied with the lock held.
const AT_ONCE: usize = 4;

/// Some entries, as they were: position, entry, and whether what it names is looked up late.
struct Copies {
    entries: [Option<(u32, Entry, bool)>; AT_ONCE],
    /// After the last one.
    end: u32,
    /// Nothing else is to be looked at: that is all, or an answered command is next.
    is_last: bool,
    /// The last one has the next one wait.
    is_linked: bool,
}

/// Looks at all that the program has handed over: another thread may be about to submit, too, and
/// the kernel takes the entries in order, whoever has added them. What they name migrates.
pub(super) fn look(ring: &Ring, request: Request, may_answer: bool) -> Seen {
    let (mut next, mut is_linked) = (None, false);
    loop {
        let Some(mut queue) = ring.lock() else { return Seen::All };
        let may_answer = may_answer && commands::may_answer(&queue, request.flags);
        let Some(window) = queue.window().filter(|(head, _)| !queue.has_missed(*head)) else {
            drop(queue);
            leave();
            return Seen::All;
        };
        let copies = match copy(&mut queue, window, next, is_linked, |at, entry| {
            (may_answer && commands::is_answered(entry)).then(|| is_due(at, window, request.count))
        }) {
            Ok(copies) => copies,
            Err(seen) => {
                drop(queue);
                if seen == Seen::All {
                    leave();
                }
                return seen;
            }
        };
        drop(queue);
        for (at, entry, is_late) in copies.entries.into_iter().flatten() {
            if migrate_named(&entry, is_late, request.hooks) == Passed::Hidden
                && let Some(queue) = ring.lock()
            {
                queue.close_number(at);
            }
        }
        if let Some(mut queue) = ring.lock() {
            queue.note_seen(copies.end);
        }
        if copies.is_last {
            return Seen::All;
        }
        (next, is_linked) = (Some(copies.end), copies.is_linked);
    }
}

/// Copies entries from `next` on, or from the first. `is_answered` says of a command that is to be
/// answered whether this call submits it. `Err`: there is such a command, or (`Seen::All`) the
/// memory is not there.
fn copy(
    queue: &mut Queue<'_>,
    (head, tail): (u32, u32),
    next: Option<u32>,
    is_linked: bool,
    is_answered: impl Fn(u32, &Entry) -> Option<bool>,
) -> Result<Copies, Seen> {
    // Another thread may have submitted meanwhile.
    let start = next.filter(|at| is_within(*at, head, tail)).unwrap_or(head);
    let mut copies =
        Copies { entries: [None; AT_ONCE], end: start, is_last: start == tail, is_linked };
    for place in &mut copies.entries {
        if copies.is_last {
            break;
        }
        let entry = queue.entry(copies.end).ok_or(Seen::All)?;
        let is_late = queue.note_late(&entry) || copies.is_linked;
        if !copies.is_linked {
            match is_answered(copies.end, &entry) {
                // All is looked at once more, with what comes after it.
                Some(true) => return Err(Seen::Command),
                // So will this be, when it is submitted.
                Some(false) => {
                    copies.is_last = true;
                    break;
                }
                None => {}
            }
        }
        *place = Some((copies.end, entry, is_late));
        copies.is_linked = entry.is_linked();
        copies.end = copies.end.wrapping_add(1);
        copies.is_last = copies.end == tail;
    }
    Ok(copies)
}

/// Whether a call that submits `count` entries submits the one at a position.
fn is_due(at: u32, (head, tail): (u32, u32), count: c_uint) -> bool {
    at.wrapping_sub(head) < count.min(tail.wrapping_sub(head))
}

/// Whether a position is one from `first` to `last`.
fn is_within(at: u32, first: u32, last: u32) -> bool {
    at.wrapping_sub(first) <= last.wrapping_sub(first)
}
