//! The commands of a window on the set's in-process half, whose lock is held across several.

use super::{Command, WINDOW};
use crate::objects::counter::FdCounter;
use crate::set::{FdSet, epoll_ctl};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::Errno;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD};
use wakeset::{Changes, Error, Source};

/// The in-process half's part of a window.
pub(super) struct InProcess<'a> {
    set: Option<&'a FdSet>,
    held: Option<Changes<'a>>,
    /// The first command since the lock was taken.
    first: usize,
    /// What was added since then, by command: not to be looked up by its number again, which may
    /// be closed meanwhile.
    added: [Option<&'static FdCounter>; WINDOW],
    /// Whether there is any.
    any_added: bool,
}

impl<'a> InProcess<'a> {
    pub(super) fn new(set: Option<&'a FdSet>) -> Self {
        Self { set, held: None, first: 0, added: [None; WINDOW], any_added: false }
    }

    pub(super) fn may_add(&self, source: &dyn Source) -> bool {
        match (&self.held, self.set) {
            (Some(held), _) => held.may_add(source),
            (None, Some(set)) => !set.set.wait_queue().has_watches(),
            (None, None) => false,
        }
    }

    /// Carries out command `i` of the window under the set's lock; `false` if it has to be carried
    /// out alone.
    pub(super) fn carry_out(
        &mut self,
        command: &mut Command,
        i: usize,
        source: &'static FdCounter,
    ) -> bool {
        let Some(set) = self.set else { return false };
        if self.held.is_none() {
            self.first = i;
        }
        let held = self.held.get_or_insert_with(|| set.set.begin_changes());
        let address = ptr::from_ref(source).cast::<()>();
        let result = match command.op {
            // SAFETY: slots are never freed, and their queues are closed when the object ends.
            EPOLL_CTL_ADD => unsafe { held.add_source(command.fd, source, command.asked()) },
            EPOLL_CTL_MOD => held.modify_source(command.fd, address, command.asked()),
            _ => held.remove_source(command.fd, address),
        };
        let is_added = command.op == EPOLL_CTL_ADD && result.is_ok();
        self.added[i] = is_added.then_some(source);
        self.any_added |= is_added;
        match result {
            // It is migrating, has migrated, or there is no memory in process: as for a single
            // call.
            Err(Error::Closed | Error::NoMemory) => return false,
            Err(Error::NotWatched) if epoll_ctl::has_left(command.fd, source) => return false,
            result => command.set_result(result.map_err(|error| Errno::new(error.errno()))),
        }
        count(Stat::SyscallsAvoided, usize::from(command.result == 0));
        true
    }

    /// Releases the lock, before command `end` of the window.
    pub(super) fn release(&mut self, window: &mut [Command], end: usize) {
        let (Some(set), Some(held)) = (self.set, self.held.take()) else { return };
        held.end();
        let lacks_doorbell = set.state.has_kernel() && set.doorbell.load(Ordering::SeqCst) < 0;
        if !core::mem::take(&mut self.any_added) || !lacks_doorbell && !set.state.is_in_kernel() {
            return;
        }
        // Meanwhile the set has got a kernel half, or has gone there.
        for (command, added) in window.iter_mut().zip(&mut self.added).take(end).skip(self.first) {
            if let Some(counter) = added.take() {
                command.set_result(epoll_ctl::settle_add(set, command.fd, counter));
            }
        }
    }
}
