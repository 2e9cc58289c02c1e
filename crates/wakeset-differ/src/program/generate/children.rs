//! Which process makes the next call, and how long processes live.

use super::{Generator, Slot};
use crate::program::choices::Choices;
use crate::program::{At, CHILDREN, Ending, Op, SLOTS, Time};
use libc::EPOLL_CTL_ADD;

/// Longer than it takes until a child counts as a worker.
const LONG: u16 = 1100;

impl<C: Choices> Generator<'_, C> {
    /// Most programs have a second thread: a process of one thread serves a child before fork(2)
    /// returns, and another one by a thread of its own.
    pub(super) fn begin_with_children(&mut self, ops: &mut Vec<Op>) {
        if self.style.children && !self.choices.once_in(4) {
            ops.push(Op::Thread);
        }
    }

    fn child(&mut self) -> u8 {
        1 + self.choices.below(u32::from(CHILDREN)) as u8
    }

    /// What happens to processes before the next call.
    pub(super) fn change_process(&mut self, ops: &mut Vec<Op>) {
        if !self.style.children {
            return;
        }
        match self.choices.below(48) {
            0..2 => ops.push(Op::Child { child: self.child() }),
            2 => ops.push(Op::End { child: self.child(), how: self.ending() }),
            3..18 => ops.push(Op::Turn { child: self.child() }),
            18..24 => ops.push(Op::Turn { child: 0 }),
            25 if self.style.kernel && self.choices.once_in(2) => self.lend_pair(ops),
            26 if self.choices.once_in(4) => self.lend_timer(ops),
            27 => {
                let slot = self.of_kind(&[Slot::Timer]);
                ops.push(Op::TimeLeft { slot });
            }
            24 if self.choices.once_in(32) => {
                let millis = if self.choices.once_in(64) { LONG } else { 3 };
                ops.push(Op::Pause { millis });
            }
            _ => {}
        }
    }

    fn ending(&mut self) -> Ending {
        match self.choices.below(8) {
            0 => Ending::Exec,
            1 | 2 => Ending::Killed,
            _ => Ending::Exit,
        }
    }

    /// A child uses a pipe or pair while no other one lives, and ends. What its parent then reads
    /// is what both have written, and it may come home.
    fn lend_pair(&mut self, ops: &mut Vec<Op>) {
        (1..=CHILDREN).for_each(|child| ops.push(Op::End { child, how: Ending::Exit }));
        // Those of even slots are the kernel's.
        let slot = 2 * self.choices.below(u32::from(SLOTS) / 2) as u8 + 1;
        ops.push(Op::Close { slot });
        self.put(slot, Slot::Other);
        let other = self.fresh();
        self.put(other, Slot::Other);
        ops.push(match self.choices.once_in(2) {
            true => Op::Pipe { slot, other },
            false => Op::Sockets { slot, other },
        });
        for target in [slot, other] {
            if self.choices.once_in(2) {
                let (set, events) = (self.of_kind(&[Slot::Set]), self.mask());
                let (data, at) = (self.choices.bits(), At::Good);
                ops.push(Op::Ctl { set, op: EPOLL_CTL_ADD, target, events, data, at });
            }
        }
        let child = self.child();
        ops.extend([Op::Child { child }, Op::Turn { child }]);
        for _ in 0..1 + self.choices.below(3) {
            self.use_pair([slot, other], ops);
        }
        ops.extend([Op::End { child, how: self.ending() }, Op::Pause { millis: 1 }]);
        for _ in 0..4 + self.choices.below(16) {
            match self.choices.below(4) {
                0 => self.wait(ops),
                1 if self.choices.once_in(4) => self.next(ops),
                1 => ops.push(self.ask_of_pair([slot, other])),
                _ => self.use_pair([slot, other], ops),
            }
        }
    }

    /// A child reads a timer while no other one lives, and ends. The timer may come home when its
    /// parent reads it, sets it or asks how much time is left.
    fn lend_timer(&mut self, ops: &mut Vec<Op>) {
        (1..=CHILDREN).for_each(|child| ops.push(Op::End { child, how: Ending::Exit }));
        let slot = self.choices.below(u32::from(SLOTS)) as u8;
        ops.extend([Op::Close { slot }, Op::Timer { slot, flags: libc::TFD_NONBLOCK }]);
        self.put(slot, Slot::Timer);
        ops.push(self.lent_timer_is_set(slot));
        if !self.choices.once_in(4) {
            let (set, events) = (self.of_kind(&[Slot::Set]), self.mask());
            let (data, at) = (self.choices.bits(), At::Good);
            ops.push(Op::Ctl { set, op: EPOLL_CTL_ADD, target: slot, events, data, at });
        }
        let (child, read) = (self.child(), Op::Read { slot, len: 8, at: At::Good });
        ops.extend([Op::Child { child }, Op::Turn { child }, read]);
        if self.choices.once_in(8) {
            ops.push(self.lent_timer_is_set(slot));
        }
        // Sometimes it is set while a child has it.
        if self.choices.once_in(4) {
            ops.extend([Op::Turn { child: 0 }, self.lent_timer_is_set(slot)]);
        }
        ops.extend([Op::End { child, how: self.ending() }, Op::Pause { millis: 1 }]);
        for _ in 0..4 + self.choices.below(12) {
            match self.choices.below(7) {
                6 => ops.push(Op::TimeLeft { slot }),
                0 | 1 => self.wait(ops),
                2 if self.choices.once_in(4) => self.next(ops),
                2 | 3 => ops.push(self.lent_timer_is_set(slot)),
                _ => ops.push(read),
            }
        }
    }

    fn lent_timer_is_set(&mut self, slot: u8) -> Op {
        let times = [Time::Past, Time::PastAndAgain, Time::PastAndAgain, Time::Far, Time::Never];
        Op::SetTimer { slot, time: self.choices.one_of(&times), at: At::Good }
    }

    /// What leaves a pair its way home.
    fn ask_of_pair(&mut self, slots: [u8; 2]) -> Op {
        let lens = [1, 2, 0, 5];
        match self.choices.below(4) {
            0 => Op::Poll { slots, events: libc::POLLIN | libc::POLLOUT },
            1 => Op::Select { slot: self.choices.one_of(&slots) },
            2 => Op::ReadPieces { slot: slots[0], lens, message: self.choices.once_in(2) },
            _ => {
                let (value, message) = (self.value(), self.choices.once_in(2));
                Op::WritePieces { slot: slots[1], value, lens, message }
            }
        }
    }

    /// A read or write of a pair, mostly by the ends that a pipe has for it.
    fn use_pair(&mut self, [reader, writer]: [u8; 2], ops: &mut Vec<Op>) {
        let crossed = self.choices.once_in(4);
        let (reader, writer) = if crossed { (writer, reader) } else { (reader, writer) };
        let len = self.choices.one_of(&[1, 2, 8, 16]);
        ops.push(match self.choices.below(5) {
            0 | 1 => Op::Write { slot: writer, value: self.value(), len, at: At::Good },
            _ => Op::Read { slot: reader, len: 2 * len, at: At::Good },
        });
    }
}
