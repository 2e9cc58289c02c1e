//! One round: objects, threads that use them as the plan says, and their history.

use crate::backend::Errno;
use crate::log::{Log, Progress, Report, What, With, Writer};
use crate::plan::{Data, EXCLUSIVE, IN, Key, Kind, MODES, ONESHOT, Plan, Role, STOP, Style, Tempo};
use crate::random::Random;
use crate::world::World;
use libc::{c_int, epoll_event};
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The highest room a wait has.
const MOST_ROOM: usize = 8;
/// What ends a reader of a blocking source: more than all it gets otherwise.
const STOP_UNITS: u64 = 1 << 40;
/// Where second descriptors go: nobody else uses numbers from here on.
const DUPLICATES: c_int = 200;

/// What the threads share. Only numbers: what they stand for is the world's.
struct Shared {
    plan: Plan,
    numbers: Vec<Numbers>,
    descriptions: AtomicU64,
    go: AtomicBool,
}

/// A target's two numbers in one word. Of a source that is closed and made anew beside a writer, the old number and the new
/// are both some number: a write by one of them, logged as one by the other, is a unit in the wrong source.
struct Numbers(AtomicU64);

impl Numbers {
    fn none() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// What it is watched and read by, and what it is written by.
    fn load(&self) -> (c_int, c_int) {
        let both = self.0.load(Ordering::Relaxed);
        ((both >> 32) as c_int, both as c_int)
    }

    fn store(&self, number: c_int, write_number: c_int) {
        self.0.store(u64::from(number as u32) << 32 | u64::from(write_number as u32), Ordering::Relaxed);
    }
}

/// What a round came to.
pub struct Outcome {
    pub plan: Plan,
    pub log: Log,
    /// The last wait in each set, when all was still: an index into the log's calls.
    pub last_waits: Vec<usize>,
    /// What each source held at the end.
    pub left: Vec<u64>,
    /// For each event that is to wake one sleeper, the time it was begun and when all slept again.
    pub events: Vec<(u64, u64)>,
}

/// One thread's hands.
struct Actor<W> {
    shared: Arc<Shared>,
    writer: Writer,
    thread: u32,
    arms: u32,
    random: Random,
    /// It has seen [`STOP`].
    stopped: bool,
    world: PhantomData<W>,
}

