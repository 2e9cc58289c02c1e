//! The load: what its threads do, and what each of them demands of every call.
//!
//! *Shared*: all write to the same channels (eventfds, semaphores, pipes), which three sets watch: one with eventfds only, one
//! that mixes them with pipes, and one with another set in it. Servers sleep in each; who has nothing better to do helps them.
//! What goes in has to come out. *Private*: each thread makes sets and sources, uses and closes them, alone, so that every report
//! can be foretold. And each has a *partner*, which blocks in a read, or in a descriptor that is closed under it.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libc::{EFD_NONBLOCK, EFD_SEMAPHORE, EPOLLET, EPOLLIN, EPOLLONESHOT, c_int};

use super::calls::Calls;

/// How a channel may be watched.
const MODES: [c_int; 4] = [EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLET | EPOLLONESHOT];
const CHANNELS: usize = 12;
/// Units in a channel above which its writers leave it alone; a pipe has room for more.
const FULL: u64 = 10_000;
/// The shared sets: eventfds, eventfds and pipes, and the set in the last one.
const SETS: usize = 3;
/// In data: the set inside the last one, and the end of the servers.
const INNER: u64 = 1 << 16;
const STOP: u64 = 1 << 17;
/// What tells a blocked reader to end: more than all it ever gets otherwise.
const LAST: u64 = 1 << 48;

/// Where units go in and come out.
struct Channel {
    read_end: c_int,
    write_end: c_int,
    pipe: bool,
    /// The set that watches it.
    set: c_int,
    written: AtomicU64,
    read: AtomicU64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What has been done so far.
        #[derive(Debug, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: AtomicU64,)+ }

        impl Counts {
            /// Each with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+].into_iter()
            }
        }
    };
}

counts! {
    /// Units written to what is shared or blocked on.
    written,
    /// Units read from there.
    read,
    waits,
    events,
    /// Changes of a watch.
    controls,
    objects_made,
    escapes,
    blocked_reads,
    closed_under_a_sleeper,
}

/// What all threads share.
pub struct Load {
    pub calls: Calls,
    pub counts: Counts,
    channels: Vec<Channel>,
    sets: [c_int; SETS],
    inner: c_int,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

fn bump(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}

impl Load {
    /// The shared objects.
    pub fn new(calls: Calls) -> io::Result<Self> {
        let sets = [calls.set()?, calls.set()?, calls.set()?];
        let inner = calls.set()?;
        calls.add(sets[2], inner, EPOLLIN, INNER)?;
        let mut channels = Vec::new();
        for i in 0..CHANNELS {
            // In turn: eventfds, eventfds and pipes, eventfds in the inner set.
            let (set, pipe) = match i % 3 {
                0 => (sets[0], false),
                1 => (sets[1], i % 2 == 0),
                _ => (inner, false),
            };
            let [read_end, write_end] = match pipe {
                true => calls.pipe()?,
                false => [calls.counter(EFD_NONBLOCK | if i % 4 == 3 { EFD_SEMAPHORE } else { 0 })?; 2],
            };
            calls.add(set, read_end, MODES[i % MODES.len()], Self::data(i, i % MODES.len()))?;
            let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
            channels.push(Channel { read_end, write_end, pipe, set, written, read });
        }
        let (stop, failure) = (AtomicBool::new(false), Mutex::new(None));
        Ok(Self { calls, counts: Counts::default(), channels, sets, inner, stop, failure })
    }

    fn data(channel: usize, mode: usize) -> u64 {
        channel as u64 | (mode as u64) << 8
    }

    /// Says that something is wrong, and ends the load.
    pub fn fail(&self, what: impl Into<String>) {
        let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(what.into());
        self.stop.store(true, Ordering::SeqCst);
    }

    /// The first thing that went wrong.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// What the channels hold, which is no less than nothing.
    pub fn check_channels(&self) {
        for (i, channel) in self.channels.iter().enumerate() {
            // In this order: a unit is counted as written before it can be read.
            let read = channel.read.load(Ordering::SeqCst);
            let written = channel.written.load(Ordering::SeqCst);
            if read > written {
                self.fail(format!("channel {i}: {read} units read of {written} written"));
            }
        }
    }

    /// Channels that have not been emptied.
    fn left(&self) -> Vec<String> {
        let left = |(i, channel): (usize, &Channel)| {
            let (written, read) = (channel.written.load(Ordering::SeqCst), channel.read.load(Ordering::SeqCst));
            (written != read).then(|| format!("channel {i}: {written} units written, {read} read"))
        };
        self.channels.iter().enumerate().filter_map(left).collect()
    }

