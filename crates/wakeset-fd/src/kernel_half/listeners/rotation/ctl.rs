//! epoll_ctl(2) in the kernel half of a set, where a listener may join the rotation.

use super::super as listeners;
use super::{MOST, Member, Rotation};
use crate::kernel_half::KernelEpoll;
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, epoll_event};
use wakeset::{Event, Events, mutated};

/// Returns whether a watch for these events can be made exclusive without a difference to what it
/// reports.
pub(crate) fn can_join(events: Events) -> bool {
    let allowed =
        Events::IN | Events::ERR | Events::HUP | Events::WAKEUP | Events::ET | Events::EXCLUSIVE;
    events.contains(Events::IN) && events.intersection(allowed) == events
}

/// One call of epoll_ctl(2).
struct Ctl<'a, S> {
    rotation: &'a Rotation,
    set: &'a S,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
    asked: Event,
}

impl Rotation {
    /// epoll_ctl(2) on a kernel descriptor in the kernel half of `set`. Returns whether the set has
    /// got its first listener by it.
    pub(crate) fn epoll_ctl(
        &self,
        set: &impl KernelEpoll,
        op: c_int,
        fd: c_int,
        event: *const epoll_event,
        asked: Event,
    ) -> Result<bool, Errno> {
        let ctl = Ctl { rotation: self, set, op, fd, event, asked };
        let unchanged = |result: Result<(), Errno>| result.map(|()| false);
        if self.is_apart(&ctl) {
            let result = ctl.call();
            let is_exclusive = op == EPOLL_CTL_MOD && result == Err(Errno::EINVAL);
            if !is_exclusive || mutated!("new_listener_cannot_change") {
                return unchanged(result);
            }
            // The kernel changes no exclusive watch, and another thread may have just added this
            // listener. If it is the program's mistake, the kernel will say so again.
        }
        self.change_member(&ctl)
    }

    /// The change of a listener's watch, or of one that may be taken for such.
    #[inline(never)]
    fn change_member<S: KernelEpoll>(&self, ctl: &Ctl<'_, S>) -> Result<bool, Errno> {
        let Ctl { set, op, fd, .. } = *ctl;
        let unchanged = |result: Result<(), Errno>| result.map(|()| false);
        let result = self.with(|members| {
            if set.is_in_kernel() {
                return unchanged(ctl.call());
            }
            // Under the lock: another thread may have removed the last one meanwhile.
            let is_first = !members.iter().any(Member::is_some);
            // It has a watch, for the program.
            let stepped = members.iter_mut().filter(|known| known.fd == fd && known.is_stepped);
            stepped.for_each(|known| known.renew(set.number()));
            match op {
                EPOLL_CTL_ADD => ctl.add(members),
                EPOLL_CTL_MOD => ctl.modify(members),
                EPOLL_CTL_DEL => ctl.remove(members),
                _ => ctl.call(),
            }?;
            Ok(is_first && members.iter().any(Member::is_some))
        });
        self.leave_baton_alone(set);
        result
    }

    /// Whether a change is of no member's watch, and of one that no member is taken for, as far as
    /// is known without the lock. Its data is noted then.
    ///
    /// A removal may be of a listener that another thread is just adding. Its member then has no
    /// watch, as if the listener had been closed: it is forgotten when it is next added, changed,
    /// removed or put at the end of its queue. Until then it costs a look in each rescue period.
    #[inline(always)]
    fn is_apart<S: KernelEpoll>(&self, ctl: &Ctl<'_, S>) -> bool {
        let may_join = || ctl.op == EPOLL_CTL_ADD && ctl.may_join();
        if self.any() || self.others.remember_any() || may_join() {
            return self.is_anothers(ctl);
        }
        // The first listener may join in this moment.
        let data = Some(ctl.asked.data);
        ctl.op == EPOLL_CTL_DEL || self.others.are_apart(&self.outline, ctl.fd, data)
    }

    /// The same, where a listener is, or was, a member.
    #[inline(always)]
    fn is_anothers<S: KernelEpoll>(&self, ctl: &Ctl<'_, S>) -> bool {
        let data = match ctl.op {
            EPOLL_CTL_DEL => None,
            EPOLL_CTL_ADD | EPOLL_CTL_MOD if listeners::is_known_other(ctl.fd) => {
                // It may come to listen while it has this watch.
                self.others.forget_number(ctl.fd);
                Some(ctl.asked.data)
            }
            _ => return false,
        };
        self.others.are_apart(&self.outline, ctl.fd, data)
    }
}

