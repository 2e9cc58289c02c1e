//! The baton in a set: a worker elsewhere has declined what it was woken for, and this set is next
//! ([`baton`]).

use super::super::is_ready;
use super::super::told::telling;
use super::super::{baton, ending};
use super::Rotation;
use super::member::Member;
use crate::kernel_half::KernelEpoll;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use wakeset::mutated;

/// Whether a set could tell its program of a connection that is passed on to it.
fn can_take(member: &Member) -> bool {
    member.is_some() && !member.knows()
}

impl Rotation {
    /// Before a sleep or a pass: has the set watch the baton, at the end of the queue if it is due.
    pub(super) fn place_baton(&self, set: &impl KernelEpoll, members: &[Member]) {
        let wanted = if members.iter().any(Member::is_some) { baton::number() } else { -1 };
        if !self.is_baton_due(wanted) {
            return;
        }
        self.drop_baton(set);
        if wanted >= 0 {
            ending::note_waiting();
            self.rounds.note_placed();
            // Before the kernel may report it.
            let data = set.admit_baton();
            if baton::watch_in(set.number(), data, wanted) {
                self.baton.store(wanted, Ordering::Relaxed);
            }
        }
    }

    /// Whether the watch of the baton is another's than this number's, or is to go to the end.
    pub(super) fn is_baton_due(&self, wanted: c_int) -> bool {
        wanted != self.baton.load(Ordering::Relaxed) || wanted >= 0 && self.rounds.is_due()
    }

    /// The set watches the baton no longer. Returns whether it did.
    pub(super) fn drop_baton(&self, set: &impl KernelEpoll) -> bool {
        let watched = self.baton.load(Ordering::Relaxed);
        if mutated!("baton_goes_unseen") {
            self.baton.store(-1, Ordering::Release);
        }
        if watched >= 0 && !set.is_closed() {
            baton::leave(set.number(), watched);
        }
        // Afterwards: a close waits for the lock while the set has the baton (`leave_number`).
        self.baton.store(-1, Ordering::Release);
        watched >= 0
    }

    /// The baton has another number, or none.
    pub(crate) fn renumber_baton(&self, set: &impl KernelEpoll, old: c_int, new: c_int) {
        self.with(|_| {
            let is_its = self.baton.load(Ordering::Relaxed) == old;
            if is_its && (!set.is_closed() || mutated!("baton_moves_in_anothers_set")) {
                baton::renumber_in(set.number(), set.admit_baton(), old, new);
                self.baton.store(new, Ordering::Relaxed);
            }
        });
    }

    /// The baton has woken a wait in this set, or came while its threads were awake. The wait
    /// reports `filled` other events. A connection that it can take is reported by the next check
    /// of the kernel half. Returns whether the wait is to pass the baton on, once it holds no lock.
    pub(crate) fn take_baton(&self, set: &impl KernelEpoll, filled: c_int) -> bool {
        // No member comes, and the version stays: the wait that is woken so leaves nothing behind.
        self.with_known(|members| {
            self.calm.end();
            // Under the lock: another thread of the set finds it done.
            let Some(visit) = self.rounds.visit() else { return false };
            let is_usable = set.is_usable();
            let (mut own, mut passes) = (0, false);
            for member in members.iter_mut().filter(|member| member.is_some()) {
                let note = baton::note_of(member.inode);
                if visit.open(note) == 0 {
                    continue;
                }
                if !is_ready(member.fd) {
                    if member.is_same_file() {
                        visit.saw_none(note);
                    }
                } else if is_usable && can_take(member) {
                    own |= note;
                    if !visit.is_urgent(note) && self.share.leaves(note) {
                        self.share.pay();
                        passes = true;
                        continue;
                    }
                    // The thread may be busy with the others for long.
                    passes |= filled > 0 || visit.asks_more(note);
                    member.renew(set.number());
                }
            }
            let passes = self.rounds.passes(passes || visit.is_for_others(own));
            if is_usable && !members.iter().any(Member::is_some) {
                // One that was kept. It would wake the thread again.
                self.drop_baton(set);
            }
            if passes && is_usable && !mutated!("set_passes_before_it_moves") {
                // At once: another thread may sleep in this set, and would take what is passed on.
                self.place_baton(set, members);
            }
            passes
        })
    }