    fn wait(&self, set: c_int, limit: c_int) -> io::Result<Vec<u64>> {
        let events: Vec<_> = self.calls.wait(set, limit)?.collect();
        bump(&self.counts.waits, 1);
        bump(&self.counts.events, events.len() as u64);
        Ok(events)
    }

    /// Waits in a shared set and empties what is ready; whether to go on.
    fn serve(&self, set: c_int, limit: c_int) -> io::Result<bool> {
        let mut goes_on = true;
        for data in self.wait(set, limit)? {
            match data {
                STOP => goes_on = false,
                INNER => while self.serve(self.inner, 0)? && self.ready(self.inner)? {},
                _ => self.empty(data)?,
            }
        }
        Ok(goes_on)
    }

    /// Whether a set has more to say; what it says is taken care of.
    fn ready(&self, set: c_int) -> io::Result<bool> {
        let events = self.wait(set, 0)?;
        for &data in &events {
            self.empty(data)?;
        }
        Ok(!events.is_empty())
    }

    fn empty(&self, data: u64) -> io::Result<()> {
        let (index, mode) = ((data & 0xff) as usize, (data >> 8) as usize);
        let Some(channel) = self.channels.get(index) else {
            self.fail(format!("a report of data {data:#x}, which nobody asked for"));
            return Ok(());
        };
        let mut bytes = [0; 64];
        while let Some(units) = match channel.pipe {
            false => self.calls.take_units(channel.read_end)?,
            true => match self.calls.read(channel.read_end, &mut bytes) {
                Ok(n) => Some(n as u64),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => return Err(error),
            },
        } {
            channel.read.fetch_add(units, Ordering::SeqCst);
            bump(&self.counts.read, units);
        }
        if MODES[mode] & EPOLLONESHOT != 0 {
            // Its owner may have removed it.
            match self.calls.modify(channel.set, channel.read_end, MODES[mode], data) {
                Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
                _ => bump(&self.counts.controls, 1),
            }
        }
        Ok(())
    }

    fn produce(&self, random: &mut Random) -> io::Result<()> {
        for _ in 0..random.below(32) {
            let channel = &self.channels[random.below(CHANNELS)];
            let (written, read) = (&channel.written, &channel.read);
            let units = 1 + random.below(3) as u64;
            if written.load(Ordering::Relaxed).wrapping_sub(read.load(Ordering::Relaxed)) as i64 > FULL as i64 {
                continue;
            }
            written.fetch_add(units, Ordering::SeqCst);
            match channel.pipe {
                false => self.calls.add_units(channel.write_end, units)?,
                true => {
                    let n = self.calls.write(channel.write_end, &[0; 4][..units as usize])?;
                    if n as u64 != units {
                        self.fail(format!("a pipe took {n} of {units} bytes"));
                    }
                }
            }
            bump(&self.counts.written, units);
        }
        Ok(())
    }

    /// Changes the watch on one of a thread's own channels.
    fn rewatch(&self, thread: usize, threads: usize, random: &mut Random) -> io::Result<()> {
        let index = thread + threads * random.below(CHANNELS.div_ceil(threads));
        let Some(channel) = self.channels.get(index) else { return Ok(()) };
        let mode = random.below(MODES.len());
        let (set, fd, data) = (channel.set, channel.read_end, Self::data(index, mode));
        if random.below(2) == 0 {
            self.calls.modify(set, fd, MODES[mode], data)?;
        } else {
            self.calls.remove(set, fd)?;
            self.calls.add(set, fd, MODES[mode], data)?;
        }
        bump(&self.counts.controls, 1);
        Ok(())
    }

    /// Demands that a private set reports this, in whatever order.
    fn demand(&self, what: &str, set: c_int, expected: &mut Vec<u64>) -> io::Result<()> {
        let mut reported = self.wait(set, 0)?;
        reported.sort_unstable();
        expected.sort_unstable();
        if reported != *expected {
            self.fail(format!("{what}: set {set} reports {reported:?} and not {expected:?}"));
        }
        Ok(())
    }

    fn demand_units(&self, what: &str, fd: c_int, expected: u64) -> io::Result<()> {
        let units = self.calls.take_units(fd)?;
        if units != Some(expected).filter(|n| *n > 0) {
            self.fail(format!("{what}: {units:?} units in {fd} and not {expected}"));
        }
        Ok(())
    }

