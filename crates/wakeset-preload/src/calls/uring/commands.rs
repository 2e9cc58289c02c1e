//! epoll_ctl(2) as a request of an io_uring (`IORING_OP_EPOLL_CTL`), as libuv makes it to change
//! many watches with one call.
//!
//! Where the set is in process the command is answered here, and its entry becomes one that does
//! nothing and completes with the result: the kernel posts that in the order of the entries, with
//! the program's own data and flags. What comes before the command is submitted first, so each
//! finds what it would find in the kernel. An entry that the kernel has taken is put back as it
//! was: a program may hand it over again without filling it in anew.
//!
//! This is done under the io_uring's lock, or two threads would answer one command. So nothing here
//! waits: completions are waited for afterwards, if there are not enough.

use super::enter::{Request, flag, look};
use super::named::{Hooks, Passed, leave, migrate_named};
use crate::listeners::after_change;
use core::ffi::c_int;
use core::ptr;
use libc::epoll_event;
use wakeset_fd::program_rings::{self, Entry, Named, Original, Queue, Ring};
use wakeset_fd::{Verdict, descriptor, set, user};

/// Whether commands of this queue may be answered in a call with these flags.
pub(super) fn may_answer(queue: &Queue<'_>, flags: u32) -> bool {
    const PLAIN: u32 = flag::GETEVENTS | flag::EXT_ARG | flag::REGISTERED_RING;
    queue.may_answer() && flags & !PLAIN == 0
}

fn event_of(entry: &Entry) -> *const epoll_event {
    ptr::with_exposed_provenance(entry.addr as usize)
}

/// Whether an entry that follows no other is a command that is answered here.
pub(super) fn is_answered(entry: &Entry) -> bool {
    entry.is_command() && descriptor::is_in_process(entry.fd) && has_event(entry)
}

/// Whether the event is there. Without it the kernel does not take the entry at all.
fn has_event(entry: &Entry) -> bool {
    // SAFETY: any bits are an event.
    entry.len == libc::EPOLL_CTL_DEL as u32 || unsafe { user::load(event_of(entry)) }.is_some()
}

/// Carries a command out: 0 or a negative errno. `None`: it is for the kernel.
fn carry_out(queue: &Queue<'_>, entry: &Entry) -> Option<c_int> {
    let (op, target, event) = (entry.len as c_int, entry.target(), event_of(entry));
    // SAFETY: the program's command has what epoll_ctl(2) wants.
    match unsafe { set::epoll_ctl(entry.fd, op, target, event) } {
        Verdict::Kernel => None,
        Verdict::Done(Ok(())) => {
            // SAFETY: as above.
            unsafe { after_change(entry.fd, op, target, event) };
            Some(0)
        }
        // It has changed nothing: the kernel says the same.
        Verdict::Done(Err(_)) if !queue.may_answer_errors() => None,
        Verdict::Done(Err(errno)) => Some(-errno.into_raw()),
    }
}

/// So many commands are answered before the kernel gets them.
const AT_ONCE: usize = 32;

/// Commands that are answered, and that the kernel has not taken yet.
struct Answered {
    originals: [Original; AT_ONCE],
    count: usize,
}

impl Answered {
    fn push(&mut self, original: Original) {
        if let Some(place) = self.originals.get_mut(self.count) {
            *place = original;
            self.count += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.count == AT_ONCE
    }
}

/// The positions of the first entry that is submitted, and of the first that is not. `None`: one of
/// them is not there, or closes an io_uring, which takes such a lock.
fn due(queue: &Queue<'_>, request: Request) -> Option<(u32, u32)> {
    let (head, tail) = queue.window()?;
    let count = request.count.min(tail.wrapping_sub(head));
    for at in 0..count {
        if let Named::Closed(number) = queue.entry(head.wrapping_add(at))?.names()
            && program_rings::find(number).is_some()
        {
            return None;
        }
    }
    Some((head, head.wrapping_add(count)))
}

/// A call in whose entries there is a command.
pub(super) fn submit(ring: &Ring, request: Request, make: impl Fn(Request) -> c_int) -> c_int {
    let Some(mut queue) = ring.lock() else { return make(request) };
    let Some((mut at, end)) = due(&queue, request) else {
        drop(queue);
        look(ring, request, false);
        return make(request);
    };
    let mut submitted = 0;
    while at != end {
        let mut answered = Answered { originals: Default::default(), count: 0 };
        let next = prepare(&mut queue, (at, end), &mut answered, request.hooks);
        queue.note_seen(next);
        let part = next.wrapping_sub(at);
        let flags = request.flags & flag::REGISTERED_RING;
        let result =
            make(Request { count: part, wanted: 0, flags, argument: 0, size: 0, ..request });
        let taken = result.max(0) as u32;
        for original in answered.originals.iter().take(answered.count) {
            if original.is_before(at.wrapping_add(taken)) {
                queue.restore(original);
            }
        }
        if result < 0 && submitted == 0 {
            return result;
        }
        submitted += taken;
        if taken != part {
            break;
        }
        at = next;
    }
    let is_waiting = request.flags & flag::GETEVENTS != 0 && !queue.has_completed(request.wanted);
    drop(queue);
    // A call that submits fewer than it is asked to does not wait.
    if is_waiting && submitted == request.count {
        make(Request { count: 0, ..request });
    }
    submitted as c_int
}

/// Answers the commands at the beginning of what is left, and looks at what comes after them, up to
/// the next one. Returns its position, or `end`.
fn prepare(
    queue: &mut Queue<'_>,
    (start, end): (u32, u32),
    answered: &mut Answered,
    hooks: Hooks,
) -> u32 {
    let (mut at, mut follows, mut is_beginning) = (start, false, true);
    while at != end {
        let Some(entry) = queue.entry(at) else {
            leave();
            return end;
        };
        let is_late = queue.note_late(&entry) || follows;
        if !is_late && is_answered(&entry) {
            if !is_beginning || answered.is_full() {
                return at;
            }
            if let Some(result) = carry_out(queue, &entry) {
                answered.push(queue.answer(at, &entry, result));
                at = at.wrapping_add(1);
                continue;
            }
        }
        is_beginning = false;
        if migrate_named(&entry, is_late, hooks) == Passed::Hidden {
            queue.close_number(at);
        }
        follows = entry.is_linked();
        at = at.wrapping_add(1);
    }
    at
}