    /// Whether a wait is to look without time before it sleeps: its thread has declined something,
    /// and is to know whether what it is told of next is the same.
    pub(crate) fn looks_first(&self) -> bool {
        self.any()
            && !self.is_calm_alone()
            && telling().is_some_and(|telling| (telling.looks_first)())
            && !mutated!("set_never_looks_first")
    }

    /// A sleep has found so many events, or -1 for an error; there was room for so many.
    #[inline(always)]
    pub(crate) fn note_sleep(&self, found: c_int, capacity: c_int) {
        if self.any() {
            let _ = self.leftover.note_sleep(found, capacity);
        }
    }

    /// A wait begins: the version of the members, and how many notes of others there are.
    #[inline(always)]
    pub(crate) fn begin_wait(&self) -> (u32, u32) {
        (self.outline.version(), self.leftover.begin_wait())
    }

    /// It ends with so many events, or -1 for an error; there was room for so many.
    #[inline(always)]
    pub(crate) fn note_wait(&self, (version, notes): (u32, u32), found: c_int, capacity: c_int) {
        // Before the version, by which a listener that has gone is seen.
        let has_listeners = self.any.load(Ordering::Acquire);
        let is_still = version.is_multiple_of(2) && self.outline.is_still(version);
        // A set that has had none meanwhile leaves nothing.
        if has_listeners || !is_still {
            self.leftover.note_wait(notes, found, capacity, is_still);
        }
    }

    /// Whether the set may have used up the wake for a connection on this listener, which it has
    /// just ceased to watch, without having told anybody ([`leftover`](super::leftover)).
    /// `is_alone`: no other call is in the set.
    pub(crate) fn may_have_left(&self, fd: c_int, is_alone: bool) -> bool {
        // Another watch may be one of which nothing is known.
        let is_known = self.others.remember_number(fd) && !self.has_stepped();
        self.leftover.may_have(is_alone) || !is_known
    }

    fn has_stepped(&self) -> bool {
        self.has_stepped.load(Ordering::Relaxed)
    }

    /// Such a look has found nothing.
    pub(crate) fn note_nothing(&self) {
        let Some(telling) = telling() else { return };
        self.with_known(|members| {
            let members = members.iter().filter(|member| member.is_some());
            members.for_each(|member| (telling.saw_none)(member.fd));
        });
    }

    /// After a change of interest: a set without listeners needs no alarm and no baton. The baton
    /// may just have woken a thread there, which does not find it any more.
    ///
    /// In a set that no other call is in, and while nothing is declined, the baton stays until the
    /// next sleep: a server may add its listener again at once.
    pub(super) fn leave_baton_alone(&self, set: &impl KernelEpoll) {
        let is_kept = || {
            set.is_in_one_call()
                && !baton::may_have_notes()
                && !mutated!("baton_goes_with_each_listener")
        };
        if !self.any() && (self.alarm.is_set() || self.has_baton() && !is_kept()) {
            self.leave_baton(set);
        }
    }

    /// Whether the set watches the baton, or is about to.
    #[inline(always)]
    pub(crate) fn has_baton(&self) -> bool {
        self.baton.load(Ordering::Relaxed) >= 0
    }

    /// Before a sleep without listeners: the baton would wake the thread.
    pub(super) fn drop_kept_baton(&self, set: &impl KernelEpoll) {
        if self.has_baton() && set.is_usable() && !mutated!("kept_baton_stays") {
            self.leave_baton(set);
        }
    }

