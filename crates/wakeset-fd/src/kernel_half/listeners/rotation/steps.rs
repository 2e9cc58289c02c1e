//! Stepping back in a set: a connection is left to a worker that holds less ([`shares`]).
//!
//! The listener's event is taken out of what the kernel reported, its watch is removed, and the
//! wait passes the baton and sleeps on. A member that is stepped back is *missing* like one for
//! which there was no memory, so that sleeps are short; it returns to the end of the queue when the
//! connection is gone, when the set has left it for long enough, before the program changes it, and
//! at the latest when the wait ends. An addition polls the listener, so nothing is lost between.
//!
//! A member's event is known by its data. Where another watch of the set may have the same
//! (`others`), the set does not step back.
//!
//! [`shares`]: super::super::shares

use super::super::baton::{self, note_of};
use super::super::{ListenerStat, is_ready, shares};
use super::Rotation;
use super::member::Member;
use crate::kernel_half::KernelEpoll;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;
use libc::{EPOLLIN, epoll_event};
use wakeset::mutated;

fn is_of(event: epoll_event, data: u64) -> bool {
    let epoll_event { events, u64: its } = event;
    its == data && events == EPOLLIN as u32
}

/// Whether one of the first `found` events is of a listener with this data.
///
/// # Safety
/// There are `found` events.
pub(super) unsafe fn has_event(events: *const epoll_event, found: c_int, data: u64) -> bool {
    // SAFETY: the caller's contract.
    unsafe { has_one(events, found, |event| is_of(event, data)) }
}

/// Whether one of the first `found` events is such a one.
///
/// # Safety
/// There are `found` events.
pub(super) unsafe fn has_one(
    events: *const epoll_event,
    found: c_int,
    is_such: impl Fn(epoll_event) -> bool,
) -> bool {
    // SAFETY: the caller's contract.
    (0..found as usize).any(|i| is_such(unsafe { events.add(i).read_unaligned() }))
}

/// Takes the events of a listener with this data out of the first `found`; how many are left.
///
/// # Safety
/// There are `found` events.
unsafe fn take_out(events: *mut epoll_event, found: c_int, data: u64) -> c_int {
    let mut kept = 0;
    for i in 0..found as usize {
        // SAFETY: the caller's contract.
        let event = unsafe { events.add(i).read_unaligned() };
        if !is_of(event, data) {
            // SAFETY: no later than where it was read.
            unsafe { events.add(kept).write_unaligned(event) };
            kept += 1;
        }
    }
    kept as c_int
}

impl Rotation {
    #[cfg(test)]
    pub(crate) fn share(&self) -> &super::super::Share {
        &self.share
    }

    /// A watch that is not in the rotation has this data, and is added past
    /// [`epoll_ctl`](Self::epoll_ctl).
    pub(crate) fn note_other(&self, data: u64) {
        /// Of no member.
        const NONE: c_int = c_int::MIN;
        if !self.others.are_apart(&self.outline, NONE, Some(data)) {
            self.with(|members| self.others.mark_same(members, NONE, data));
        }
    }

    /// The kernel half has watches of which nothing is known.
    pub(crate) fn note_unknown(&self) {
        self.others.note_unknown();
    }

    /// After a sleep that has reported `found` events: leaves connections to workers that hold
    /// less. How many events are left, and whether the wait is to pass the baton.
    pub(crate) fn step_back(
        &self,
        set: &impl KernelEpoll,
        events: *mut epoll_event,
        found: c_int,
    ) -> (c_int, bool) {
        // SAFETY: the kernel has just written `found` events there.
        let is_about_others = || unsafe { self.calm.is_about_others(events, found) };
        if !self.any() || found <= 0 || is_about_others() || self.share.is_free() {
            return (found, false);
        }
        let mut left = found;
        self.with_known(|members| {
            self.calm.end();
            // One at a time, so that what is remembered of it is of one listener.
            if !set.is_usable() || members.iter().any(|member| member.is_stepped) {
                return;
            }
            let known = |member: &&mut Member| {
                // SAFETY: the kernel has just written `found` events there.
                let is_reported = || unsafe { has_event(events, left, member.data) };
                member.is_some() && !member.is_ambiguous && !member.missing && is_reported()
            };
            for member in members.iter_mut().filter(known) {
                let note = note_of(member.inode);
                if !self.share.leaves(note) {
                    continue;
                }
                if !member.remove(set.number()) {
                    *member = Member::NONE;
                    return;
                }
                // SAFETY: as above.
                left = unsafe { take_out(events, left, member.data) };
                super::super::count(member.fd, ListenerStat::Wakes);
                super::super::count(member.fd, ListenerStat::SpuriousWakes);
                member.missing = true;
                member.is_stepped = true;
                self.rounds.begin(note);
                self.share.note_step();
                self.has_stepped.store(true, Ordering::Relaxed);
                if !mutated!("step_passes_before_it_moves") {
                    // At once: another thread may sleep in this set, and would take the pass.
                    self.place_baton(set, members);
                }
                return;
            }
        });
        (left, left < found)
    }

    /// Whether a wait that has stepped back a moment ago goes on although its time has been up for
    /// so long. To end it is to decline the connection, which is then the first idle worker's,
    /// whatever that holds.
    pub(crate) fn outstays(&self, late: impl FnOnce() -> Duration) -> bool {
        self.has_stepped.load(Ordering::Relaxed)
            && self.share.has_just_stepped(late())
            && !mutated!("step_ends_with_the_wait")
    }

