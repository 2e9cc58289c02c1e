//! Makes the calls of a program on one side, and reports every outcome to a [`Sink`].
//!
//! The model says which calls are not made, because they might sleep for ever, and what else has to
//! be done so that the outcomes can be compared: watches are armed anew after a migration, and
//! buffers have room for everything where the order of events is not defined.

mod children;
mod duplicate;
mod instruction;
mod memory;
mod migrate;
mod near;
mod objects;
mod pieces;
mod reuse;
mod sets;
mod sink;
mod transfer;
mod wait;
mod waiting;

use crate::model::Model;
use crate::program::{BAD_NUMBERS, Calls, Command, Focus, Op, Profile, Program, Road, SLOTS};
use crate::world::{Sysno, World};
use children::Children;
use libc::c_int;
use memory::Memory;
use migrate::may_be_doorbell;
use sink::Outcome;
pub use sink::{Report, Sink};
use wait::Wait;

/// The number of the first slot before anything is made for it: no object gets such a number.
const CLOSED: c_int = 300;

/// The same for an interpreter that runs beside others, and has numbers of its own for what must
/// stay closed: so many for each, of which the first are the slots', the next dup2(2)'s, and the
/// last stands for the bad number that dup2(2) may open.
const CLOSED_BESIDE: c_int = 276;
const NUMBERS_BESIDE: c_int = 25;

/// How many interpreters may run beside each other in one process.
pub const MOST_THREADS: u32 = 4;

/// How often a program that has been too slow is run.
const MOST_RUNS: u32 = 1000;

/// Runs programs on a side.
#[derive(Debug)]
pub struct Interpreter<W> {
    world: W,
    memory: Memory,
    model: Model,
    slots: [c_int; SLOTS as usize],
    /// The events of a wait, with whether each is of the in-process half; see [`Sink::events`].
    reports: Vec<(Report, bool)>,
    /// The sockets for `SCM_RIGHTS`. Every side makes them at the same time, when they are first
    /// used.
    post: Option<[c_int; 2]>,
    /// When the timer expires that is set to a time that comes soon.
    near_at: u64,
    /// Whether every call has been made on the side of that time on which it has to be.
    in_time: bool,
    /// Whether programs take every road.
    has_roads: bool,
    /// By which road calls are made.
    road: Road,
    /// Whether programs make calls by instruction, and Wakeset catches them.
    instructions: bool,
    /// The place among the interpreters that run in other threads of this process, if there are
    /// any: then numbers are no part of an outcome, closed ones are not used, and nothing is done
    /// that makes the others' objects migrate.
    beside: Option<u32>,
    /// The children, if programs have any that live.
    children: Option<Children>,
}

