//! epoll_ctl(2), batches of it, and event rings.

use super::Interpreter;
use super::memory::Memory;
use super::sink::{Outcome, Sink};
use crate::program::{At, BATCH, Command, Op};
use crate::world::{self, Sysno, World};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, c_int, epoll_event};

impl<W: World> Interpreter<W> {
    /// One epoll_ctl(2), with its effect on the model. `readable`: there is an event at `place`.
    pub(super) fn call_ctl(
        &mut self,
        set: c_int,
        op: c_int,
        target: c_int,
        events: u32,
        readable: bool,
        place: usize,
    ) -> isize {
        if self.by_instruction() {
            self.model.migrate(set);
            self.model.migrate(target);
        }
        self.model.before_ctl(set, op, target, events, readable);
        let result =
            self.call(Sysno::epoll_ctl, &[set as usize, op as usize, target as usize, place]);
        if result == 0 {
            self.note_ctl(set, op, target, events);
        }
        result
    }

    fn note_ctl(&mut self, set: c_int, op: c_int, target: c_int, events: u32) {
        match op {
            EPOLL_CTL_ADD => self.model.added(set, target, events),
            EPOLL_CTL_MOD => self.model.modified(set, target, events),
            _ => self.model.removed(set, target),
        }
    }

    /// `None` if this ADD goes beyond what can be compared. A target is added to no set that other
    /// sets watch if it may be a doorbell: an ADD of a closed number makes that set migrate, and of
    /// a doorbell's number it does not.
    fn can_add(&self, set: c_int, target: c_int) -> Option<()> {
        if self.model.is_watched(set) {
            self.no_doorbell(target)?;
        }
        (!self.model.is_full(set)).then_some(())
    }

    /// The outcome has the data.
    pub(super) fn ctl(
        &mut self,
        set: u8,
        command: Command,
        at: At,
        sink: &mut impl Sink,
    ) -> Option<Outcome> {
        let (set, target) = (self.number(set), self.number(command.target));
        if self.by_instruction() && command.op == EPOLL_CTL_MOD {
            // Whether it can be changed may depend on the migration.
            self.settle(set, sink);
            self.settle(target, sink);
        }
        if command.op == EPOLL_CTL_ADD {
            // An ADD to a number that is no set makes the target migrate; to a doorbell it does
            // not.
            self.no_doorbell(set)?;
            self.can_add(set, target)?;
        }
        if command.op == EPOLL_CTL_MOD && self.model.has_watch(set, target) {
            self.model.can_change(set).then_some(())?;
        }
        let events = self.model.asked(target, command.events);
        let data = self.model.data(target, events, command.data);
        let place = self.memory.put_at(at, epoll_event { events, u64: data });
        let readable = Memory::is_readable::<epoll_event>(at);
        let result = self.call_ctl(set, command.op, target, events, readable, place);
        Some(Outcome { result, beside: data })
    }

    /// Several commands in one call. Each is reported as an epoll_ctl(2); the result of the batch
    /// is the number that succeeded.
    pub(super) fn batch(
        &mut self,
        set: u8,
        stop: bool,
        commands: [Command; BATCH],
        sink: &mut impl Sink,
    ) -> Option<isize> {
        let set = self.number(set);
        self.no_doorbell(set)?;
        if self.model.turn() != 0 {
            return None;
        }
        if self.by_instruction() {
            let targets = commands.map(|command| self.number(command.target));
            [set].into_iter().chain(targets).for_each(|number| self.settle(number, sink));
        }
        let mut batch = commands.map(|command| {
            let target = self.number(command.target);
            let events = self.model.asked(target, command.events);
            let data = self.model.data(target, events, command.data);
            world::Command::new(command.op, target, events, data)
        });
        for command in batch.iter().filter(|command| command.op == EPOLL_CTL_ADD) {
            self.can_add(set, command.fd)?;
        }
        if batch.iter().any(|command| command.op == EPOLL_CTL_MOD) {
            self.model.can_change(set).then_some(())?;
        }
        self.world.batch(set, stop, &mut batch);
        for command in batch {
            let (op, fd, events) = (command.op, command.fd, command.event.events);
            if command.result != -libc::ECANCELED {
                self.model.before_ctl(set, op, fd, events, true);
            }
            if command.result == 0 {
                self.note_ctl(set, op, fd, events);
            }
            let op = Op::Ctl { set: 0, op, target: 0, events, data: 0, at: At::Good };
            sink.outcome(&op, command.result as isize, command.event.u64);
        }
        self.model.batch_ended();
        Some(batch.iter().filter(|command| command.result == 0).count() as isize)
    }

    pub(super) fn make_ring(&mut self, set: u8, entries: u8, polls: bool) -> Option<isize> {
        let set = self.number(set);
        self.no_doorbell(set)?;
        self.model.ringed(set, entries, polls);
        self.world.ring(set, entries.into(), polls);
        Some(0)
    }
}
