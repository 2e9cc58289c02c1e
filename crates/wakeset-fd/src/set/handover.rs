//! How a set takes part in a migration: its watches go to its kernel half, one by one.

use crate::migrate;
use crate::set::export::export_held;
use crate::set::{FdSet, doorbell, polls};
use crate::sys::{self, Errno, complaint, elsewhere};
use crate::table::object::{Host, Lists};
use crate::table::{self, SlotHead, away, hidden};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};
use wakeset::{DetachedWatch, Event, Events, Source, mutated};

impl Host for FdSet {
    fn is_fixed(&self) -> bool {
        self.state.is_fixed()
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }

    fn is_in_kernel(&self) -> bool {
        self.state.is_in_kernel()
    }

    fn begin_migration(&self) {
        self.state.begin_migration();
        polls::give_up_held(self);
    }

    fn each_watched(&self, f: &mut dyn FnMut(&'static SlotHead)) {
        self.set.for_each(|fd, source, _, _| {
            if fd >= 0 {
                // SAFETY: sources without a number are custom ones; the others are slots.
                f(unsafe { SlotHead::at(source.cast::<()>().addr()) });
            }
        });
    }

    fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    fn take_over(&self, watch: &DetachedWatch, source: &'static SlotHead, quiet: bool) {
        let mut events = watch.interest.bits();
        if watch.interest.intersection(Events::FLAGS) == watch.interest {
            // Disarmed by a ONESHOT report. The kernel reports ERR and HUP of what it takes for
            // armed, and an eventfd has neither; the program's next EPOLL_CTL_MOD finds it.
            events = watch.interest.intersection(Events::ONESHOT | Events::WAKEUP).bits();
        }
        let event = epoll_event { events, u64: watch.data };
        let has_edges = watch.interest.intersects(Events::ET | Events::ONESHOT);
        self.rotation.note_other(watch.data);
        away::note_watch(source.fd(), watch, if self.has_several() { -1 } else { self.fd() });
        match add_anew(self.fd(), watch.fd, source, &event) {
            // A thread is closing the number and waits for us, and another has added it meanwhile,
            // as a number of the kernel's.
            Err(Errno::EEXIST) if !table::get(watch.fd).is_object() => {}
            Err(error) => complaint::of_watch(self.fd(), watch.fd, error),
            Ok(()) if watch.pending => {
                if has_edges {
                    self.state.note_pending_edge();
                }
            }
            Ok(()) => {
                let reported = watch.interest.contains(Events::ET)
                    && !watch.interest.contains(Events::ONESHOT);
                if reported && quiet {
                    take_reported_edge(self);
                }
            }
        }
        if has_edges {
            self.state.note_taken_edges();
        }
        self.note_kernel_watch();
        // Before it is removed here: a wait that looks at both halves may have looked at the
        // kernel's before.
        self.migrated_watches.fetch_add(1, Ordering::SeqCst);
    }

    fn note_taken_over(&self) {
        self.state.settle_taken_edges();
    }

    fn toggle_unsettled(&self) {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
    }

    fn export(&self) -> Result<(), Errno> {
        export_held(self)
    }

    fn arrive(&self) {
        self.state.arrive_in_kernel();
        self.rotation.make_plain(self);
        doorbell::remove(self);
        self.set.kick_all();
    }

    fn may_return(&self) -> bool {
        // What sets around it hear of is its number's, and what else it has is to be made anew.
        !self.state.is_fixed()
            && !self.state.is_exported()
            && !self.state.is_closed()
            && !self.rotation.any()
            && !self.polls.are_active()
            && self.set.ring().is_none()
            && self.busy_poll.load(Ordering::Relaxed) == 0
    }

    fn begin_return(&self, asked: Event) -> bool {
        // Where it left again beside other edges, nobody would know what has been reported of it.
        let stays = asked.events.contains(Events::ET) && self.state.has_asked_edges();
        let may = !stays
            && !self.state.is_in_kernel()
            && self.state.has_kernel()
            && !self.has_several()
            && !self.set.wait_queue().has_watches()
            && self.may_return();
        let begun = may && doorbell::install_held(self) == Ok(true);
        if begun {
            self.toggle_unsettled();
        }
        begun
    }

    fn give_up_watch(&self, fd: c_int, asked: Event) -> bool {
        let given = sys::epoll_ctl(self.fd(), EPOLL_CTL_DEL, fd, ptr::null()).is_ok();
        if given && asked.events.contains(Events::ET) {
            self.state.give_up_taken_edges();
        }
        // After that, and before it is watched here: a wait that has found it there does not find
        // it here as well.
        self.migrated_watches.fetch_add(1, Ordering::SeqCst);
        given
    }

    fn take_back(&self, fd: c_int, source: &'static SlotHead, asked: Event) -> bool {
        // SAFETY: slots are never freed, and their queues are closed when the object ends.
        unsafe { self.set.add_source(fd, source.object() as &dyn Source, asked) }.is_ok()
    }

    fn leave_watch(&self, fd: c_int, asked: Event) {
        // Of two that come back together, the first may have been found here meanwhile.
        self.migrated_watches.fetch_add(1, Ordering::SeqCst);
        let event = epoll_event { events: asked.events.bits(), u64: asked.data };
        if let Err(error) = sys::epoll_ctl(self.fd(), EPOLL_CTL_ADD, fd, &raw const event) {
            complaint::of_watch(self.fd(), fd, error);
        }
        if asked.events.contains(Events::ET) {
            self.state.note_taken_edges();
            self.state.settle_taken_edges();
        }
    }

    fn lists(&self) -> &Lists {
        &self.lists
    }
}

/// [`add`] in place of a watch that a thread has added before the call that made the number was
/// over, when only the kernel had it. Of the two, the program has heard of this one last.
fn add_anew(
    epfd: c_int,
    fd: c_int,
    source: &'static SlotHead,
    event: &epoll_event,
) -> Result<(), Errno> {
    let added = add(epfd, fd, source, event);
    if added != Err(Errno::EEXIST) || !table::stands_for(fd, source) {
        return added;
    }
    let _ = sys::epoll_ctl(epfd, EPOLL_CTL_DEL, fd, ptr::null());
    add(epfd, fd, source, event)
}

/// Adds what has migrated to a kernel half under the number by which it was watched. Where that has
/// been closed, and the file goes on under another, it cannot be named here.
fn add(
    epfd: c_int,
    fd: c_int,
    source: &'static SlotHead,
    event: &epoll_event,
) -> Result<(), Errno> {
    if source.has_several()
        && !migrate::is_number_of(fd, source)
        && !mutated!("watch_moves_under_a_closed_number")
    {
        if epfd != fd {
            return elsewhere::add_under(epfd, source.fd(), fd, event);
        }
        // There the file replaces what has the number: the set's own handle.
        let set = hidden::hidden_duplicate(epfd).ok_or(Errno::EMFILE)?;
        let added = elsewhere::add_under(set, source.fd(), fd, event);
        hidden::close(set);
        return added;
    }
    sys::epoll_ctl(epfd, EPOLL_CTL_ADD, fd, event)
}

/// The kernel half takes the watch just added for one with an edge to report, but that has been
/// reported. Takes the report out of its ready list, if nothing else is in there that would be lost
/// with it: what is level-triggered stays, by itself.
fn take_reported_edge(set: &FdSet) {
    if set.state.has_kernel_edges() {
        return;
    }
    let mut taken = [epoll_event { events: 0, u64: 0 }; 32];
    // A full buffer may not have had room for it: again, while that is likely to help.
    for _ in 0..4 {
        let most = taken.len() as c_int;
        let (epfd, events) = (set.fd(), taken.as_mut_ptr());
        match sys::epoll_pwait(epfd, events, most, 0, ptr::null(), 0) {
            Ok(found) if found == most => {}
            _ => break,
        }
    }
    let bell = set.doorbell.load(Ordering::SeqCst);
    if bell >= 0 && set.set.has_remote_waiter() {
        // We may have taken a ring with it.
        doorbell::ring(bell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::alone::alone;
    use libc::{EFD_CLOEXEC, EPOLLEXCLUSIVE, EPOLLIN};

    fn event(events: c_int, data: u64) -> epoll_event {
        epoll_event { events: events as u32, u64: data }
    }

    /// What was added by the number alone, before the object was in the table, is in the kernel
    /// half; what was added afterwards was lost beside it.
    #[test]
    fn a_watch_migrates_in_place_of_one_from_before_the_object() {
        let _alone = alone();
        let set = crate::epoll_create1(0).unwrap();
        let counter = crate::eventfd(1, EFD_CLOEXEC).unwrap();
        let early = event(EPOLLIN, 1);
        sys::epoll_ctl(set, EPOLL_CTL_ADD, counter, &raw const early).unwrap();
        let late = event(EPOLLIN | EPOLLEXCLUSIVE, 2);
        // SAFETY: the event is there.
        unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, counter, &raw const late) }.unwrap();
        migrate::release(counter).unwrap();
        let mut found = [event(0, 0); 2];
        // SAFETY: room for two.
        let n = unsafe { crate::epoll_wait(set, found.as_mut_ptr(), 2, 0) }.unwrap();
        let reports = found.map(|found| ({ found.events }, { found.u64 }));
        crate::close(counter).unwrap();
        crate::close(set).unwrap();
        assert_eq!((n, reports[0]), (1, (EPOLLIN as u32, 2)));
    }
}
