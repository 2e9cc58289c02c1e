//! Decisions → a program. Each program uses a random part of what there is (some kinds of objects, some flags, some calls), so that
//! what it uses meets often: a program of everything at once finds less.

use crate::choices::Choices;
use crate::program::{At, BATCH, Command, Duplication, Mask, Op, Patience, Program, SLOTS, Time, WaitCall};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const WAKEUP: u32 = libc::EPOLLWAKEUP as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;

/// What a program is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All there is.
    Everything,
    /// Counters and sets, their duplicates and no other errors than the engine itself knows, for the side without descriptors.
    Engine,
}

/// What a slot was last made as; as far as the generator knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Unused,
    Counter,
    Timer,
    Set,
    Other,
    Closed,
}

/// The calls, in the order of [`Style::weights`].
#[derive(Clone, Copy)]
enum Call {
    Write,
    Read,
    Wait,
    Ctl,
    Make,
    Close,
    Duplicate,
    Nonblocking,
    Poll,
    Vector,
    Splice,
    Shutdown,
    Fork,
    SetTimer,
    Ring,
}

const CALLS: [Call; 15] = [
    Call::Write,
    Call::Read,
    Call::Wait,
    Call::Ctl,
    Call::Make,
    Call::Close,
    Call::Duplicate,
    Call::Nonblocking,
    Call::Poll,
    Call::Vector,
    Call::Splice,
    Call::Shutdown,
    Call::Fork,
    Call::SetTimer,
    Call::Ring,
];

/// What this program uses.
struct Style {
    profile: Profile,
    weights: [u32; CALLS.len()],
    total: u32,
    /// Event masks to choose from.
    masks: [u32; 4],
    /// One in so many arguments is odd; 0 for none.
    odd: u32,
    sets: bool,
    timers: bool,
    rings: bool,
    kernel: bool,
    small_rooms: bool,
    sleeps: bool,
}

/// The generator's memory.
struct Generator<'a, C> {
    choices: &'a mut C,
    style: Style,
    slots: [Slot; SLOTS as usize],
    /// By set, the slots it is thought to watch.
    watched: [u16; SLOTS as usize],
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
    for _ in 0..1 + generator.choices.below(3) {
        generator.make_set(ops);
    }
    for _ in 0..1 + generator.choices.below(5) {
        generator.make_source(ops);
    }
    let len = 60 + generator.choices.below(180);
    while ops.len() < len as usize && !generator.choices.is_at_end() {
        generator.next(ops);
    }
}

impl Style {
    fn choose(choices: &mut impl Choices, profile: Profile) -> Self {
        let everything = profile == Profile::Everything;
        let swarm = choices.bits();
        let has = |bit: u32| swarm & 1 << bit != 0;
        let moves = everything && has(0) && has(1);
        let kernel = everything && has(2);
        let mut weights = [24, 14, 30, 30, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let timers = has(13) && has(14);
        if timers {
            weights[Call::SetTimer as usize] = 16;
        }
        let rings = has(15);
        if rings {
            weights[Call::Ring as usize] = 1;
        }
        if has(3) {
            weights[Call::Make as usize] = 5;
            weights[Call::Close as usize] = 5;
        }
        if has(4) {
            weights[Call::Wait as usize] = 12;
        }
        if !everything && has(0) || moves && has(5) {
            weights[Call::Duplicate as usize] = 3;
        }
        if has(6) {
            weights[Call::Nonblocking as usize] = 2;
        }
        if moves && has(7) {
            weights[Call::Poll as usize] = 2;
        }
        if moves && has(8) {
            weights[Call::Vector as usize] = 2;
        }
        if moves && has(9) {
            weights[Call::Splice as usize] = 1;
        }
        if kernel {
            weights[Call::Shutdown as usize] = 1;
        }
        if moves && swarm >> 32 & 0x1f == 0 {
            weights[Call::Fork as usize] = 1;
        }
        let flags = [0, 0, ET, ONESHOT, EXCLUSIVE, WAKEUP, ET | ONESHOT, EXCLUSIVE | ET];
        let basic = [IN, IN, OUT, IN | OUT];
        let masks = std::array::from_fn(|_| choices.one_of(&flags) | choices.one_of(&basic));
        Self {
            profile,
            weights,
            total: weights.iter().sum(),
            masks,
            odd: if has(10) { 12 } else { 0 },
            sets: has(11),
            timers,
            rings,
            kernel,
            small_rooms: has(12),
            sleeps: swarm >> 40 & 0x1ff == 0,
        }
    }
}

impl<C: Choices> Generator<'_, C> {
    fn is_odd(&mut self) -> bool {
        self.style.odd != 0 && self.choices.once_in(self.style.odd)
    }

