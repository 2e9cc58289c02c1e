//! Makes a program from decisions: a style first, then some objects, then calls.
//!
//! The same decisions always make the same program. A change here changes the program of every
//! seed; recorded programs (`tests/found`) are kept as programs and not as seeds, so they stay what
//! they are.

mod arguments;
mod children;
mod objects;
mod sets;
mod style;

use super::choices::Choices;
use super::{At, Focus, Op, Profile, Program, Road, SLOTS, Time};
use style::{Call, Style};

/// One call in so many is made by instruction: seldom, because what it names is the kernel's.
const INSTRUCTIONS: u32 = 64;

/// What a slot was last made as, as far as the generator knows: it does not see results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Unused,
    Counter,
    Timer,
    Set,
    Other,
    Closed,
}

struct Generator<'a, C> {
    choices: &'a mut C,
    style: Style,
    slots: [Slot; SLOTS as usize],
    /// By set: the slots that it probably watches, a bit each.
    watched: [u16; SLOTS as usize],
    /// Slots that have been used: those below this one.
    used: u32,
}

/// Replaces `program` by the one that these decisions make.
pub fn generate(choices: &mut impl Choices, profile: Profile, program: &mut Program) {
    program.ops.clear();
    program.by_number = choices.once_in(4);
    let style = Style::choose(choices, profile);
    let slots = [Slot::Unused; SLOTS as usize];
    let mut generator = Generator { choices, style, slots, watched: [0; SLOTS as usize], used: 0 };
    let ops = &mut program.ops;
    for _ in 0..1 + generator.choices.below(3) + u32::from(generator.style.nested_timers) {
        generator.make_set(ops);
    }
    for _ in 0..1 + generator.choices.below(5) {
        generator.make_source(ops);
    }
    let len = 60 + generator.choices.below(180);
    let roads = generator.style.roads;
    // Half of the operations choose a road.
    let len = if roads { 2 * len } else { len } as usize;
    // What comes after it is the kernel's, to the end of the worker.
    let apart = if roads && generator.choices.once_in(512) { len / 2 } else { usize::MAX };
    let mut is_apart = false;
    generator.begin_with_children(ops);
    while ops.len() < len && !generator.choices.is_at_end() {
        generator.change_process(ops);
        if roads {
            generator.take_road(ops);
        }
        if ops.len() >= apart && !is_apart {
            is_apart = true;
            ops.push(Op::NameSpace);
        }
        generator.next(ops);
    }
}

impl<C: Choices> Generator<'_, C> {
    fn next(&mut self, ops: &mut Vec<Op>) {
        match self.style.call(self.choices) {
            Call::Wait => self.wait(ops),
            Call::Ctl => self.ctl(ops),
            Call::Make if self.choices.once_in(3) => self.make_set(ops),
            Call::Make => self.make_source(ops),
            Call::Close => self.close(ops),
            Call::Duplicate => self.duplicate(ops),
            Call::Ring => {
                let set = self.of_kind(&[Slot::Set]);
                self.ring(set, ops);
            }
            Call::Write => ops.push(self.write()),
            Call::Read => ops.push(self.read()),
            Call::Nonblocking => ops.push(self.nonblocking()),
            Call::Poll => ops.push(self.poll()),
            Call::Vector => ops.push(self.vector()),
            Call::Pieces => ops.push(self.pieces()),
            Call::Waiting => ops.push(self.write_waiting()),
            Call::Splice => ops.push(self.splice()),
            Call::Shutdown => ops.push(self.shutdown()),
            Call::Fork => ops.push(Op::Fork),
            Call::SetTimer => ops.push(self.set_timer()),
            Call::NearTimer => self.near_timer(ops),
            Call::Reuse => self.reuse(ops),
        }
    }

    fn take_road(&mut self, ops: &mut Vec<Op>) {
        if self.style.profile.focus == Focus::Instructions && self.choices.once_in(INSTRUCTIONS) {
            ops.push(Op::Take { road: Road::Instruction });
        } else if !self.choices.once_in(4) {
            ops.push(Op::Take { road: self.choices.one_of(Road::ALL) });
        }
    }

    fn write(&mut self) -> Op {
        let slot = self.source();
        let (value, len) = (self.value(), self.len());
        Op::Write { slot, value, len, at: self.at(40) }
    }

    fn read(&mut self) -> Op {
        let slot = self.source();
        let (len, at) = (self.len(), self.at(40));
        Op::Read { slot, len, at }
    }

    fn nonblocking(&mut self) -> Op {
        let slot = self.of_kind(&[Slot::Counter, Slot::Timer]);
        let (on, ioctl) = (self.choices.once_in(2), self.choices.once_in(2));
        Op::Nonblocking { slot, on, ioctl }
    }

    fn poll(&mut self) -> Op {
        let slot = self.object();
        if self.choices.once_in(3) {
            return Op::Select { slot };
        }
        let other = self.object();
        let events = self.choices.one_of(&[1, 4, 5, -1]);
        Op::Poll { slots: [slot, other], events }
    }

    fn vector(&mut self) -> Op {
        let slot = self.object();
        match self.choices.below(3) {
            0 => Op::WriteVector { slot, value: self.value() },
            1 => Op::ReadVector { slot },
            _ => Op::ReadAt { slot },
        }
    }

    fn pieces(&mut self) -> Op {
        let slot = self.of_kind(&[Slot::Other]);
        let lens = [(); 4].map(|()| self.choices.one_of(&[0, 0, 1, 7, 8, 16, 48]));
        let message = self.choices.once_in(2);
        match self.choices.once_in(2) {
            true => Op::WritePieces { slot, value: self.value(), lens, message },
            false => Op::ReadPieces { slot, lens, message },
        }
    }

    fn write_waiting(&mut self) -> Op {
        let slot = self.of_kind(&[Slot::Other]);
        let (value, len) = (self.choices.below(4) as u8, self.choices.one_of(&[16, 64, 128, 255]));
        Op::WriteWaiting { slot, value, len, late: self.choices.once_in(4) }
    }

    fn splice(&mut self) -> Op {
        let (from, to) = (self.object(), self.of_kind(&[Slot::Other]));
        Op::Splice { from, to }
    }

    fn shutdown(&mut self) -> Op {
        let slot = self.of_kind(&[Slot::Other]);
        let how = self.choices.below(4) as i32;
        Op::Shutdown { slot, how }
    }

    /// A timer that expires soon, some calls before it does, and a wait for it.
    fn near_timer(&mut self, ops: &mut Vec<Op>) {
        let slot = self.of_kind(&[Slot::Timer]);
        ops.push(Op::SetTimer { slot, time: Time::Near, at: At::Good });
        for _ in 0..self.choices.below(4) {
            match self.choices.below(4) {
                0 => ops.push(self.read()),
                1 => self.ctl(ops),
                _ => self.wait(ops),
            }
        }
        ops.push(Op::Expiry { set: self.of_kind(&[Slot::Set]) });
    }

    fn set_timer(&mut self) -> Op {
        let slot = self.of_kind(&[Slot::Timer]);
        let time = match self.choices.below(8) {
            0..4 => Time::Past,
            4 => Time::PastAndAgain,
            5 => Time::Far,
            6 if self.is_odd() && self.everything() => {
                let seconds = self.choices.one_of(&[0, 1, -1]);
                let nanos = self.choices.one_of(&[-1, 1_000_000_000, 0]);
                Time::Nonsense(self.choices.one_of(&[0, 1, 4, -1]), seconds, nanos)
            }
            _ => Time::Never,
        };
        Op::SetTimer { slot, time, at: self.at(32) }
    }
}