impl<W: World> Actor<W> {
    fn new(shared: &Arc<Shared>, thread: u32, seed: u64, progress: &Arc<Progress>) -> Self {
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

    fn number(&self, target: usize) -> c_int {
        self.shared.numbers[target].load().0
    }

    fn kind(&self, target: usize) -> Kind {
        self.shared.plan.targets[target].kind
    }

    fn open(&mut self, target: usize) {
        let description = self.shared.descriptions.fetch_add(1, Ordering::Relaxed) << 8 | target as u64;
        let kind = self.kind(target);
        let mut write_number = -1;
        let number = self
            .writer
            .call(What::Open, With { value: description, ..With::default() }, |_| {
                let number = match kind {
                    Kind::Set => W::epoll_create1(libc::EPOLL_CLOEXEC)?,
                    Kind::Counter => W::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
                    Kind::Blocking => W::eventfd(0, libc::EFD_CLOEXEC)?,
                    Kind::Semaphore => W::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE)?,
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

    fn close(&mut self, target: usize) {
        let fd = self.number(target);
        let result = self
            .writer
            .call(What::Close, With { fd, value: target as u64, ..With::default() }, |_| W::close(fd).map(|()| 0));
        result.expect("our own descriptor");
    }

    fn write(&mut self, target: usize, units: u64) -> Result<u64, Errno> {
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

    fn read(&mut self, target: usize) -> Result<u64, Errno> {
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

    /// Reads until nothing is left, as an edge asks for: who stops before that is not told again. It comes to an end because
    /// the writers do.
    fn drain(&mut self, target: usize) {
        while self.read(target).is_ok() {}
    }

    fn control(&mut self, what: What, set: usize, target: usize, mode: usize) -> Result<(), Errno> {
        self.arms += 1;
        let data = Data { target, set, mode }.pack(self.thread, self.arms);
        self.control_with(what, set, target, MODES[mode], data)
    }

    fn control_with(&mut self, what: What, set: usize, target: usize, flags: u32, data: u64) -> Result<(), Errno> {
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

    fn wait(&mut self, set: usize, room: usize, limit: c_int) -> Result<Vec<Report>, Errno> {
        let fd = self.number(set);
        self.writer.call(What::Wait, With { fd, limit, value: room as u64, ..With::default() }, |reports| {
            let mut events = [epoll_event { events: 0, u64: 0 }; 64];
            // SAFETY: room for that many.
            let n = unsafe { W::epoll_wait(fd, events.as_mut_ptr(), room as c_int, limit) }?;
            reports.extend(events[..n as usize].iter().map(|event| (event.u64, event.events)));
            Ok(n as u64)
        })?;
        let range = self.writer.log.calls.last().expect("just made").reports.clone();
        Ok(self.writer.log.reports[range].to_vec())
    }

    fn duplicate(&mut self, target: usize) {
        let fd = self.number(target);
        let second = DUPLICATES + self.thread as c_int;
        let _ = self.writer.call(What::Dup, With { fd, ..With::default() }, |_| {
            W::dup2(fd, second)?;
            W::close(second).map(|()| 0)
        });
    }

    fn fork(&mut self) {
        let _ = self.writer.call(What::Dup, With { fd: -1, ..With::default() }, |_| {
            W::fork();
            Ok(0)
        });
    }

    fn pause(&mut self) {
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
    fn mode(&mut self, target: usize) -> usize {
        let mode = self.random.below(self.shared.plan.modes);
        match self.kind(target) {
            // Only a counter has both sides on one number; sets are not watched exclusively, and always for input.
            Kind::Pipe if MODES[mode] & IN == 0 => 0,
            Kind::Set if mode >= 4 => 0,
            _ => mode,
        }
    }

    /// Something to write to.
    fn source(&mut self) -> usize {
        loop {
            let target = self.random.between(self.shared.plan.sets, self.shared.plan.targets.len() - 1);
            if self.kind(target) != Kind::Set {
                return target;
            }
        }
    }

    /// A set to look into, perhaps one that is closed meanwhile.
    fn set(&mut self) -> usize {
        let target = self.random.below(self.shared.plan.targets.len());
        if self.kind(target) == Kind::Set { target } else { self.random.below(self.shared.plan.sets) }
    }

    fn write_something(&mut self) {
        let target = self.source();
        let units = self.random.between(1, 3) as u64;
        let _ = self.write(target, units);
    }

    // ---- roles ----

    fn run(&mut self, role: Role) {
        // All begin at once, if there are processors for all.
        for looks in 0.. {
            if self.shared.go.load(Ordering::Acquire) {
                break;
            }
            if looks < 2_000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        match role {
            Role::Server { set } => while self.serve(set, -1) {},
            Role::Reader { target } => while self.read(target).expect("a blocking read") < STOP_UNITS {},
            Role::Writer => self.repeat(Self::write_something),
            Role::Changer => self.change_own(),
            Role::Closer { target } => self.close_and_open(target),
            Role::Escaper => self.repeat_few(|actor| {
                if actor.random.chance(1, 6) {
                    return actor.fork();
                }
                let target = actor.random.below(actor.shared.plan.targets.len());
                actor.duplicate(target);
            }),
            Role::Looker => self.repeat(|actor| {
                let set = actor.set();
                let limit = actor.random.of(&[0, 0, 0, 1]);
                actor.serve(set, limit);
            }),
            Role::Anything => self.do_anything(),
        }
    }

    fn repeat(&mut self, mut act: impl FnMut(&mut Self)) {
        for _ in 0..self.shared.plan.calls {
            act(self);
            self.pause();
        }
    }

    /// As [`repeat`](Self::repeat), but a few times over the same while: what is done cannot be undone.
    fn repeat_few(&mut self, mut act: impl FnMut(&mut Self)) {
        for _ in 0..self.random.between(1, 4) {
            for _ in 0..self.shared.plan.calls / 4 {
                self.pause();
            }
            act(self);
        }
    }

    /// Waits, and takes all that is reported. False: the end.
    fn serve(&mut self, set: usize, limit: c_int) -> bool {
        let room = self.random.between(1, MOST_ROOM);
        let reports = match self.wait(set, room, limit) {
            Err(_) if self.shared.plan.targets[set].mortal => return true,
            reports => reports.expect("a set that stays"),
        };
        if self.shared.plan.style == Style::OneWake {
            // So that others who are woken find it too.
            std::thread::sleep(Duration::from_micros(500));
        }
        for (data, _) in reports {
            self.take(set, data);
        }
        !self.stopped
    }

    fn take(&mut self, set: usize, data: u64) {
        let Data { target, mode, .. } = Data::unpack(data);
        if data == STOP || target >= self.shared.plan.targets.len() {
            // The second is for the checker to tell.
            self.stopped = true;
            return;
        }
        match self.kind(target) {
            Kind::Set => {
                // Where anything goes, something may stay ready for ever.
                let looks = if self.shared.plan.style == Style::Served { usize::MAX } else { 3 };
                for _ in 0..looks {
                    let room = self.random.between(1, MOST_ROOM);
                    match self.wait(target, room, 0) {
                        Ok(reports) if !reports.is_empty() && !self.stopped => {
                            for (data, _) in reports {
                                self.take(target, data);
                            }
                        }
                        _ => break,
                    }
                }
            }
            // The checker will tell.
            Kind::Blocking => {}
            _ if MODES[mode] & libc::EPOLLET as u32 == 0 && self.random.chance(1, 2) => {
                let _ = self.read(target);
            }
            _ => self.drain(target),
        }
        if MODES[mode] & ONESHOT != 0 {
            // It may have been removed, or changed, meanwhile.
            let _ = self.control(What::Modify, set, target, mode);
        }
    }

    fn own_keys(&self) -> Vec<Key> {
        let own = |key: &&Key| key.owner == Some(self.thread as usize - 1);
        self.shared.plan.keys.iter().filter(own).cloned().collect()
    }

    /// Changes, removes and adds its watches. In the end all are there.
    fn change_own(&mut self) {
        let keys = self.own_keys();
        if keys.is_empty() {
            return self.repeat(Self::write_something);
        }
        // The round's own thread adds them; exclusive ones cannot be modified.
        let mut exclusive = vec![true; keys.len()];
        for _ in 0..self.shared.plan.calls {
            let i = self.random.below(keys.len());
            let Key { set, target, .. } = keys[i];
            let mode = self.mode(target);
            if !exclusive[i] && MODES[mode] & EXCLUSIVE == 0 && self.random.chance(1, 2) {
                self.control(What::Modify, set, target, mode).expect("it is there");
            } else {
                self.control(What::Remove, set, target, 0).expect("it is there");
                self.pause();
                if self.random.chance(1, 3) && self.kind(target) != Kind::Set {
                    let _ = self.write(target, 1);
                }
                self.control(What::Add, set, target, mode).expect("it is not there");
                exclusive[i] = MODES[mode] & EXCLUSIVE != 0;
            }
            self.pause();
        }
    }

    /// Fills, closes and makes anew its own source.
    fn close_and_open(&mut self, target: usize) {
        let keys = self.own_keys();
        for _ in 0..self.shared.plan.calls / 4 {
            match self.kind(target) {
                Kind::Set => {
                    self.serve(target, 0);
                }
                _ if self.random.chance(2, 3) => {
                    let _ = self.write(target, 1);
                }
                _ => {}
            }
            self.pause();
            self.close(target);
            self.pause();
            self.open(target);
            for key in &keys {
                let mode = self.mode(key.target);
                let added = self.control(What::Add, key.set, key.target, mode);
                assert!(added.is_ok() || self.shared.plan.free, "a new description: {added:?}");
            }
            self.pause();
        }
    }

    fn do_anything(&mut self) {
        let keys = self.shared.plan.keys.clone();
        let own = self.own_keys();
        self.repeat(|actor| match actor.random.below(10) {
            0..=2 => actor.write_something(),
            3 | 4 => {
                let target = actor.source();
                if actor.kind(target) != Kind::Blocking {
                    let _ = actor.read(target);
                }
            }
            5..=7 => {
                let set = actor.set();
                let room = actor.random.between(1, MOST_ROOM);
                let limit = actor.random.of(&[0, 0, 0, 0, 0, 1, 2]);
                let reports = actor.wait(set, room, limit).unwrap_or_default();
                for (data, _) in reports {
                    if actor.random.chance(1, 3) {
                        actor.take(set, data);
                    }
                }
            }
            _ => {
                let keys = if actor.shared.plan.free { &keys } else { &own };
                if keys.is_empty() {
                    return actor.write_something();
                }
                let Key { set, target, .. } = keys[actor.random.below(keys.len())];
                let mode = actor.mode(target);
                let what = actor.random.of(&[What::Add, What::Add, What::Modify, What::Modify, What::Remove]);
                let _ = actor.control(what, set, target, mode);
            }
        });
    }
}

/// Writes what is known about a round that hangs, and looks into the sets.
fn describe<W: World>(shared: &Shared, threads: &[Arc<Progress>], main: &mut Actor<W>) -> String {
    let mut text = String::new();
    for thread in threads {
        let at = thread.at().map_or("between two calls".to_string(), |(what, fd)| format!("in {what:?} of {fd}"));
        let (calls, state) = (thread.calls.load(Ordering::Relaxed), thread.state().unwrap_or('-'));
        let done = if thread.done.load(Ordering::Acquire) { "done" } else { &at };
        let _ = writeln!(text, "  {}: {done}, scheduler's state {state}, {calls} calls", thread.name);
    }
    for (target, kind) in shared.plan.targets.iter().enumerate() {
        let left = balance(threads, target);
        let (number, _) = shared.numbers[target].load();
        let mortal = if kind.mortal { ", mortal" } else { "" };
        let _ = writeln!(text, "  target {target}: {:?} under number {number}{mortal}, {left} units left", kind.kind);
    }
    for set in 0..shared.plan.sets {
        // After all else, because it takes what is there and wakes others.
        let reports: Vec<_> = main.wait(set, MOST_ROOM, 0).unwrap_or_default();
        let reports: Vec<_> = reports.iter().map(|&(data, bits)| (Data::unpack(data), bits)).collect();
        let _ = writeln!(text, "  a look into set {set}: {reports:?}");
    }
    text
}

/// The units a target should hold, as far as its writers and readers have come.
fn balance(threads: &[Arc<Progress>], target: usize) -> i64 {
    threads.iter().fold(0u64, |sum, thread| sum.wrapping_add(thread.balance[target].load(Ordering::Relaxed))) as i64
}

/// Waits for something that has to happen.
fn until<W: World>(mut done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + W::patience();
    let mut looks = 0;
    while !done() {
        if Instant::now() > give_up {
            return false;
        }
        looks += 1;
        if looks < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    true
}

/// Waits until a thread sleeps in a wait. Only a means to make the interesting case certain enough.
fn until_asleep<W: World>(thread: &Progress) -> bool {
    let mut seen = 0;
    until::<W>(|| {
        let asleep = matches!(thread.at(), Some((What::Wait, _))) && thread.state() == Some('S');
        seen = if asleep { seen + 1 } else { 0 };
        seen == 3
    })
}

/// Says at a thread's end, also by a panic, that it has come.
struct Done(Arc<Progress>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
    }
}

/// Runs a round. An error describes one that hangs, and leaves its threads behind.
pub fn run<W: World>(plan: Plan, seed: u64) -> Result<Outcome, String> {
    let targets = plan.targets.len();
    let shared = Arc::new(Shared {
        numbers: (0..targets).map(|_| Numbers::none()).collect(),
        descriptions: AtomicU64::new(0),
        go: AtomicBool::new(false),
        plan,
    });
    let plan = &shared.plan;
    let own = Progress::new("the round".to_string(), targets);
    let mut main = Actor::<W>::new(&shared, 0, seed, &own);
    (0..targets).for_each(|target| main.open(target));
    for Key { set, target, .. } in plan.keys.clone() {
        let mode = match plan.style {
            // Exclusive, or no longer ready once reported.
            Style::OneWake if plan.sets > 1 => main.random.between(4, 5),
            Style::OneWake => main.random.of(&[1, 2, 3]),
            _ => main.mode(target),
        };
        main.control(What::Add, set, target, mode).expect("a new watch");
    }

    let mut threads = vec![own];
    let mut handles: Vec<JoinHandle<Log>> = Vec::new();
    for (i, &role) in plan.roles.iter().enumerate() {
        let progress = Progress::new(format!("{role:?}"), targets);
        threads.push(progress.clone());
        let shared = shared.clone();
        let body = move || {
            let mut actor = Actor::<W>::new(&shared, i as u32 + 1, seed, &progress);
            let _done = Done(progress);
            actor.run(role);
            std::mem::take(&mut actor.writer.log)
        };
        handles.push(std::thread::Builder::new().stack_size(256 << 10).spawn(body).expect("a thread"));
    }
    shared.go.store(true, Ordering::Release);

    let is_server = |role: &Role| matches!(role, Role::Server { .. });
    let servers: Vec<_> = plan.roles.iter().zip(&threads[1..]).filter(|(role, _)| is_server(role)).collect();
    let done = |thread: &Arc<Progress>| thread.done.load(Ordering::Acquire);
    macro_rules! demand {
        ($what:expr, $condition:expr) => {
            if !until::<W>(|| $condition) {
                return Err(format!("{}\n{}", $what, describe(&shared, &threads, &mut main)));
            }
        };
    }

    let mut events = Vec::new();
    let immortal = |target: &usize| plan.targets[*target].kind != Kind::Set && !plan.targets[*target].mortal;
    if plan.style == Style::OneWake {
        for _ in 0..plan.calls {
            demand!("a server does not go to sleep", servers.iter().all(|(_, thread)| until_asleep::<W>(thread)));
            let start = crate::clock::before();
            let _ = main.write(plan.sets, 1);
            demand!("all sleep and the source is ready", balance(&threads, plan.sets) == 0);
            demand!("a server does not go to sleep", servers.iter().all(|(_, thread)| until_asleep::<W>(thread)));
            events.push((start, crate::clock::after()));
        }
    }
    let waits = |role: &Role| is_server(role) || matches!(role, Role::Reader { .. });
    let actors = || plan.roles.iter().zip(&threads[1..]).filter(|(role, _)| !waits(role));
    demand!("a thread does not come to its end", actors().all(|(_, thread)| done(thread)));
    if plan.style == Style::Served {
        // The servers have to get everything without further help.
        let left = |target: usize| balance(&threads, target) != 0;
        demand!("waiters sleep while something is ready", !(0..targets).filter(immortal).any(left));
    }
    for (role, _) in plan.roles.iter().zip(&threads[1..]) {
        // One after the other, because one of them takes all that is there.
        if let &Role::Reader { target } = role {
            let left = || {
                plan.roles
                    .iter()
                    .zip(&threads[1..])
                    .filter(|(role, thread)| matches!(role, Role::Reader { .. }) && !done(thread))
                    .count()
            };
            let before = left();
            main.write(target, STOP_UNITS).expect("room");
            demand!("a blocked reader does not see what is written", left() < before);
        }
    }
    if !servers.is_empty() {
        let bell = W::eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).expect("a descriptor");
        for set in 0..plan.sets {
            let mut event = epoll_event { events: IN, u64: STOP };
            // SAFETY: a valid event.
            unsafe { W::epoll_ctl(main.number(set), libc::EPOLL_CTL_ADD, bell, &raw mut event) }.expect("a new watch");
        }
        demand!("a server does not see what stays ready", servers.iter().all(|(_, thread)| done(thread)));
        for set in 0..plan.sets {
            // SAFETY: a removal needs no event.
            unsafe { W::epoll_ctl(main.number(set), libc::EPOLL_CTL_DEL, bell, std::ptr::null_mut()) }
                .expect("its watch");
        }
        W::close(bell).expect("our own descriptor");
    }
    let mut log = Log::default();
    for handle in handles {
        match handle.join() {
            Ok(other) => log.append(other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    // All is still. What is ready now must be reported now; outer sets first, whose look takes nothing from inner ones.
    let mut last_waits = Vec::new();
    for set in 0..plan.sets {
        main.wait(set, 64, 0).expect("a set");
        last_waits.push(main.writer.log.calls.len() - 1);
    }
    let mut left = vec![0; targets];
    for (target, left) in left.iter_mut().enumerate().filter(|(target, _)| plan.targets[*target].kind != Kind::Set) {
        if plan.targets[target].kind == Kind::Blocking {
            W::set_nonblocking(main.number(target), true).expect("our own descriptor");
        }
        while let Ok(units) = main.read(target) {
            *left += units;
        }
    }
    for target in 0..targets {
        let (number, write_number) = shared.numbers[target].load();
        W::close(number).expect("our own descriptor");
        if write_number != number {
            W::close(write_number).expect("our own descriptor");
        }
    }
    W::end_round();
    let offset = log.calls.len();
    log.append(std::mem::take(&mut main.writer.log));
    last_waits.iter_mut().for_each(|call| *call += offset);
    Ok(Outcome { plan: plan.clone(), log, last_waits, left, events })
}
