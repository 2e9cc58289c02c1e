//! Makes the calls of a program on one side, and reports every outcome to a [`Sink`].
//!
//! The model says which calls are not made, because they might sleep for ever, and what else has to
//! be done so that the outcomes can be compared: watches are armed anew after a migration, and
//! buffers have room for everything where the order of events is not defined.

mod duplicate;
mod memory;
mod migrate;
mod near;
mod objects;
mod sets;
mod sink;
mod transfer;
mod wait;

use crate::model::Model;
use crate::program::{BAD_NUMBERS, Calls, Command, Op, Profile, Program, SLOTS};
use crate::world::{Sysno, World};
use libc::c_int;
use memory::Memory;
use sink::Outcome;
pub use sink::{Report, Sink};
use wait::Wait;

/// The number of the first slot before anything is made for it: no object gets such a number.
const CLOSED: c_int = 300;

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
}

impl<W: World> Interpreter<W> {
    /// An interpreter for programs of this profile on `world`.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(world: W, profile: Profile) -> Self {
        Self {
            world,
            memory: Memory::new(),
            model: Model::new(profile.calls == Calls::Everything),
            slots: [0; SLOTS as usize],
            reports: Vec::with_capacity(64),
            post: None,
            near_at: 0,
            in_time: true,
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
        self.world.begin(program.by_number);
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

    /// Lets every slot stand for a closed number.
    fn forget_slots(&mut self) {
        for (slot, number) in self.slots.iter_mut().enumerate() {
            *number = CLOSED + slot as c_int;
        }
    }

    /// The number that a slot stands for.
    fn number(&self, slot: u8) -> c_int {
        match self.slots.get(usize::from(slot)) {
            Some(number) => *number,
            None => BAD_NUMBERS[usize::from(slot) % BAD_NUMBERS.len()],
        }
    }

    fn set_slot(&mut self, slot: u8, number: c_int) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            *slot = number;
        }
    }

    fn call(&mut self, number: Sysno, arguments: &[usize]) -> isize {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
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
            Op::Set { slot, flags } => self.make_set(slot, flags)?.into(),
            Op::Directory { slot } => self.open_directory(slot)?.into(),
            Op::Pipe { slot, other } | Op::Sockets { slot, other } => {
                self.make_pair(op, slot, other)?
            }
            Op::Close { slot } => self.close(slot, sink).into(),
            Op::Duplicate { slot, to, how } => self.duplicate(slot, to, how, sink)?.into(),
            Op::Write { slot, value, len, at } => self.write(slot, value, len, at, sink)?.into(),
            Op::Read { slot, len, at } => self.read(slot, len, at, sink)?,
            Op::WriteVector { slot, value } => self.write_vector(slot, value, sink)?.into(),
            Op::ReadVector { slot } => self.read_vector(slot, sink)?,
            Op::ReadAt { slot } => self.read_at(slot, sink)?.into(),
            Op::Ctl { set, op, target, events, data, at } => {
                self.ctl(set, Command { op, target, events, data }, at)?
            }
            Op::Batch { set, stop, commands } => self.batch(set, stop, commands, sink)?.into(),
            Op::Ring { set, entries, polls } => self.make_ring(set, entries, polls)?.into(),
            Op::Nonblocking { slot, on, ioctl } => self.set_nonblocking(slot, on, ioctl)?.into(),
            Op::Poll { slots, events } => self.poll(slots, events, sink)?,
            Op::Select { slot } => self.select(slot, sink)?,
            Op::Splice { from, to } => self.splice(from, to)?.into(),
            Op::Shutdown { slot, how } => self.shutdown(slot, how)?.into(),
            Op::Fork => self.fork().into(),
            // These report their outcomes themselves, or have none.
            Op::Expiry { set } => return self.expiry(op, set, sink),
            Op::Wait { set, maxevents, timeout, call, at } => {
                self.wait(op, Wait { set, maxevents, timeout, call, at }, sink);
                return Some(());
            }
            Op::CloseAll => {
                self.close_all(sink);
                self.forget_slots();
                return Some(());
            }
            Op::Route { by_number } => {
                self.world.begin(by_number);
                return Some(());
            }
        };
        sink.outcome(op, outcome.result, outcome.beside);
        Some(())
    }
}
