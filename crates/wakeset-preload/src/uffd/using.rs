//! A call on a userfaultfd under way.

use super::groups::{Group, NUMBERS, find, group_at, is_off, order};
use super::thread::{CALL, me};
use crate::flags;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use wakeset::probe;
use wakeset_fd::count::count;
use wakeset_fd::signal_guard::SignalGuard;
use wakeset_fd::stats::Stat;
use wakeset_group::fault::may_have_message;
use wakeset_group::leader::Waiter;

/// What the probe `turn` says of a thread that serves a userfaultfd: docs/probes.md.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Turn {
    Queued = 4,
    Has = 5,
    Ended = 6,
    Told = 7,
}

/// Where a thread stands that waits for its turn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// It has the turn.
    Leads,
    Queued,
    /// A handler has taken it out of the queue, or the queue was disbanded.
    Out,
}

/// A call on a userfaultfd under way.
pub(super) struct Using {
    pub(super) group: &'static Group,
    index: usize,
    fd: c_int,
}

impl Using {
    /// Begins a call on this number; `None` if it is not a known userfaultfd's.
    pub(super) fn begin(fd: c_int) -> Option<Self> {
        let index = find(fd)?;
        if is_off() {
            return None;
        }
        let group = group_at(index)?;
        group.users.fetch_add(1, Ordering::SeqCst);
        let using = Self { group, index, fd };
        // If it was closed meanwhile, the number may stand for anything: the call is the kernel's.
        (NUMBERS[index].load(Ordering::SeqCst) == fd + 1).then_some(using)
    }

    /// The userfaultfd's number now.
    pub(super) fn fd(&self) -> c_int {
        if NUMBERS[self.index].load(Ordering::SeqCst) == self.fd + 1 {
            return self.fd;
        }
        match self.group.after_close.load(Ordering::SeqCst) {
            0 => self.fd,
            number => number - 1,
        }
    }

    fn probe(&self, turn: Turn) {
        probe!(turn, i32 self.fd, u32 turn);
    }

    /// Takes the turn if it is free, or joins the queue.
    pub(super) fn join(&self, waiter: &Waiter) -> Place {
        let _guard = SignalGuard::enter();
        let leadership = &self.group.leadership;
        let has_event = leadership.awaits_heir() && may_have_message(self.fd());
        // SAFETY: the waiter stays on the stack until `leave`, `take`, or a handler has taken it
        // out of the queue; the thread that gives it the turn takes it out, too.
        let given = unsafe { leadership.join(waiter, me(), has_event) };
        self.probe(if given { Turn::Has } else { Turn::Queued });
        CALL.with(|call| {
            call.waiter.set(if given { ptr::null() } else { waiter });
            call.group.set(self.group);
        });
        if given { Place::Leads } else { Place::Queued }
    }

    /// Takes the turn that the thread was woken for.
    pub(super) fn take(&self, waiter: &Waiter) -> Place {
        let _guard = SignalGuard::enter();
        if !waiter.is_heir() {
            // A handler had to give it away, or the queue was disbanded.
            CALL.with(|call| {
                call.waiter.set(ptr::null());
                call.group.set(ptr::null());
            });
            return Place::Out;
        }
        // SAFETY: as in `join`.
        if !unsafe { self.group.leadership.come(waiter, me(), order()) } {
            return Place::Queued;
        }
        count(Stat::UffdWakes, 1);
        self.probe(Turn::Has);
        CALL.with(|call| call.waiter.set(ptr::null()));
        Place::Leads
    }

    /// Takes the turn from a thread that has kept it too long; whether it did.
    pub(super) fn rescue(&self, waiter: &Waiter, stamp: u32) -> bool {
        let _guard = SignalGuard::enter();
        let taken = self.group.leadership.rescue(waiter, stamp);
        if taken {
            self.probe(Turn::Has);
            CALL.with(|call| call.waiter.set(ptr::null()));
        }
        taken
    }

    /// Leaves the queue.
    pub(super) fn leave(&self, waiter: &Waiter) {
        let _guard = SignalGuard::enter();
        self.group.leadership.leave(waiter, order());
        CALL.with(|call| {
            call.waiter.set(ptr::null());
            call.group.set(ptr::null());
        });
    }

    /// Gives up the turn, unless a handler had to; keeps it if the thread was told of a message.
    pub(super) fn finish(&self, told: bool) {
        let _guard = SignalGuard::enter();
        let (had, again) =
            CALL.with(|call| (!call.group.replace(ptr::null()).is_null(), call.has_message.get()));
        if told && !again {
            // Before the turn is kept: see `Polling::sleep`.
            self.group.told.note();
        }
        if had {
            self.probe(if told { Turn::Told } else { Turn::Ended });
        }
        match (had, told) {
            (true, true) => self.group.leadership.hold(me(), order()),
            (true, false) => self.group.leadership.pass(order()),
            (false, _) => {}
        }
    }

    /// Leaves the queue, or gives up the turn if the thread has it.
    pub(super) fn give_up(&self, waiter: &Waiter, place: Place) {
        if place == Place::Leads { self.finish(false) } else { self.leave(waiter) }
    }

    /// After a read that takes no turn: passes on the turn of the thread that was told of this
    /// message, or of the one that was told of a message and has found none.
    pub(super) fn note_taken(&self, is_empty: bool) {
        let _guard = SignalGuard::enter();
        let was_told = CALL.with(|call| call.has_message.replace(false));
        count(Stat::UffdSpuriousWakes, usize::from(is_empty && was_told));
        self.group.leadership.taken(order());
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        let version = flags::version();
        let known = self.group.flags.load(Ordering::Relaxed);
        if known >> 1 == version & u32::MAX >> 1 {
            return known & 1 != 0;
        }
        let nonblocking = self.ask_nonblocking();
        self.group.flags.store(version << 1 | u32::from(nonblocking), Ordering::Relaxed);
        nonblocking
    }

    pub(super) fn ask_nonblocking(&self) -> bool {
        flags::is_nonblocking(self.fd()) == Some(true)
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.group.users.fetch_sub(1, Ordering::SeqCst);
        self.group.close_if_unused(self.index);
    }
}