    fn everything(&self) -> bool {
        self.style.profile == Profile::Everything
    }

    /// A slot for something new: an unused one, else one of what is closed, else any.
    fn fresh(&mut self) -> u8 {
        let unused = (0..SLOTS).find(|slot| self.slots[usize::from(*slot)] == Slot::Unused);
        let start = self.choices.below(u32::from(SLOTS)) as u8;
        let closed =
            || (0..SLOTS).map(|i| (start + i) % SLOTS).find(|slot| self.slots[usize::from(*slot)] == Slot::Closed);
        unused.or_else(closed).unwrap_or(start)
    }

    fn put(&mut self, slot: u8, kind: Slot) {
        self.slots[usize::from(slot)] = kind;
        self.watched[usize::from(slot)] = 0;
        for set in &mut self.watched {
            *set &= !(1 << slot);
        }
        self.used = self.used.max(u32::from(slot) + 1);
    }

    /// A slot of this kind if one is found quickly, else any that was used.
    fn of_kind(&mut self, kinds: &[Slot]) -> u8 {
        if self.is_odd() && self.everything() {
            return self.choices.below(u32::from(SLOTS) + 8) as u8;
        }
        let start = self.choices.below(self.used.max(1));
        let at = |i: u32| ((start + i) % self.used.max(1)) as u8;
        (0..self.used).map(at).find(|slot| kinds.contains(&self.slots[usize::from(*slot)])).unwrap_or(start as u8)
    }

