//! Calls on sets: epoll_wait(2), epoll_ctl(2), and batches of it.

use super::{Generator, Slot};
use crate::program::choices::Choices;
use crate::program::{At, BATCH, Command, Mask, Op, SLOTS, Timeout, WaitCall};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};

/// Sizes of buffers that are not valid, or border on what is not.
const ODD_SIZES: [i32; 7] = [0, -1, i32::MIN, i32::MAX, i32::MAX / 12, i32::MAX / 12 + 1, 1000];

/// Time limits that epoll_pwait2(2) refuses, and one that it takes.
const ODD_TIMES: [Timeout; 4] = [
    Timeout::Nonsense(-1, 0),
    Timeout::Nonsense(0, -1),
    Timeout::Nonsense(0, 1_000_000_000),
    Timeout::Nonsense(0, 0),
];

impl<C: Choices> Generator<'_, C> {
    pub(super) fn wait(&mut self, ops: &mut Vec<Op>) {
        let set = self.of_kind(&[Slot::Set]);
        let maxevents = if self.is_odd() {
            self.choices.one_of(&ODD_SIZES)
        } else if self.style.small_buffers {
            1 + self.choices.below(4) as i32
        } else {
            64
        };
        let timeout = match self.choices.below(16) {
            0 => Timeout::Infinite,
            1 if self.style.sleeps => Timeout::Micros(self.choices.one_of(&[1, 50, 200, 1000])),
            _ => Timeout::Zero,
        };
        let call = self.wait_call();
        let timeout = if self.is_odd() && matches!(call, WaitCall::Pwait2(_)) {
            self.choices.one_of(&ODD_TIMES)
        } else {
            timeout
        };
        let at = self.at(6);
        ops.push(Op::Wait { set, maxevents, timeout, call, at });
    }

    fn wait_call(&mut self) -> WaitCall {
        if !self.everything() || !self.choices.once_in(8) {
            return WaitCall::Wait;
        }
        let mask = match self.choices.below(8) {
            0 if self.style.odd != 0 => Mask::Nowhere,
            1..4 => Mask::Empty,
            _ => Mask::Null,
        };
        if self.choices.once_in(2) { WaitCall::Pwait(mask) } else { WaitCall::Pwait2(mask) }
    }

    pub(super) fn ctl(&mut self, ops: &mut Vec<Op>) {
        let set = self.of_kind(&[Slot::Set]);
        let target = match self.choices.below(8) {
            0 if self.style.sets => self.of_kind(&[Slot::Set]),
            1..3 if self.style.nested_timers => self.of_kind(&[Slot::Set]),
            1..3 if self.style.kernel => self.of_kind(&[Slot::Other]),
            3..6 if self.style.timers => self.of_kind(&[Slot::Timer]),
            _ => self.of_kind(&[Slot::Counter]),
        };
        let events = self.mask();
        let data = self.choices.bits();
        let at = self.at(16);
        let watched = self
            .watched
            .get(usize::from(set))
            .is_some_and(|slots| slots & (1 << (target % 16)) != 0);
        let mut op = match self.choices.below(8) {
            0 | 1 if watched => EPOLL_CTL_DEL,
            _ if watched => EPOLL_CTL_MOD,
            _ => EPOLL_CTL_ADD,
        };
        if self.is_odd() {
            op = self.choices.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 0, 4, -1]);
        }
        // The likely result is noted; a wrong guess leads to EEXIST or ENOENT.
        if let (true, Some(slots)) =
            (target < SLOTS && at == At::Good, self.watched.get_mut(usize::from(set)))
        {
            match op {
                EPOLL_CTL_ADD => *slots |= 1 << target,
                EPOLL_CTL_DEL => *slots &= !(1 << target),
                _ => {}
            }
        }
        ops.push(Op::Ctl { set, op, target, events, data, at });
        if self.choices.once_in(5) {
            self.batch(set, ops);
        }
    }

    /// A batch on the set of the preceding epoll_ctl(2).
    fn batch(&mut self, set: u8, ops: &mut Vec<Op>) {
        let mut commands = [Command { op: EPOLL_CTL_DEL, target: 0, events: 0, data: 0 }; BATCH];
        for command in &mut commands {
            let target = match self.choices.below(6) {
                0 if self.style.sets => self.of_kind(&[Slot::Set]),
                1..3 if self.style.kernel => self.of_kind(&[Slot::Other]),
                _ => self.of_kind(&[Slot::Counter]),
            };
            let op =
                self.choices.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL]);
            *command = Command { op, target, events: self.mask(), data: self.choices.bits() };
        }
        let stop = self.choices.once_in(3);
        ops.push(Op::Batch { set, stop, commands });
    }
}