impl<W: World> Interpreter<W> {
    /// An interpreter for programs of this profile on `world`.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(world: W, profile: Profile) -> Self {
        let children = (profile.focus == Focus::Children).then(Children::new);
        let model = Model::new(profile.calls == Calls::Everything);
        Self {
            has_roads: profile.focus.takes_roads(),
            instructions: profile.focus == Focus::Instructions,
            road: Road::Name,
            beside: None,
            world,
            memory: Memory::new(0, children.is_some()),
            model: if children.is_some() { model.with_children() } else { model },
            children,
            slots: [0; SLOTS as usize],
            reports: Vec::with_capacity(64),
            post: None,
            near_at: 0,
            in_time: true,
        }
    }

    /// The same, for one of up to [`MOST_THREADS`] threads that run programs at the same time.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn beside_others(self, place: u32) -> Self {
        Self {
            beside: Some(place),
            memory: Memory::new(1 + place as usize, false),
            model: self.model.beside_others(),
            ..self
        }
    }

    /// Whether nothing else in the process opens and closes descriptors.
    fn is_alone(&self) -> bool {
        self.beside.is_none()
    }

    /// A number as it is compared: not at all, if other threads open and close as well.
    fn shown(&self, number: isize) -> isize {
        if self.is_alone() { number } else { number.min(0) }
    }

    /// Numbers that come beside an outcome, likewise.
    fn shown_beside(&self, numbers: u64) -> u64 {
        if self.is_alone() { numbers } else { 0 }
    }

    /// The number that a slot stands for as long as it stands for nothing.
    fn closed_number(&self, slot: usize) -> c_int {
        let base = match self.beside {
            None => CLOSED,
            Some(place) => CLOSED_BESIDE + NUMBERS_BESIDE * place as c_int,
        };
        base + slot as c_int
    }

    /// A number has been closed. Where another thread may get it, no slot stands for it any more.
    fn closed(&mut self, number: c_int) {
        self.model.closed(number);
        for slot in 0..self.slots.len() {
            if !self.is_alone() && self.slots[slot] == number {
                self.slots[slot] = self.closed_number(slot);
            }
        }
    }

    /// The side.
    pub fn world(&mut self) -> &mut W {
        &mut self.world
    }

    /// Runs a program, and closes everything that it has opened. If the program waits for a timer
    /// and has been too slow, it is run again.
    pub fn run(&mut self, program: &Program, sink: &mut (impl Sink + Clone)) {
        if !program.has_near_timers() {
            return self.run_once(program, sink);
        }
        for _ in 0..MOST_RUNS {
            let mut again = sink.clone();
            self.in_time = true;
            self.run_once(program, &mut again);
            if self.in_time {
                *sink = again;
                return;
            }
        }
    }

    fn run_once(&mut self, program: &Program, sink: &mut impl Sink) {
        self.begin(program.by_number);
        if self.children.is_some() && self.post.is_none() {
            // A child that makes them would have them alone.
            self.make_post();
        }
        self.forget_slots();
        for op in &program.ops {
            sink.about_to(op, &|slot| self.number(slot));
            let before = self.model.has_near_timer();
            if self.step(op, sink).is_none() {
                sink.skipped(op);
            }
            self.rearm(sink);
            if self.model.has_near_timer() || before && !matches!(op, Op::Expiry { .. }) {
                self.in_time &= self.is_in_time();
            }
            if !self.in_time {
                break;
            }
        }
        self.close_all(sink);
    }

    fn begin(&mut self, by_number: bool) {
        self.road = if by_number { Road::Number } else { Road::Name };
        self.world.begin(by_number);
    }

    fn take(&mut self, road: Road) {
        let unseen = road == Road::Instruction && !self.instructions;
        self.road = if unseen { Road::Name } else { road };
        self.world.take(self.road);
    }

    /// Beside other threads it is not done: their objects would migrate.
    fn open_name_space(&mut self) {
        if self.is_alone() {
            self.model.migrate_everything();
            self.world.open_name_space();
        }
    }

    /// Lets every slot stand for a closed number.
    fn forget_slots(&mut self) {
        for slot in 0..self.slots.len() {
            self.slots[slot] = self.closed_number(slot);
        }
    }

    /// The number that a slot stands for.
    fn number(&self, slot: u8) -> c_int {
        let number = match self.slots.get(usize::from(slot)) {
            Some(number) => *number,
            None => BAD_NUMBERS[usize::from(slot) % BAD_NUMBERS.len()],
        };
        // To a call that passes no hook, as in another name space, a doorbell's number is open.
        let number =
            if self.has_roads && may_be_doorbell(number) { BAD_NUMBERS[1] } else { number };
        // What one thread duplicates onto it would be open to all of them.
        if number == BAD_NUMBERS[1] && !self.is_alone() {
            return self.closed_number(NUMBERS_BESIDE as usize - 1);
        }
        number
    }

    fn set_slot(&mut self, slot: u8, number: c_int) {
        if self.by_instruction() {
            self.model.migrate(number);
        }
        self.point_slot(slot, number);
    }

    /// Lets a slot stand for a number.
    fn point_slot(&mut self, slot: u8, number: c_int) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            *slot = number;
        }
    }

    fn call(&mut self, number: Sysno, arguments: &[usize]) -> isize {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        if self.by_instruction() {
            self.before_instruction(number, all);
        }
        if self.model.turn() != 0 {
            return self.call_in_child(number, all);
        }
        // SAFETY: addresses come from `Memory`, with room after them for what the call wants, or
        // cannot be accessed.
        unsafe { self.world.call(number, all) }
    }

    /// One call; `None` if it must not be made.
    fn step(&mut self, op: &Op, sink: &mut impl Sink) -> Option<()> {
        let outcome: Outcome = match *op {
            Op::Counter { slot, initial, flags } => self.make_counter(slot, initial, flags)?.into(),
            Op::Timer { slot, flags } => self.make_timer(slot, flags)?.into(),
            Op::SetTimer { slot, time, at } => self.set_timer(slot, time, at)?,
            Op::TimeLeft { slot } => self.time_left(slot)?,
            Op::Set { slot, flags } => self.make_set(slot, flags)?.into(),
            Op::Directory { slot } => self.open_directory(slot)?.into(),
            Op::File { slot } => self.open_file(slot).map(|fd| self.shown(fd))?.into(),
            Op::Reuse { slot, roads } => self.reuse(op, slot, roads, sink)?,
            Op::Pipe { slot, other } | Op::Sockets { slot, other } => {
                self.make_pair(op, slot, other)?
            }
            Op::Close { slot } => self.close(slot, sink).into(),
            Op::Duplicate { slot, to, how } => self.duplicate(slot, to, how, sink)?.into(),
            Op::Write { slot, value, len, at } => self.write(slot, value, len, at, sink)?.into(),
            Op::Read { slot, len, at } => self.read(slot, len, at, sink)?,
            Op::WriteVector { slot, value } => self.write_vector(slot, value, sink)?.into(),
            Op::ReadVector { slot } => self.read_vector(slot, sink)?,
            Op::WritePieces { .. } | Op::ReadPieces { .. } => self.pieces(op, sink)?,
            Op::WriteWaiting { .. } => self.write_waiting(op, sink)?,
            Op::ReadAt { slot } => self.read_at(slot, sink)?,
            Op::Ctl { set, op, target, events, data, at } => {
                self.ctl(set, Command { op, target, events, data }, at, sink)?
            }
            Op::Batch { set, stop, commands } => self.batch(set, stop, commands, sink)?.into(),
            Op::Ring { set, entries, polls } => self.make_ring(set, entries, polls)?.into(),
            Op::Nonblocking { slot, on, ioctl } => self.set_nonblocking(slot, on, ioctl)?.into(),
            Op::Poll { slots, events } => self.poll(slots, events, sink)?,
            Op::Select { slot } => self.select(slot, sink)?,
            Op::Splice { from, to } => self.splice(from, to)?.into(),
            Op::Shutdown { slot, how } => self.shutdown(slot, how)?.into(),
            Op::Fork => self.fork()?.into(),
            Op::Child { child } => self.fork_child(child)?.into(),
            Op::End { child, how } => self.end_child(child, how)?.into(),
            // These report their outcomes themselves, or have none.
            Op::Expiry { set } => return self.expiry(op, set, sink),
            Op::Wait { set, maxevents, timeout, call, at } => {
                self.rearm_below(self.number(set), sink)?;
                self.wait(op, Wait { set, maxevents, timeout, call, at }, sink);
                return Some(());
            }
            Op::CloseAll => {
                self.close_all(sink);
                self.forget_slots();
                return Some(());
            }
            _ => return self.set_up(op),
        };
        sink.outcome(op, outcome.result, outcome.beside);
        Some(())
    }

    /// What is no call itself, but decides how or by whom calls are made.
    fn set_up(&mut self, op: &Op) -> Option<()> {
        match *op {
            Op::Route { by_number } => self.begin(by_number),
            Op::Take { road } => self.take(road),
            Op::NameSpace => self.open_name_space(),
            _ => return self.change(op),
        }
        Some(())
    }
}