    /// Makes a set with some eventfds, perhaps in another set, perhaps with a pipe; uses all of it, and closes it.
    fn use_privately(&self, random: &mut Random) -> io::Result<()> {
        let calls = self.calls;
        let (set, outer) = (calls.set()?, calls.set()?);
        let nested = random.below(2) == 0;
        if nested {
            calls.add(outer, set, EPOLLIN, 1)?;
        }
        let pipe = if random.below(4) == 0 { Some(calls.pipe()?) } else { None };
        if let Some([read_end, write_end]) = pipe {
            calls.add(set, read_end, EPOLLIN, 100)?;
            calls.write(write_end, b"x")?;
            self.demand("a pipe", set, &mut vec![100])?;
            calls.read(read_end, &mut [0; 8])?;
        }
        let mut counters = Vec::new();
        for i in 0..1 + random.below(6) {
            let (fd, mode) = (calls.counter(EFD_NONBLOCK)?, random.below(MODES.len()));
            calls.add(set, fd, MODES[mode], i as u64)?;
            counters.push((fd, mode, 0u64));
        }
        bump(&self.counts.objects_made, 2 + counters.len() as u64);
        for _ in 0..2 {
            let mut expected = Vec::new();
            for (i, (fd, _, units)) in counters.iter_mut().enumerate() {
                if random.below(2) == 0 {
                    *units = 1 + random.below(9) as u64;
                    calls.add_units(*fd, *units)?;
                    expected.push(i as u64);
                }
            }
            if nested {
                self.demand("the outer set", outer, &mut if expected.is_empty() { vec![] } else { vec![1] })?;
            }
            self.demand("what was written", set, &mut expected)?;
            for (i, (fd, mode, units)) in counters.iter_mut().enumerate() {
                self.demand_units("what was written", *fd, std::mem::take(units))?;
                if MODES[*mode] & EPOLLONESHOT != 0 || random.below(4) == 0 {
                    calls.modify(set, *fd, MODES[*mode], i as u64)?;
                    bump(&self.counts.controls, 1);
                }
            }
            self.demand("when all is read", set, &mut vec![])?;
        }
        // Some are removed, some closed as they are; neither may be heard of.
        while let Some((fd, _, _)) = counters.pop() {
            calls.add_units(fd, 1)?;
            match random.below(3) {
                0 => {
                    calls.remove(set, fd)?;
                    self.demand("after a removal", set, &mut vec![])?;
                    calls.close(fd)?;
                }
                1 => {
                    calls.close(fd)?;
                    self.demand("after a close", set, &mut vec![])?;
                }
                _ => {
                    // The set goes with a report in it.
                    counters.iter().try_for_each(|counter| calls.close(counter.0))?;
                    counters.clear();
                    calls.close(set)?;
                    self.demand("with the inner set closed", outer, &mut vec![])?;
                    calls.close(outer)?;
                    calls.close(fd)?;
                    return pipe.map_or(Ok(()), |ends| ends.into_iter().try_for_each(|end| calls.close(end)));
                }
            }
        }
        calls.close(outer)?;
        calls.close(set)?;
        pipe.map_or(Ok(()), |ends| ends.into_iter().try_for_each(|end| calls.close(end)))
    }

