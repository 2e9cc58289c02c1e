//! A thread of a round, and the calls that it makes and logs.

use crate::backend::Errno;
use crate::log::{Progress, Report, What, With, Writer};
use crate::plan::{Data, IN, Kind, MODES, Plan, Tempo};
use crate::random::Random;
use crate::world::World;
use libc::{c_int, epoll_event};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Where second descriptors go: no object of a round has a number from here on.
const DUPLICATES: c_int = 200;

/// What the threads share. Only numbers: what they stand for is the world's.
pub struct Shared {
    pub plan: Plan,
    pub numbers: Vec<Numbers>,
    pub descriptions: AtomicU64,
    pub go: AtomicBool,
}

/// A target's two numbers in one word. While a source is closed and made anew beside a writer, a
/// write by the old number that is logged as one by the new number is a unit in the wrong source.
pub struct Numbers(AtomicU64);

impl Numbers {
    pub fn none() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// What it is watched and read by, and what it is written by.
    pub fn load(&self) -> (c_int, c_int) {
        let both = self.0.load(Ordering::Relaxed);
        ((both >> 32) as c_int, both as c_int)
    }

    pub fn store(&self, number: c_int, write_number: c_int) {
        self.0.store(
            u64::from(number as u32) << 32 | u64::from(write_number as u32),
            Ordering::Relaxed,
        );
    }
}

/// One thread of a round, and the calls that it makes.
pub struct Actor<W> {
    pub shared: Arc<Shared>,
    pub writer: Writer,
    pub thread: u32,
    arms: u32,
    pub random: Random,
    /// It has seen [`STOP`].
    pub stopped: bool,
    world: PhantomData<W>,
}

impl<W: World> Actor<W> {
    pub fn new(shared: &Arc<Shared>, thread: u32, seed: u64, progress: &Arc<Progress>) -> Self {
        Self {
            shared: shared.clone(),
            writer: Writer::new(thread, progress.clone()),
            thread,
            arms: 0,
            random: Random::new(seed, u64::from(thread) + 1),
            stopped: false,
            world: PhantomData,
        }
    }

    pub fn number(&self, target: usize) -> c_int {
        self.shared.numbers[target].load().0
    }

    pub fn kind(&self, target: usize) -> Kind {
        self.shared.plan.targets[target].kind
    }