    /// The set watches neither the alarm nor the baton any more, unless it has a listener.
    #[cold]
    fn leave_baton(&self, set: &impl KernelEpoll) {
        let left = self
            .with(|members| self.alarm.ends_with_the_last(set, members) && self.drop_baton(set));
        if left && baton::has_notes() {
            baton::pass_unlocked();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::told::{Telling, set_telling};
    use super::super::super::{Choice, shares};
    use super::super::ctl::tests::Epoll;
    use super::*;
    use crate::sys::{self, Errno};
    use crate::table::alone::alone;
    use core::cell::Cell;
    use core::ptr;
    extern crate std;

    std::thread_local! {
        static HAS_DECLINED: Cell<bool> = const { Cell::new(false) };
    }

    static TELLING: Telling = Telling {
        tell: |_, _| {},
        wake: |_| {},
        looks_first: || HAS_DECLINED.get(),
        hold_as: |_| {},
        saw_none: |_| {},
    };

    /// A thread that had declined a connection took a later one, of which it was told in its sleep,
    /// for the same, and passed it on to nobody.
    #[test]
    fn a_thread_that_has_declined_looks_first() {
        let _alone = alone();
        shares::begin_in_silence(Choice::Automatic, None);
        set_telling(&TELLING);
        let rotation = Rotation::new();
        HAS_DECLINED.set(true);
        assert!(!rotation.looks_first(), "it has no listener");
        rotation.with(|members| members[0] = Member { fd: 3, ..Member::NONE });
        assert!(rotation.looks_first());
        rotation.baton.store(0, Ordering::Relaxed);
        rotation.rescue_clock.note();
        rotation.begin_calm(&[Member { fd: 3, ..Member::NONE }], 0);
        assert!(rotation.looks_first() && !rotation.is_calm());
        HAS_DECLINED.set(false);
        assert!(!rotation.looks_first());
        rotation.begin_calm(&[Member { fd: 3, ..Member::NONE }], 0);
        assert!(rotation.is_calm_alone());
        HAS_DECLINED.set(true);
        assert!(!rotation.looks_first(), "there is nobody to pass it on to");
        HAS_DECLINED.set(false);
    }

    fn is_taken_out(epoll: c_int, number: c_int) -> bool {
        match sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, number, ptr::null()) {
            Err(error) => assert_eq!(error, Errno::ENOENT),
            Ok(()) => return true,
        }
        false
    }

    /// That one watched the baton with the data of the first, which its program was told, and not
    /// with its own.
    #[test]
    fn a_baton_has_its_new_number_in_no_set_that_is_closed() {
        let _alone = alone();
        let rotation = Rotation::new();
        let another = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        let old = sys::eventfd(0, libc::EFD_CLOEXEC).expect("a number");
        let new = sys::duplicate_above(old, 0).expect("a number");
        assert!(baton::watch_in(another, 0, old));
        rotation.baton.store(old, Ordering::Relaxed);
        // A set that is closed, and whose number another one has got.
        let closed = Epoll { is_closed: true, ..Epoll::open(|| another) };
        rotation.renumber_baton(&closed, old, new);
        assert!(is_taken_out(another, old) && !is_taken_out(another, new));
        assert!(rotation.drop_baton(&closed));
        [another, old, new].into_iter().for_each(|fd| _ = sys::close(fd));
    }

    /// A close that found none did not wait, and the set that got the number lost its watch of the
    /// baton.
    #[test]
    fn a_set_has_the_baton_until_it_watches_it_no_longer() {
        let _alone = alone();
        let rotation = Rotation::new();
        let epoll = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        let pipe = sys::eventfd(0, libc::EFD_CLOEXEC).expect("a number");
        assert!(baton::watch_in(epoll, 0, pipe));
        rotation.baton.store(pipe, Ordering::Relaxed);
        let set = Epoll::open(|| {
            assert!(rotation.has_baton(), "a close would find none");
            epoll
        });
        assert!(rotation.drop_baton(&set) && !rotation.has_baton());
        assert!(!is_taken_out(epoll, pipe));
        [epoll, pipe].into_iter().for_each(|fd| _ = sys::close(fd));
    }
}