    /// An eventfd, or a set, gets a second descriptor, with something in it, and loses the first.
    fn escape(&self, random: &mut Random) -> io::Result<()> {
        let calls = self.calls;
        let (set, counter) = (calls.set()?, calls.counter(EFD_NONBLOCK)?);
        calls.add(set, counter, EPOLLIN, 7)?;
        calls.add_units(counter, 3)?;
        let (of_set, set, counter) = match random.below(2) {
            0 => (false, set, (calls.dup(counter)?, counter)),
            _ => {
                let second = calls.dup(set)?;
                calls.close(set)?;
                (true, second, (counter, -1))
            }
        };
        if !of_set {
            calls.close(counter.1)?;
        }
        let counter = counter.0;
        self.demand("after a move", set, &mut vec![7])?;
        calls.add_units(counter, 4)?;
        self.demand("after a move", set, &mut vec![7])?;
        self.demand_units("after a move", counter, 7)?;
        self.demand("after a move and a read", set, &mut vec![])?;
        calls.close(counter)?;
        calls.close(set)?;
        bump(&self.counts.escapes, 1);
        bump(&self.counts.objects_made, 2);
        Ok(())
    }
}

/// A thread that sleeps in what it is told to.
struct Partner {
    jobs: Sender<Job>,
    done: Receiver<()>,
    /// Its thread id, and whether it is in the call.
    state: Arc<(AtomicI32, AtomicBool)>,
    thread: JoinHandle<()>,
}

enum Job {
    /// Read until [`LAST`] units come; a blocking eventfd.
    Read(c_int),
    /// One wait of some milliseconds, the set being closed meanwhile.
    Wait(c_int),
    /// One read of an eventfd that is closed meanwhile, until a signal ends it.
    ReadClosed(c_int),
}

impl Partner {
    fn start(load: &Arc<Load>) -> Self {
        let (jobs, orders) = mpsc::channel();
        let (report, done) = mpsc::channel();
        let state = Arc::new((AtomicI32::new(0), AtomicBool::new(false)));
        let (load, own) = (load.clone(), state.clone());
        let body = move || {
            // SAFETY: takes nothing, cannot fail.
            own.0.store(unsafe { libc::gettid() }, Ordering::SeqCst);
            for job in orders {
                own.1.store(true, Ordering::SeqCst);
                if let Err(error) = Self::work(&load, job) {
                    load.fail(format!("a blocked call: {error}"));
                }
                own.1.store(false, Ordering::SeqCst);
                if report.send(()).is_err() {
                    return;
                }
            }
        };
        Self { jobs, done, state, thread: std::thread::spawn(body) }
    }

    fn work(load: &Load, job: Job) -> io::Result<()> {
        match job {
            Job::Read(fd) => loop {
                let units = load.calls.take_units(fd)?.unwrap_or(0);
                bump(&load.counts.read, units % LAST);
                bump(&load.counts.blocked_reads, 1);
                if units >= LAST {
                    return Ok(());
                }
            },
            // What they return is Linux's business and not the same everywhere (a signal, a timeout).
            Job::Wait(set) => drop(load.calls.wait(set, 3).map(drop)),
            Job::ReadClosed(fd) => drop(load.calls.take_units(fd)),
        }
        Ok(())
    }

    /// Whether it sleeps in its call, for certain: a number may be closed under who sleeps, but must not be under
    /// who has yet to use it, and may then find another object under it.
    fn is_asleep(&self) -> bool {
        let (tid, inside) = &*self.state;
        for _ in 0..50 {
            if !inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
                continue;
            }
            let path = format!("/proc/self/task/{}/stat", tid.load(Ordering::SeqCst));
            let stat = std::fs::read_to_string(path).unwrap_or_default();
            if stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S')) {
                return inside.load(Ordering::SeqCst);
            }
            std::thread::yield_now();
        }
        false
    }

    /// Has it read what we write.
    fn block_in_reads(&self, load: &Load, random: &mut Random) -> io::Result<()> {
        let fd = load.calls.counter(0)?;
        let _ = self.jobs.send(Job::Read(fd));
        for _ in 0..random.below(200) {
            let units = 1 + random.below(3) as u64;
            load.calls.add_units(fd, units)?;
            bump(&load.counts.written, units);
        }
        load.calls.add_units(fd, LAST)?;
        let _ = self.done.recv();
        load.calls.close(fd)
    }

    /// Closes a set that it waits in; others use the number again while it does.
    fn close_under_a_wait(&self, load: &Load) -> io::Result<()> {
        let (set, counter) = (load.calls.set()?, load.calls.counter(EFD_NONBLOCK)?);
        load.calls.add(set, counter, EPOLLIN, 0)?;
        let _ = self.jobs.send(Job::Wait(set));
        let asleep = self.is_asleep();
        if asleep {
            load.calls.close(set)?;
            // Most likely the same number.
            let again = load.calls.set()?;
            load.calls.close(again)?;
            bump(&load.counts.closed_under_a_sleeper, 1);
        }
        load.calls.close(counter)?;
        let _ = self.done.recv();
        if asleep { Ok(()) } else { load.calls.close(set) }
    }

    /// Closes an eventfd that it reads.
    fn close_under_a_read(&self, load: &Load) -> io::Result<()> {
        let fd = load.calls.counter(0)?;
        let _ = self.jobs.send(Job::ReadClosed(fd));
        if !self.is_asleep() {
            load.calls.add_units(fd, 1)?;
            let _ = self.done.recv();
            return load.calls.close(fd);
        }
        load.calls.close(fd)?;
        let again = load.calls.counter(0)?;
        load.calls.close(again)?;
        bump(&load.counts.closed_under_a_sleeper, 1);
        loop {
            // SAFETY: the thread runs until its sender is dropped.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), libc::SIGUSR1) };
            match self.done.recv_timeout(Duration::from_millis(1)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                _ => return Ok(()),
            }
        }
    }
}

