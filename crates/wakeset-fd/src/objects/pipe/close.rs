//! close(2) of an end of a pair. The other end stays in process, and its program hears of the close
//! here.
//!
//! | what the end leaves | what becomes of it |
//! |---|---|
//! | nothing | the pipe's word says that the end is gone |
//! | bytes that the other end has not read | the same; a hidden duplicate keeps the end's file open, to carry them if the other end migrates |
//! | bytes that it has not read itself, or a call that sleeps in it | the pair migrates, because the kernel decides what the other end is told (ECONNRESET), and when |
//!
//! All of it happens under the migrations lock, like a close of one of several numbers: in the
//! kernel first, so that a call by the number finds either the object or no file. A call that comes
//! late, with the end in its hands, is told by the word that it is too late, waits for that lock
//! and looks the number up again.

use super::{Bound, FdPipe};
use crate::migrate;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno, forked, vforked};
use crate::table::slot::end_use_guarded;
use crate::table::{self, closing};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset::{Pipe, mutated};

impl FdPipe {
    /// close(2) of a number that has just stood for this end. `None`: it does no more. The caller
    /// has a signal guard.
    pub(crate) fn close(&'static self, fd: c_int) -> Option<Verdict<()>> {
        let _migrating = migrate::hold_migrations();
        if !table::stands_for(fd, &self.head) {
            return None;
        }
        self.closing.store(true, Ordering::SeqCst);
        // A child that was forked since the caller looked has the end, too.
        let is_childs = vforked::may_exist() || forked::may_have(fd);
        let result = if is_childs { None } else { self.close_here(fd) };
        if let Some(result) = result {
            return Some(Done(result));
        }
        migrate::closing_end_held(fd, self, Stat::Closed);
        Some(Kernel)
    }

    /// The close, if the pair does not have to migrate for it.
    fn close_here(&'static self, fd: c_int) -> Option<Result<(), Errno>> {
        let bound = self.bound()?;
        if bound.state(0).is_none_or(|state| state.sealed) || self.head.has_sleepers() {
            return None;
        }
        if self.closed_other().is_some() {
            return Some(self.close_last(fd, bound));
        }
        let other = bound.end(1 - bound.index())?;
        if !table::stands_for(other.head.fd(), &other.head) || !self.leave(fd, bound) {
            return None;
        }
        let result = self.close_and_vacate(fd);
        self.queue.close();
        other.closed_other.store(ptr::from_ref(self).expose_provenance(), Ordering::SeqCst);
        if !mutated!("pipe_closed_in_secret") {
            bound.pair.pipes.iter().for_each(Pipe::wake_closed);
            other.queue.wake_all_published();
        }
        Some(result)
    }

    fn close_and_vacate(&'static self, fd: c_int) -> Result<(), Errno> {
        closing::while_closing(fd, &self.head, || {
            let result = sys::close(fd);
            table::vacate(fd, &self.head);
            result
        })
    }

    /// Says in the words of the pair that this end is gone. `false`: it is the kernel's to say.
    fn leave(&self, fd: c_int, bound: Bound) -> bool {
        // What this end can be sent first: in Linux, too, a message is refused a moment before the
        // other end can read that there is no more.
        let closes = |pipe: &Pipe| pipe.close_reader(bound.generation);
        if bound.inward().is_some_and(|pipe| !closes(pipe)) && !mutated!("pipe_closed_unread") {
            return false;
        }
        let Some(pipe) = bound.outward() else { return true };
        if pipe.close_writer(bound.generation, true) {
            return true;
        }
        self.keep_file(fd) && pipe.close_writer(bound.generation, false)
    }

    /// Keeps the file of this end, which is about to be closed; whether that could be done.
    fn keep_file(&self, fd: c_int) -> bool {
        KEPT.store(true, Ordering::SeqCst);
        if !mutated!("pipe_closed_keeps_no_file") {
            self.kept.keep(fd);
            return self.kept.number().is_some();
        }
        true
    }

    /// The close of the end that was left. What is in it goes.
    fn close_last(&'static self, fd: c_int, bound: Bound) -> Result<(), Errno> {
        let result = self.close_and_vacate(fd);
        bound.pair.residence.close();
        for pipe in &bound.pair.pipes {
            pipe.seal(bound.generation, |_| ());
            pipe.wake_sealed();
        }
        self.queue.close();
        count(Stat::Closed, 1);
        end_use_guarded(self);
        result
    }

    /// The other end, if that was closed while this one was open.
    pub(super) fn closed_other(&self) -> Option<&'static Self> {
        // SAFETY: 0 or what `close_here` stored, the address of a slot of this kind, which is never
        // freed.
        unsafe { (self.closed_other.load(Ordering::SeqCst) as *const Self).as_ref() }
    }

    /// Nobody uses this end any more: the slot of the other one may be used again.
    pub(super) fn release_closed_other(&self) {
        if let Some(other) = self.closed_other() {
            self.closed_other.store(0, Ordering::SeqCst);
            end_use_guarded(other);
        }
    }

    /// Leaves a write to the kernel that is refused because the other end has been closed, or the
    /// direction shut down. `false`: it is not. With EPIPE comes SIGPIPE, so the kernel says it; of
    /// a file that was kept for the other end it has to hear first that it is closed, and of a
    /// shutdown if it has not.
    pub(super) fn leave_refused_write(&self, fd: c_int, bound: Bound) -> bool {
        let states = bound.outward().and_then(|pipe| pipe.state(bound.generation));
        if !states.is_some_and(|state| state.reader_closed && !state.sealed) {
            return false;
        }
        // The close may still be under way.
        migrate::wait_for_migrations();
        let has_heard = self.kept_of_other().is_none() && !bound.is_shut_later();
        if !has_heard && !mutated!("socket_refuses_by_a_kept_file") {
            migrate::fd(fd, Stat::MigratedLimit);
        }
        true
    }

    /// The hidden number of the file that is kept for the other end, which was closed.
    fn kept_of_other(&self) -> Option<c_int> {
        self.closed_other().and_then(|other| other.kept.number())
    }
}

/// Whether a file was ever kept for an end that was closed.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Whether there may be hidden numbers of files that are kept for ends that were closed.
pub(crate) fn were_kept() -> bool {
    KEPT.load(Ordering::SeqCst)
}

/// Before a child gets a copy of every number: what a file was kept for migrates. A forked child
/// would have such a file until it first runs, that of a vfork(2) until it executes a program, and
/// the other end would not be told of the close until then. The caller holds the migrations lock.
pub(crate) fn give_up_all_kept(reason: Stat) {
    if were_kept() && !mutated!("fork_leaves_kept_files") {
        give_up(None, reason);
    }
}

/// The program wants this hidden number, or any: what it was kept for migrates. Whether there was
/// one. The caller holds the migrations lock.
pub(crate) fn give_up_kept(wanted: Option<c_int>) -> bool {
    give_up(wanted, Stat::MigratedLimit)
}

fn give_up(wanted: Option<c_int>, reason: Stat) -> bool {
    let mut has_one = false;
    let numbers = if were_kept() { table::numbers() } else { 0..0 };
    for number in numbers {
        let kept = table::find::<FdPipe>(number).and_then(FdPipe::kept_of_other);
        if kept.is_some_and(|kept| wanted.is_none_or(|wanted| wanted == kept)) {
            migrate::fd_held(number, reason);
            has_one = true;
        }
    }
    has_one
}
