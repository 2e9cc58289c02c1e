//! Calls that make, duplicate and close objects.

use super::{Generator, Slot};
use crate::program::choices::Choices;
use crate::program::{Duplication, Op, Road, SLOTS};

impl<C: Choices> Generator<'_, C> {
    /// A slot for a new object: an unused one, else one that is closed, else any.
    pub(super) fn fresh(&mut self) -> u8 {
        let unused = (0..SLOTS).find(|slot| self.slots[usize::from(*slot)] == Slot::Unused);
        let start = self.choices.below(u32::from(SLOTS)) as u8;
        let closed = || {
            (0..SLOTS)
                .map(|i| (start + i) % SLOTS)
                .find(|slot| self.slots[usize::from(*slot)] == Slot::Closed)
        };
        unused.or_else(closed).unwrap_or(start)
    }

    /// Notes what a slot stands for now.
    pub(super) fn put(&mut self, slot: u8, kind: Slot) {
        self.slots[usize::from(slot)] = kind;
        self.watched[usize::from(slot)] = 0;
        for set in &mut self.watched {
            *set &= !(1 << slot);
        }
        self.used = self.used.max(u32::from(slot) + 1);
    }

    pub(super) fn make_set(&mut self, ops: &mut Vec<Op>) {
        let slot = self.fresh();
        let flags = if self.is_odd() { self.choices.bits() as i32 } else { libc::EPOLL_CLOEXEC };
        ops.push(Op::Set { slot, flags });
        if flags & !libc::EPOLL_CLOEXEC == 0 {
            self.put(slot, Slot::Set);
            if self.style.rings && self.choices.once_in(2) {
                self.ring(slot, ops);
            }
        }
    }

    /// Gives a set an event ring, mostly one that is soon full.
    pub(super) fn ring(&mut self, set: u8, ops: &mut Vec<Op>) {
        let entries = self.choices.one_of(&[1, 1, 2, 2, 4, 8, 32, 32]);
        let polls = self.style.kernel && self.choices.once_in(3);
        ops.push(Op::Ring { set, entries, polls });
    }

    pub(super) fn make_source(&mut self, ops: &mut Vec<Op>) {
        let slot = self.fresh();
        if self.style.kernel && self.choices.below(3) == 0 {
            self.make_kernel_source(slot, ops);
        } else if self.style.nested_timers && self.choices.once_in(2)
            || self.style.timers && self.choices.once_in(3)
        {
            self.make_timer(slot, ops);
        } else {
            self.make_counter(slot, ops);
        }
    }

    /// A directory, a pipe or a socket pair.
    fn make_kernel_source(&mut self, slot: u8, ops: &mut Vec<Op>) {
        if self.style.roads && self.choices.once_in(8) {
            ops.push(Op::File { slot });
            return self.put(slot, Slot::Other);
        }
        if self.choices.once_in(16) {
            ops.push(Op::Directory { slot });
            return self.put(slot, Slot::Other);
        }
        self.put(slot, Slot::Other);
        let other = self.fresh();
        self.put(other, Slot::Other);
        ops.push(match self.choices.below(2) {
            0 => Op::Pipe { slot, other },
            _ => Op::Sockets { slot, other },
        });
    }

    fn make_timer(&mut self, slot: u8, ops: &mut Vec<Op>) {
        let odd = self.is_odd() && self.everything() && self.choices.once_in(4);
        let flags = match self.choices.once_in(4) {
            _ if odd => self.choices.bits() as i32,
            true => 0,
            false => libc::TFD_NONBLOCK,
        };
        ops.push(Op::Timer { slot, flags });
        if flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) == 0 {
            self.put(slot, Slot::Timer);
        }
    }

    fn make_counter(&mut self, slot: u8, ops: &mut Vec<Op>) {
        let blocking = self.choices.once_in(4);
        let mut flags = if blocking { 0 } else { libc::EFD_NONBLOCK };
        flags |= if self.choices.once_in(4) { libc::EFD_SEMAPHORE } else { 0 };
        if self.is_odd() && self.everything() && self.choices.once_in(4) {
            flags = self.choices.bits() as i32;
        }
        let initial =
            if self.choices.once_in(3) { self.choices.one_of(&[1, 2, 7, u32::MAX]) } else { 0 };
        ops.push(Op::Counter { slot, initial, flags });
        if flags & !(libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) == 0 {
            self.put(slot, Slot::Counter);
        }
    }

    pub(super) fn close(&mut self, ops: &mut Vec<Op>) {
        let slot = self.object();
        ops.push(Op::Close { slot });
        if slot < SLOTS {
            self.put(slot, Slot::Closed);
        }
    }

    /// A number that is used again: the next file under it, and what is written there.
    pub(super) fn reuse(&mut self, ops: &mut Vec<Op>) {
        let slot = self.object();
        let mut roads = [(); 4].map(|()| self.choices.one_of(Road::ALL));
        if self.choices.once_in(4) {
            roads[0] = Road::Instruction;
        }
        ops.push(Op::Reuse { slot, roads });
        if slot < SLOTS {
            self.put(slot, Slot::Other);
        }
    }

    pub(super) fn duplicate(&mut self, ops: &mut Vec<Op>) {
        let slot = self.object();
        let kind = self.slots.get(usize::from(slot)).copied().unwrap_or(Slot::Closed);
        let how = match self.choices.below(if self.everything() { 9 } else { 1 }) {
            0..3 => Duplication::Lowest,
            3 => Duplication::From(self.choices.below(64) as u16),
            4 => Duplication::CloexecFrom(self.choices.below(64) as u16),
            5 => Duplication::Onto(100 + self.choices.below(8) as u16),
            6 => Duplication::OntoSlot(self.object()),
            7 => Duplication::OntoSlotWith(
                self.object(),
                self.choices.one_of(&[0, libc::O_CLOEXEC, 1]),
            ),
            _ if self.choices.once_in(2) => Duplication::Passed,
            _ => Duplication::PassedAndClosed,
        };
        let to = if self.choices.once_in(4) { slot % SLOTS } else { self.fresh() };
        ops.push(Op::Duplicate { slot, to, how });
        if how == Duplication::PassedAndClosed && slot < SLOTS {
            self.put(slot, Slot::Closed);
        }
        self.put(to, kind);
    }
}