extern "C" fn nothing(_: c_int) {}

/// A signal that ends a read and does nothing else.
fn take_signals() {
    // SAFETY: a handler that does nothing, and a structure that is valid when zeroed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}

/// What one of the load's threads does over and over.
fn work(load: &Load, partner: &Partner, thread: usize, threads: usize) -> io::Result<()> {
    let mut random = Random(0x9e37_79b9 * (thread as u64 + 1));
    while load.goes_on() {
        match random.below(100) {
            0..=44 => load.produce(&mut random)?,
            45..=59 => {
                let set = load.sets[random.below(SETS)];
                load.serve(set, random.below(2) as c_int)?;
            }
            60..=69 => load.rewatch(thread, threads, &mut random)?,
            70..=89 => load.use_privately(&mut random)?,
            90..=93 => load.escape(&mut random)?,
            94 => partner.block_in_reads(load, &mut random)?,
            95 => partner.close_under_a_wait(load)?,
            _ => partner.close_under_a_read(load)?,
        }
    }
    Ok(())
}

/// The running threads.
pub struct Threads {
    load: Arc<Load>,
    workers: Vec<JoinHandle<()>>,
    servers: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(load: &Arc<Load>, threads: usize) -> Self {
        take_signals();
        let worker = |thread| {
            let load = load.clone();
            std::thread::spawn(move || {
                let partner = Partner::start(&load);
                if let Err(error) = work(&load, &partner, thread, threads) {
                    load.fail(format!("a call failed that should not: {error}"));
                }
                let Partner { jobs, thread, .. } = partner;
                drop(jobs);
                let _ = thread.join();
            })
        };
        let server = |set: c_int| {
            let load = load.clone();
            std::thread::spawn(move || {
                loop {
                    match load.serve(set, -1) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => return load.fail(format!("a server's call failed: {error}")),
                    }
                }
            })
        };
        Self {
            load: load.clone(),
            workers: (0..threads).map(worker).collect(),
            servers: load.sets.iter().map(|&set| server(set)).collect(),
        }
    }

    /// Ends the load, when it has been told to: everything written must be read without further help, and then all is closed.
    pub fn finish(self) -> io::Result<()> {
        const LOST: Duration = Duration::from_secs(20);
        let Self { load, workers, servers } = self;
        let within = |done: &dyn Fn() -> bool| {
            let give_up = Instant::now() + LOST;
            while !done() && Instant::now() < give_up {
                std::thread::sleep(Duration::from_millis(1));
            }
            done()
        };
        if !within(&|| workers.iter().all(JoinHandle::is_finished)) {
            load.fail("a thread does not come back from its call");
            return Ok(());
        }
        if !within(&|| load.left().is_empty()) {
            load.fail(format!("units are lost, or servers sleep: {}", load.left().join("; ")));
        }
        let bell = load.calls.counter(EFD_NONBLOCK)?;
        load.calls.add_units(bell, 1)?;
        for set in load.sets {
            load.calls.add(set, bell, EPOLLIN, STOP)?;
        }
        if !within(&|| servers.iter().all(JoinHandle::is_finished)) {
            load.fail("a server sleeps while something is ready");
            return Ok(());
        }
        for thread in workers.into_iter().chain(servers) {
            if thread.join().is_err() {
                load.fail("a thread panicked");
            }
        }
        let (written, read) = (&load.counts.written, &load.counts.read);
        let (written, read) = (written.load(Ordering::SeqCst), read.load(Ordering::SeqCst));
        if written != read {
            load.fail(format!("{written} units written, {read} read"));
        }
        load.calls.close(bell)?;
        for channel in &load.channels {
            load.calls.close(channel.read_end)?;
            if channel.pipe {
                load.calls.close(channel.write_end)?;
            }
        }
        load.sets.iter().chain([&load.inner]).try_for_each(|&set| load.calls.close(set))
    }
}

/// Random numbers (xorshift): the load needs no better ones.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