    pub fn open(&mut self, target: usize) {
        let description =
            self.shared.descriptions.fetch_add(1, Ordering::Relaxed) << 8 | target as u64;
        let kind = self.kind(target);
        let mut write_number = -1;
        let number = self
            .writer
            .call(What::Open, With { value: description, ..With::default() }, |_| {
                let number = match kind {
                    Kind::Set => W::epoll_create1(libc::EPOLL_CLOEXEC)?,
                    Kind::Counter => W::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
                    Kind::Blocking => W::eventfd(0, libc::EFD_CLOEXEC)?,
                    Kind::Semaphore => {
                        W::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE)?
                    }
                    Kind::Pipe => {
                        let (read_end, write_end) = W::pipe()?;
                        write_number = write_end;
                        read_end
                    }
                };
                Ok(number as u64)
            })
            .expect("descriptors") as c_int;
        if kind != Kind::Pipe {
            write_number = number;
        }
        self.shared.numbers[target].store(number, write_number);
    }

    pub fn close(&mut self, target: usize) {
        let fd = self.number(target);
        let result = self.writer.call(
            What::Close,
            With { fd, value: target as u64, ..With::default() },
            |_| W::close(fd).map(|()| 0),
        );
        result.expect("our own descriptor");
    }

    pub fn write(&mut self, target: usize, units: u64) -> Result<u64, Errno> {
        let (number, fd) = self.shared.numbers[target].load();
        let pipe = self.kind(target) == Kind::Pipe;
        // Logged by the number it is watched by, which stands for the same units.
        let with = With { fd: number, target: fd, ..With::default() };
        let result = self.writer.call(What::Write, with, |_| {
            let bytes = units.to_ne_bytes();
            let len = if pipe { units as usize } else { 8 };
            // SAFETY: 8 bytes are there, and a pipe gets no more of them.
            let written = unsafe { W::write(fd, bytes.as_ptr(), len) }?;
            Ok(if pipe { written as u64 } else { units })
        });
        self.writer.balance(target, result.unwrap_or(0));
        result
    }

    pub fn read(&mut self, target: usize) -> Result<u64, Errno> {
        let fd = self.number(target);
        let pipe = self.kind(target) == Kind::Pipe;
        let result = self.writer.call(What::Read, With { fd, ..With::default() }, |_| {
            let mut bytes = [0u8; 8];
            // SAFETY: the memory is there.
            let read = unsafe { W::read(fd, bytes.as_mut_ptr(), 8) }?;
            Ok(if pipe { read as u64 } else { u64::from_ne_bytes(bytes) })
        });
        self.writer.balance(target, result.unwrap_or(0).wrapping_neg());
        result
    }

    /// Reads until nothing is left, as an edge asks for: a reader that stops before that gets no
    /// other report. It comes to an end because the writers do.
    pub fn drain(&mut self, target: usize) {
        while self.read(target).is_ok() {}
    }

    pub fn control(
        &mut self,
        what: What,
        set: usize,
        target: usize,
        mode: usize,
    ) -> Result<(), Errno> {
        self.arms += 1;
        let data = Data { target, set, mode }.pack(self.thread, self.arms);
        self.control_with(what, set, target, MODES[mode], data)
    }

    pub fn control_with(
        &mut self,
        what: What,
        set: usize,
        target: usize,
        flags: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let op = match what {
            What::Add => libc::EPOLL_CTL_ADD,
            What::Modify => libc::EPOLL_CTL_MOD,
            _ => libc::EPOLL_CTL_DEL,
        };
        let (fd, number) = (self.number(set), self.number(target));
        let mut event = epoll_event { events: flags, u64: data };
        let with = With { fd, target: number, flags, value: data, ..With::default() };
        self.writer
            .call(what, with, |_| {
                // SAFETY: a valid event.
                unsafe { W::epoll_ctl(fd, op, number, &raw mut event) }.map(|()| 0)
            })
            .map(drop)
    }

    pub fn wait(
        &mut self,
        set: usize,
        capacity: usize,
        limit: c_int,
    ) -> Result<Vec<Report>, Errno> {
        let fd = self.number(set);
        self.writer.call(
            What::Wait,
            With { fd, limit, value: capacity as u64, ..With::default() },
            |reports| {
                let mut events = [epoll_event { events: 0, u64: 0 }; 64];
                // SAFETY: room for that many.
                let n =
                    unsafe { W::epoll_wait(fd, events.as_mut_ptr(), capacity as c_int, limit) }?;
                reports.extend(events[..n as usize].iter().map(|event| (event.u64, event.events)));
                Ok(n as u64)
            },
        )?;
        let range = self.writer.log.calls.last().expect("just made").reports.clone();
        Ok(self.writer.log.reports[range].to_vec())
    }

    pub fn duplicate(&mut self, target: usize) {
        let fd = self.number(target);
        let second = DUPLICATES + self.thread as c_int;
        let _ = self.writer.call(What::Dup, With { fd, ..With::default() }, |_| {
            W::dup2(fd, second)?;
            W::close(second).map(|()| 0)
        });
    }

    pub fn fork(&mut self) {
        let _ = self.writer.call(What::Dup, With { fd: -1, ..With::default() }, |_| {
            W::fork();
            Ok(0)
        });
    }

    pub fn pause(&mut self) {
        let tempo = self.shared.plan.tempo;
        let choice = match tempo {
            Tempo::Tight => self.random.below(12),
            Tempo::Mixed => self.random.below(60),
            Tempo::Slow => self.random.between(50, 62),
        };
        match choice {
            0..=9 => {}
            10..=50 => (0..self.random.below(30)).for_each(|_| std::hint::spin_loop()),
            51..=57 => (0..self.random.below(400)).for_each(|_| std::hint::spin_loop()),
            58 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(self.random.below(60) as u64)),
        }
    }

    /// A mode for a watch on this target.
    pub fn mode(&mut self, target: usize) -> usize {
        let mode = self.random.below(self.shared.plan.modes);
        match self.kind(target) {
            // Only a counter has both sides on one number; sets are not watched exclusively, and
            // always for input.
            Kind::Pipe if MODES[mode] & IN == 0 => 0,
            Kind::Set if mode >= 4 => 0,
            _ => mode,
        }
    }

    /// Something to write to.
    pub fn source(&mut self) -> usize {
        loop {
            let target =
                self.random.between(self.shared.plan.sets, self.shared.plan.targets.len() - 1);
            if self.kind(target) != Kind::Set {
                return target;
            }
        }
    }

    /// A set to wait in, perhaps one that is closed meanwhile.
    pub fn set(&mut self) -> usize {
        let target = self.random.below(self.shared.plan.targets.len());
        if self.kind(target) == Kind::Set {
            target
        } else {
            self.random.below(self.shared.plan.sets)
        }
    }

    pub fn write_something(&mut self) {
        let target = self.source();
        let units = self.random.between(1, 3) as u64;
        let _ = self.write(target, units);
    }
}
