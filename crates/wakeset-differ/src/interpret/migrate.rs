//! Calls that make objects migrate, and what keeps the sides comparable when one has.

use super::Interpreter;
use super::memory::{ARGUMENT, ARGUMENT_2, ARGUMENT_3};
use super::sink::{Outcome, Sink};
use crate::model::Kind;
use crate::program::{At, Op};
use crate::world::{Sysno, World};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};

/// Numbers that may be those of doorbells.
pub(super) fn may_be_doorbell(number: c_int) -> bool {
    (400..1 << 20).contains(&number)
}

impl<W: World> Interpreter<W> {
    /// `None` for a number that may be a doorbell's: it looks closed to some calls and not to
    /// others (known difference 17).
    pub(super) fn no_doorbell(&self, number: c_int) -> Option<()> {
        (!may_be_doorbell(number)).then_some(())
    }

    /// Makes an object migrate on all sides, by a readv(2) of nothing into two buffers, and arms
    /// anew what that may report twice: before a call whose result would show a migration, and
    /// after a call that makes the object migrate on some sides and not on others.
    pub(super) fn settle(&mut self, number: c_int, sink: &mut impl Sink) {
        if !self.model.is_anywhere() {
            self.settle_anywhere(number, sink);
        }
    }

    /// The same where nothing is known of where objects are.
    pub(super) fn settle_anywhere(&mut self, number: c_int, sink: &mut impl Sink) {
        self.model.migrate(number);
        let buffers = self.memory.put(ARGUMENT_3, [[0_usize; 2]; 2]);
        self.call(Sysno::readv, &[number as usize, buffers, 2]);
        self.rearm(sink);
    }

    /// Arms the watches anew whose edges a migration may have doubled.
    pub(super) fn rearm(&mut self, sink: &mut impl Sink) {
        self.aside(|this| this.rearm_all(sink));
    }

    fn rearm_all(&mut self, sink: &mut impl Sink) {
        while let Some((set, watch)) = self.model.next_to_rearm() {
            let events = watch.events;
            let event = epoll_event { events, u64: self.model.data(watch.number, events, 0xed9e) };
            let place = self.memory.put(ARGUMENT, event);
            let ops: &[c_int] = if watch.is_exclusive() {
                &[EPOLL_CTL_DEL, EPOLL_CTL_ADD]
            } else {
                &[EPOLL_CTL_MOD]
            };
            for &op in ops {
                let result = self.call_ctl(set, op, watch.number, events, true, place);
                let op = Op::Ctl { set: 0, op, target: 0, events, data: 0, at: At::Good };
                let numbers = (set as u64) << 32 | watch.number as u64;
                sink.outcome(&op, result, self.shown_beside(numbers));
            }
        }
    }

    /// Before a call that tells what is ready in a set: arms its edges anew, and those of the sets
    /// below it, where objects may have migrated at any time. `None` if that cannot be done here.
    pub(super) fn rearm_below(&mut self, set: c_int, sink: &mut impl Sink) -> Option<()> {
        let can = self.model.rearm_below(set);
        self.rearm(sink);
        can.then_some(())
    }

    /// Removes the watches of a number that is about to be closed while another number stands for
    /// the same file, from sets with polls: a close ends a watch in an io_uring also then
    /// (SEMANTICS.md, 71). Beside other threads, from all sets: whether a later duplicate gets the
    /// number again, and is a watch that is there already, is a matter of luck. What is watched in
    /// process with edges under that number migrates: later its watch could not be armed anew.
    pub(super) fn before_close(&mut self, number: c_int, sink: &mut impl Sink) {
        if self.model.has_edges_of_one_of_several(number) {
            self.aside(|this| this.settle(number, sink));
        }
        if self.model.close_may_migrate(number) {
            self.settle(number, sink);
        }
        let polls = self.is_alone();
        while let Some(set) = self.model.watches_one_of_several(number, polls) {
            let result = self.aside(|this| this.call_ctl(set, EPOLL_CTL_DEL, number, 0, true, 0));
            let op =
                Op::Ctl { set: 0, op: EPOLL_CTL_DEL, target: 0, events: 0, data: 0, at: At::Good };
            sink.outcome(&op, result, self.shown_beside((set as u64) << 32 | number as u64));
            if result != 0 {
                return;
            }
        }
    }

    /// Before a call that is answered in process, unless the object is a set, of which only one
    /// without kernel descriptors stays, or the call is made by instruction.
    fn settle_polled(&mut self, number: c_int, sink: &mut impl Sink) {
        if self.by_instruction() || self.model.kind(number) == Some(Kind::Set) {
            self.settle(number, sink);
        }
    }

    /// poll(2) of two. The outcome has the bits of both.
    pub(super) fn poll(
        &mut self,
        slots: [u8; 2],
        events: i16,
        sink: &mut impl Sink,
    ) -> Option<Outcome> {
        let fds = slots.map(|slot| libc::pollfd { fd: self.number(slot), events, revents: 0 });
        for fd in fds {
            self.no_doorbell(fd.fd)?;
            self.rearm_below(fd.fd, sink)?;
            self.settle_polled(fd.fd, sink);
        }
        let place = self.memory.put(ARGUMENT, fds);
        let result = self.call(Sysno::poll, &[place, 2, 0]);
        let [first, second] =
            self.memory.get::<[libc::pollfd; 2]>(place).map(|fd| fd.revents as u16);
        Some(Outcome { result, beside: u64::from(first) << 16 | u64::from(second) })
    }

    /// select(2). The outcome has a bit for each direction. A closed number is EBADF only within
    /// the size of the descriptor table, which doorbells enlarge (known difference 17).
    pub(super) fn select(&mut self, slot: u8, sink: &mut impl Sink) -> Option<Outcome> {
        let number = self.number(slot);
        if !self.model.is_open(number) {
            return None;
        }
        self.rearm_below(number, sink)?;
        self.settle_polled(number, sink);
        let mut set = [0_u64; 16];
        set[number as usize / 64] = 1 << (number % 64);
        let sets = [ARGUMENT, ARGUMENT_2].map(|offset| self.memory.put(offset, set));
        let now = self.memory.put(ARGUMENT_3, libc::timeval { tv_sec: 0, tv_usec: 0 });
        let result = self.call(Sysno::select, &[number as usize + 1, sets[0], sets[1], 0, now]);
        let beside = sets.into_iter().fold(0, |beside, set| {
            let bits = self.memory.get::<[u64; 16]>(set);
            beside << 1 | u64::from(bits[number as usize / 64] != 0)
        });
        Some(Outcome { result, beside })
    }

    pub(super) fn shutdown(&mut self, slot: u8, how: i32) -> Option<isize> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        if self.by_instruction() || self.model.shutdown_migrates(number, how) {
            self.model.migrate(number);
        }
        Some(self.call(Sysno::shutdown, &[number as usize, how as usize]))
    }

    pub(super) fn fork(&mut self) -> Option<isize> {
        if !self.is_alone() || self.model.turn() != 0 {
            return None;
        }
        self.model.migrate_everything();
        self.world.fork();
        Some(0)
    }
}