impl<S: KernelEpoll> Ctl<'_, S> {
    /// The call as the program made it.
    fn call(&self) -> Result<(), Errno> {
        sys::epoll_ctl(self.set.number(), self.op, self.fd, self.event)
    }

    fn may_join(&self) -> bool {
        self.may_join_if(|| listeners::confirm(self.fd))
    }

    fn may_join_if(&self, is_listener: impl FnOnce() -> bool) -> bool {
        let allowed = can_join(self.asked.events) && listeners::order().is_some() && is_listener();
        allowed && !self.rotation.has_twins.load(Ordering::Relaxed)
    }

    /// Whether the listener with this inode is the member that was removed last, as nginx's is
    /// after every 16 connections: what is known of its number holds.
    fn is_back(&self, inode: Option<u64>) -> bool {
        let is_same = |inode| self.rotation.others.remember_listener(self.fd, inode);
        inode.is_some_and(is_same) && listeners::is_known_listener(self.fd)
    }

    /// The watch as a member that is not yet in the kernel.
    fn member(&self, inode: Option<u64>) -> Member {
        Member {
            fd: self.fd,
            events: self.asked.events.bits() & !(EPOLLEXCLUSIVE as u32),
            data: self.asked.data,
            asked_exclusive: self.asked.events.contains(Events::EXCLUSIVE),
            inode,
            ..Member::NONE
        }
    }

    fn known<'m>(&self, members: &'m mut [Member; MOST]) -> Option<&'m mut Member> {
        members.iter_mut().find(|member| member.fd == self.fd)
    }

    fn add(&self, members: &mut [Member; MOST]) -> Result<(), Errno> {
        // A connection of an event loop's, most often, which is known to be none.
        let inode = listeners::is_listener(self.fd).then(|| listeners::inode(self.fd)).flatten();
        self.separate_twins(members, inode);
        let is_back = self.is_back(inode);
        self.rotation.others.forget_number(self.fd);
        let known = members.iter().position(|member| member.fd == self.fd);
        let slot = known
            .or_else(|| members.iter().position(|member| !member.is_some()))
            .filter(|_| self.may_join_if(|| is_back || listeners::confirm(self.fd)));
        let Some(slot) = slot.and_then(|slot| members.get_mut(slot)) else {
            let result = self.call();
            if let (Ok(()), Some(stale)) = (result, self.known(members)) {
                *stale = Member::NONE;
            }
            self.mark_same_data(members);
            return result;
        };
        let mut member = self.member(inode);
        inode.into_iter().for_each(listeners::note_exclusive_inode);
        listeners::end_alone(self.fd);
        match member.add(self.set.number(), true) {
            Ok(()) => {
                *slot = member;
                self.mark_same_data(members);
                Ok(())
            }
            // Before Linux 4.5, or an error that the kernel will name again.
            Err(Errno::EINVAL) => self.call(),
            result => result,
        }
    }

    /// If a member is the same listener under another number, both are reported, so none may be
    /// passed over for the other: the member's watch becomes plain, and no more listeners join.
    fn separate_twins(&self, members: &mut [Member; MOST], inode: Option<u64>) {
        let is_twin = |member: &&mut Member| {
            member.is_some() && member.fd != self.fd && member.inode == inode
        };
        if inode.is_some() && members.iter_mut().any(|member| is_twin(&member)) {
            self.rotation.has_twins.store(true, Ordering::Relaxed);
            members.iter_mut().filter(is_twin).for_each(|member| member.make_plain(self.set));
        }
    }

    /// After this watch was added or changed: an event with its data may be its own.
    fn mark_same_data(&self, members: &mut [Member; MOST]) {
        self.rotation.others.mark_same(members, self.fd, self.asked.data);
    }

    fn modify(&self, members: &mut [Member; MOST]) -> Result<(), Errno> {
        let Some(known) = self.known(members) else {
            let result = self.call();
            self.mark_same_data(members);
            return result;
        };
        if known.asked_exclusive || self.asked.events.contains(Events::EXCLUSIVE) {
            return self.call();
        }
        if !known.remove(self.set.number()) {
            *known = Member::NONE;
            return self.call();
        }
        self.rotation.others.remember(known);
        *known = self.member(known.inode);
        let stays = self.may_join();
        match known.add(self.set.number(), stays) {
            Ok(()) if stays => self.mark_same_data(members),
            // As good as done: the watch is added before the next sleep.
            Err(_) if known.missing => {}
            Ok(()) => *known = Member::NONE,
            Err(error) => {
                *known = Member::NONE;
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove(&self, members: &mut [Member; MOST]) -> Result<(), Errno> {
        let Some(known) = self.known(members) else { return self.call() };
        let missing = known.missing;
        self.rotation.others.remember(known);
        *known = Member::NONE;
        if missing { Ok(()) } else { self.call() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernel_half::listeners::{self as listeners, Choice};
    use crate::table::alone::alone;
    use core::cell::Cell;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;
    extern crate std;

    /// A set, by what says its number.
    pub(in super::super) struct Epoll<F> {
        pub(in super::super) number: F,
        pub(in super::super) is_in_kernel: bool,
        pub(in super::super) is_closed: bool,
    }

    impl<F> Epoll<F> {
        /// One whose watches can be changed.
        pub(in super::super) const fn open(number: F) -> Self {
            Self { number, is_in_kernel: false, is_closed: false }
        }
    }

    impl<F: Fn() -> c_int> KernelEpoll for Epoll<F> {
        fn number(&self) -> c_int {
            (self.number)()
        }

        fn is_in_kernel(&self) -> bool {
            self.is_in_kernel
        }

        fn is_closed(&self) -> bool {
            self.is_closed
        }

        fn admit_baton(&self) -> u64 {
            0
        }

        fn admit_alarm(&self) -> u64 {
            0
        }
    }

    fn change(
        rotation: &Rotation,
        set: &impl KernelEpoll,
        op: c_int,
        listener: &TcpListener,
    ) -> Result<bool, Errno> {
        let fd = listener.as_raw_fd();
        listeners::forget(fd);
        let event = epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        let asked = Event::new(Events::IN, fd as u64);
        rotation.epoll_ctl(set, op, fd, &raw const event, asked)
    }

    /// The first listener was not told of to threads that slept without one, if there was another
    /// when its addition began to wait for the lock.
    #[test]
    fn a_listener_is_the_first_as_the_lock_is_held() {
        let _alone = alone();
        listeners::choose(Choice::Automatic, None);
        let number = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        let set = Epoll::open(|| number);
        let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let rotation = Rotation::new();
        assert_eq!(change(&rotation, &set, EPOLL_CTL_ADD, &one), Ok(true));
        assert_eq!(change(&rotation, &set, EPOLL_CTL_ADD, &other), Ok(false));
        assert_eq!(change(&rotation, &set, EPOLL_CTL_DEL, &other), Ok(false));
        let (begun, begins) = mpsc::channel();
        thread::scope(|scope| {
            let added = rotation.with(|members| {
                let added = scope.spawn(|| {
                    begun.send(()).expect("a receiver");
                    change(&rotation, &set, EPOLL_CTL_ADD, &other)
                });
                begins.recv().expect("a sender");
                // By then it waits for the lock.
                thread::sleep(Duration::from_millis(100));
                *members = [Member::NONE; MOST];
                added
            });
            assert_eq!(added.join().expect("it ends"), Ok(true));
        });
        let _ = sys::close(number);
    }

    /// The kernel changes no exclusive watch, and its EINVAL was the program's.
    #[test]
    fn a_listener_that_another_thread_has_just_added_can_be_changed() {
        let _alone = alone();
        listeners::choose(Choice::Automatic, None);
        let number = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        for (op, says) in [(EPOLL_CTL_MOD, Ok(false)), (EPOLL_CTL_DEL, Ok(false))] {
            let rotation = Rotation::new();
            let add = || {
                let added = change(&rotation, &Epoll::open(|| number), EPOLL_CTL_ADD, &listener);
                assert_eq!(added, Ok(true));
            };
            // Another thread adds the listener when the number is first asked for.
            let adds = Cell::new(Some(add));
            let set = Epoll::open(|| {
                if let Some(add) = adds.take() {
                    add();
                }
                number
            });
            assert_eq!(change(&rotation, &set, op, &listener), says);
            assert!(adds.take().is_none() && rotation.any());
            // Of a watch that is gone the member goes with the next change.
            let after = change(&rotation, &set, EPOLL_CTL_MOD, &listener);
            let is_gone = op == EPOLL_CTL_DEL;
            assert_eq!(after, if is_gone { Err(Errno::ENOENT) } else { Ok(false) });
            assert_eq!(rotation.any(), !is_gone);
            let _ = change(&rotation, &set, EPOLL_CTL_DEL, &listener);
        }
        let _ = sys::close(number);
    }
}