    /// After a look without a sleep that has reported `found` events, and had room for more: takes
    /// out connections that belong to workers that hold less, which the kernel has woken for them.
    /// How many events are left. A level says the same to the next wait, and an edge does not.
    ///
    /// # Safety
    /// There are `found` events.
    pub(crate) unsafe fn leave_for_now(&self, events: *mut epoll_event, found: c_int) -> c_int {
        let is_none = !self.any() || self.is_calm_alone() || self.share.is_free();
        if is_none || mutated!("looks_take_out_of_turn") {
            return found;
        }
        if found <= 0 {
            self.share.saw_none();
            return found;
        }
        let (mut left, mut any_reported) = (found, false);
        self.with_known(|members| {
            for member in members.iter().filter(|member| member.is_some()) {
                // SAFETY: the caller's contract.
                let is_reported = unsafe { has_event(events, left, member.data) };
                any_reported |= is_reported;
                let is_clear = is_reported && !member.is_ambiguous && !member.is_edge();
                if is_clear && self.share.leaves_for_now(note_of(member.inode)) {
                    // SAFETY: the caller's contract.
                    left = unsafe { take_out(events, left, member.data) };
                }
            }
        });
        if !any_reported {
            self.share.saw_none();
        }
        left
    }

    /// Whether a wait may look for connections before it sleeps: in a program that has been told
    /// how long, while the set watches all its listeners, and while no other worker waits. One that
    /// is awake takes what comes, out of turn, and another is woken for it.
    pub(crate) fn may_spin(&self) -> bool {
        !self.any()
            || wakeset::spin_limit().is_some() && self.watches_all() && self.share.is_alone()
    }

    /// Whether none of the listeners is without a watch, by intent or for lack of memory: its
    /// connections would wait for the end of a spin.
    pub(super) fn watches_all(&self) -> bool {
        let has_stepped = self.has_stepped.load(Ordering::Relaxed);
        (!has_stepped || mutated!("spins_while_it_leaves"))
            && !self.lacks_any.load(Ordering::Relaxed)
    }

    /// Whether a member that has stepped back goes on doing so.
    pub(super) fn stays_back(&self, member: &Member) -> bool {
        member.is_stepped && self.share.stays_back(note_of(member.inode), is_ready(member.fd))
    }

    /// At the end of a wait: no listener stays without a watch, and a connection that it has left
    /// to others is declined, because this thread may be away for long.
    pub(crate) fn end_wait(&self, set: &impl KernelEpoll) {
        if !self.any() || self.is_calm_alone() {
            return;
        }
        self.share.note_awake(false);
        if !self.has_stepped.load(Ordering::Relaxed) || !set.is_usable() {
            return;
        }
        self.has_stepped.store(false, Ordering::Relaxed);
        let left = self.with_known(|members| {
            let mut left = 0;
            // Asked again: a close waits for the lock before the number goes.
            if !set.is_usable() {
                return left;
            }
            for member in members.iter_mut().filter(|member| member.is_stepped) {
                left |= if is_ready(member.fd) { note_of(member.inode) } else { 0 };
                member.renew(set.number());
            }
            left
        });
        if shares::give_up(left) {
            baton::pass();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::shares::{self, Share, now, tests::other};
    use super::super::super::{Choice, held};
    use super::*;
    use crate::table::alone::alone;

    /// Its connection would wait for the end of a spin, and that may be a second.
    #[test]
    fn a_set_that_leaves_a_connection_to_another_does_not_spin() {
        let rotation = Rotation::new();
        assert!(rotation.may_spin(), "it has no listener");
        rotation.any.store(true, Ordering::Relaxed);
        assert!(!rotation.may_spin(), "it is not told to");
        assert!(rotation.watches_all());
        rotation.has_stepped.store(true, Ordering::Relaxed);
        assert!(!rotation.watches_all());
        rotation.has_stepped.store(false, Ordering::Relaxed);
        rotation.lacks_any.store(true, Ordering::Relaxed);
        assert!(!rotation.watches_all());
    }

    /// A worker that looked while another was on its way to a connection had it.
    #[test]
    fn a_look_leaves_a_connection_to_another() {
        let _alone = alone();
        shares::begin_in_silence(Choice::Least, None);
        let (rotation, second) = (Rotation::new(), Share::new());
        let note = note_of(Some(5));
        rotation.share.note_sleep(note);
        second.note_sleep(0);
        (0..2).for_each(|_| held::raise(rotation.share.holder()));
        let watches = |events: c_int| {
            let member = Member { fd: 3, data: 7, inode: Some(5), ..Member::NONE };
            rotation.with(|members| members[0] = Member { events: events as u32, ..member });
        };
        let look = || {
            let event = |u64| epoll_event { events: EPOLLIN as u32, u64 };
            let mut events = [event(7), event(9)];
            // SAFETY: two events.
            let left = unsafe { rotation.leave_for_now(events.as_mut_ptr(), 2) };
            (left, { events[0].u64 })
        };
        watches(EPOLLIN);
        other(0, note, now());
        assert_eq!(look(), (1, 9), "the other event stays");
        watches(EPOLLIN | libc::EPOLLET);
        assert_eq!(look(), (2, 7), "an edge would be lost");
        watches(EPOLLIN);
        other(2, note, now());
        assert_eq!(look(), (2, 7), "the other holds as many");
        (0..2).for_each(|_| held::lower(rotation.share.holder()));
    }

    /// A wait whose time was up just after a step back declined the connection.
    #[test]
    fn a_wait_outstays_its_time_after_a_step_back() {
        let rotation = Rotation::new();
        rotation.share.note_step();
        assert!(!rotation.outstays(|| Duration::ZERO), "no member has stepped back");
        rotation.has_stepped.store(true, Ordering::Relaxed);
        // The machine may pause in between.
        assert!((0..1000).any(|_| {
            rotation.share.note_step();
            rotation.outstays(|| Duration::ZERO)
        }));
        assert!(!rotation.outstays(|| Duration::from_millis(1)), "for a millisecond at most");
    }
}