    fn make_set(&mut self, ops: &mut Vec<Op>) {
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

    /// Mostly one that is soon full.
    fn ring(&mut self, set: u8, ops: &mut Vec<Op>) {
        let entries = self.choices.one_of(&[1, 1, 2, 2, 4, 8, 32, 32]);
        let polls = self.style.kernel && self.choices.once_in(3);
        ops.push(Op::Ring { set, entries, polls });
    }

    fn make_source(&mut self, ops: &mut Vec<Op>) {
        let slot = self.fresh();
        if self.style.kernel && self.choices.below(3) == 0 {
            if self.choices.once_in(16) {
                ops.push(Op::Directory { slot });
                return self.put(slot, Slot::Other);
            }
            self.put(slot, Slot::Other);
            let other = self.fresh();
            self.put(other, Slot::Other);
            let op = match self.choices.below(2) {
                0 => Op::Pipe { slot, other },
                _ => Op::Sockets { slot, other },
            };
            return ops.push(op);
        }
        if self.style.timers && self.choices.once_in(3) {
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
            return;
        }
        let blocking = self.choices.once_in(4);
        let mut flags = if blocking { 0 } else { libc::EFD_NONBLOCK };
        flags |= if self.choices.once_in(4) { libc::EFD_SEMAPHORE } else { 0 };
        if self.is_odd() && self.everything() && self.choices.once_in(4) {
            flags = self.choices.bits() as i32;
        }
        let initial = if self.choices.once_in(3) { self.choices.one_of(&[1, 2, 7, u32::MAX]) } else { 0 };
        ops.push(Op::Counter { slot, initial, flags });
        if flags & !(libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) == 0 {
            self.put(slot, Slot::Counter);
        }
    }

    /// An address for a buffer; nearly always a good one.
    fn at(&mut self, most: u8) -> At {
        if !self.everything() || !self.is_odd() {
            return At::Good;
        }
        match self.choices.below(12) {
            0 => At::Null,
            1 => At::Low,
            2 => At::High,
            3 => At::Forbidden,
            4 => At::ReadOnly,
            _ => At::Before(self.choices.below(u32::from(most)) as u8),
        }
    }

    fn len(&mut self) -> u8 {
        if self.everything() && self.is_odd() { self.choices.below(32) as u8 } else { 8 }
    }

    fn value(&mut self) -> u64 {
        match self.choices.below(32) {
            0 => 0,
            1 => u64::MAX,
            2 | 3 => u64::MAX - 1,
            4 => u64::MAX - 2,
            5 => self.choices.bits(),
            n => u64::from(n / 8),
        }
    }

    fn mask(&mut self) -> u32 {
        if self.style.odd != 0 && self.choices.once_in(8) {
            return match self.choices.below(4) {
                0 => self.choices.bits() as u32,
                1 => 0,
                2 => RDHUP | IN,
                _ => 1 << self.choices.below(32),
            };
        }
        self.choices.one_of(&self.style.masks)
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        let mut at = self.choices.below(self.style.total);
        let mut call = Call::Write;
        for (weight, each) in self.style.weights.iter().zip(CALLS) {
            if at < *weight {
                call = each;
                break;
            }
            at -= weight;
        }
        match call {
            Call::Write => {
                let slot = self.source();
                let (value, len) = (self.value(), self.len());
                let at = self.at(40);
                ops.push(Op::Write { slot, value, len, at });
            }
            Call::Read => {
                let slot = self.source();
                let (len, at) = (self.len(), self.at(40));
                ops.push(Op::Read { slot, len, at });
            }
            Call::Wait => self.wait(ops),
            Call::Ctl => self.ctl(ops),
            Call::Make => {
                if self.choices.once_in(3) {
                    self.make_set(ops);
                } else {
                    self.make_source(ops);
                }
            }
            Call::Close => {
                let slot = self.object();
                ops.push(Op::Close { slot });
                if slot < SLOTS {
                    self.put(slot, Slot::Closed);
                }
            }
            Call::Duplicate => self.duplicate(ops),
            Call::Nonblocking => {
                let slot = self.of_kind(&[Slot::Counter, Slot::Timer]);
                let (on, ioctl) = (self.choices.once_in(2), self.choices.once_in(2));
                ops.push(Op::Nonblocking { slot, on, ioctl });
            }
            Call::Poll => {
                let slot = self.object();
                if self.choices.once_in(3) {
                    ops.push(Op::Select { slot });
                } else {
                    let other = self.object();
                    let events = self.choices.one_of(&[1, 4, 5, -1]);
                    ops.push(Op::Poll { slots: [slot, other], events });
                }
            }
            Call::Vector => {
                let slot = self.object();
                let op = match self.choices.below(3) {
                    0 => Op::WriteVector { slot, value: self.value() },
                    1 => Op::ReadVector { slot },
                    _ => Op::ReadAt { slot },
                };
                ops.push(op);
            }
            Call::Splice => {
                let (from, to) = (self.object(), self.of_kind(&[Slot::Other]));
                ops.push(Op::Splice { from, to });
            }
            Call::Shutdown => {
                let slot = self.of_kind(&[Slot::Other]);
                let how = self.choices.below(4) as i32;
                ops.push(Op::Shutdown { slot, how });
            }
            Call::Fork => ops.push(Op::Fork),
            Call::Ring => {
                let set = self.of_kind(&[Slot::Set]);
                self.ring(set, ops);
            }
            Call::SetTimer => {
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
                let at = self.at(32);
                ops.push(Op::SetTimer { slot, time, at });
            }
        }
    }

    fn source(&mut self) -> u8 {
        let kinds: &[Slot] = match self.choices.below(6) {
            0 | 1 => &[Slot::Other, Slot::Counter],
            2 | 3 if self.style.timers => &[Slot::Timer],
            _ => &[Slot::Counter],
        };
        self.of_kind(kinds)
    }

    fn object(&mut self) -> u8 {
        self.of_kind(&[Slot::Counter, Slot::Timer, Slot::Set, Slot::Other])
    }

    fn wait(&mut self, ops: &mut Vec<Op>) {
        let set = self.of_kind(&[Slot::Set]);
        let room = if self.is_odd() {
            self.choices.one_of(&[0, -1, i32::MIN, i32::MAX, i32::MAX / 12, i32::MAX / 12 + 1, 1000])
        } else if self.style.small_rooms {
            1 + self.choices.below(4) as i32
        } else {
            64
        };
        let patience = match self.choices.below(16) {
            0 => Patience::ForEver,
            1 if self.style.sleeps => Patience::Micros(self.choices.one_of(&[1, 50, 200, 1000])),
            _ => Patience::None,
        };
        let mut call = WaitCall::Wait;
        if self.everything() && self.choices.once_in(8) {
            let mask = match self.choices.below(8) {
                0 if self.style.odd != 0 => Mask::Nowhere,
                1..4 => Mask::Empty,
                _ => Mask::Null,
            };
            call = if self.choices.once_in(2) { WaitCall::Pwait(mask) } else { WaitCall::Pwait2(mask) };
        }
        let patience = if self.is_odd() && matches!(call, WaitCall::Pwait2(_)) {
            self.choices.one_of(&[
                Patience::Nonsense(-1, 0),
                Patience::Nonsense(0, -1),
                Patience::Nonsense(0, 1_000_000_000),
                Patience::Nonsense(0, 0),
            ])
        } else {
            patience
        };
        let at = self.at(6);
        ops.push(Op::Wait { set, room, patience, call, at });
    }

    fn ctl(&mut self, ops: &mut Vec<Op>) {
        let set = self.of_kind(&[Slot::Set]);
        let target = match self.choices.below(8) {
            0 if self.style.sets => self.of_kind(&[Slot::Set]),
            1..3 if self.style.kernel => self.of_kind(&[Slot::Other]),
            3..6 if self.style.timers => self.of_kind(&[Slot::Timer]),
            _ => self.of_kind(&[Slot::Counter]),
        };
        let events = self.mask();
        let data = self.choices.bits();
        let at = self.at(16);
        let watched = self.watched.get(usize::from(set)).is_some_and(|slots| slots & (1 << (target % 16)) != 0);
        let mut op = match self.choices.below(8) {
            0 | 1 if watched => EPOLL_CTL_DEL,
            _ if watched => EPOLL_CTL_MOD,
            _ => EPOLL_CTL_ADD,
        };
        if self.is_odd() {
            op = self.choices.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 0, 4, -1]);
        }
        // What is likely to have come of it; a wrong guess makes for EEXIST or ENOENT.
        if let (true, Some(slots)) = (target < SLOTS && at == At::Good, self.watched.get_mut(usize::from(set))) {
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

    /// A batch on a set: of one single command, and others with the same set.
    fn batch(&mut self, set: u8, ops: &mut Vec<Op>) {
        let mut commands = [Command { op: EPOLL_CTL_DEL, target: 0, events: 0, data: 0 }; BATCH];
        for command in &mut commands {
            let target = match self.choices.below(6) {
                0 if self.style.sets => self.of_kind(&[Slot::Set]),
                1..3 if self.style.kernel => self.of_kind(&[Slot::Other]),
                _ => self.of_kind(&[Slot::Counter]),
            };
            let op = self.choices.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL]);
            *command = Command { op, target, events: self.mask(), data: self.choices.bits() };
        }
        let stop = self.choices.once_in(3);
        ops.push(Op::Batch { set, stop, commands });
    }

    fn duplicate(&mut self, ops: &mut Vec<Op>) {
        let slot = self.object();
        let kind = self.slots.get(usize::from(slot)).copied().unwrap_or(Slot::Closed);
        let how = match self.choices.below(if self.everything() { 9 } else { 1 }) {
            0..3 => Duplication::Lowest,
            3 => Duplication::From(self.choices.below(64) as u16),
            4 => Duplication::CloexecFrom(self.choices.below(64) as u16),
            5 => Duplication::Onto(100 + self.choices.below(8) as u16),
            6 => Duplication::OntoSlot(self.object()),
            7 => Duplication::OntoSlotWith(self.object(), self.choices.one_of(&[0, libc::O_CLOEXEC, 1])),
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
