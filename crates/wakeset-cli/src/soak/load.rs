//! The shared half of the load: channels that all threads write to, which three sets watch. One set
//! has eventfds only, one mixes them with pipes, and one has another set in it. What goes in has to
//! come out.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use libc::{EFD_NONBLOCK, EFD_SEMAPHORE, EPOLLET, EPOLLIN, EPOLLONESHOT, c_int};

use super::calls::Calls;
use super::counts::{Counts, bump};

/// How a channel may be watched.
pub const MODES: [c_int; 4] =
    [EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLET | EPOLLONESHOT];
const CHANNELS: usize = 12;
/// Units in a channel above which its writers leave it alone; a pipe has room for more.
const FULL: u64 = 10_000;
/// The shared sets: eventfds, eventfds and pipes, and the set in the last one.
pub const SETS: usize = 3;
/// Data of the watch on the inner set, and of the watch that ends the servers.
const INNER: u64 = 1 << 16;
pub const STOP: u64 = 1 << 17;
/// Where units go in and come out.
pub struct Channel {
    pub read_end: c_int,
    pub write_end: c_int,
    pub pipe: bool,
    /// The set that watches it.
    set: c_int,
    written: AtomicU64,
    read: AtomicU64,
}

/// What all threads share.
pub struct Load {
    pub calls: Calls,
    pub counts: Counts,
    pub channels: Vec<Channel>,
    pub sets: [c_int; SETS],
    pub inner: c_int,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Counts when a sample begins and when it ends: it is odd meanwhile.
    samples: AtomicU64,
}

impl Load {
    /// The shared objects.
    pub fn new(calls: Calls) -> io::Result<Self> {
        let sets = [calls.set()?, calls.set()?, calls.set()?];
        let inner = calls.set()?;
        calls.add(sets[2], inner, EPOLLIN, INNER)?;
        let mut channels = Vec::new();
        for i in 0..CHANNELS {
            // Round robin: eventfds, eventfds and pipes, eventfds in the inner set.
            let (set, pipe) = match i % 3 {
                0 => (sets[0], false),
                1 => (sets[1], i % 2 == 0),
                _ => (inner, false),
            };
            let [read_end, write_end] = match pipe {
                true => calls.pipe()?,
                false => {
                    [calls.counter(EFD_NONBLOCK | if i % 4 == 3 { EFD_SEMAPHORE } else { 0 })?; 2]
                }
            };
            calls.add(set, read_end, MODES[i % MODES.len()], Self::data(i, i % MODES.len()))?;
            let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
            channels.push(Channel { read_end, write_end, pipe, set, written, read });
        }
        let (stop, failure) = (AtomicBool::new(false), Mutex::new(None));
        let (counts, samples) = (Counts::default(), AtomicU64::new(0));
        Ok(Self { calls, counts, channels, sets, inner, stop, failure, samples })
    }

    fn data(channel: usize, mode: usize) -> u64 {
        channel as u64 | (mode as u64) << 8
    }

    /// Records that something is wrong, and ends the load.
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

    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Takes a sample of what the process uses. A thread that reads `/proc/self/fd` holds each file
    /// for a moment, so what is closed meanwhile may be reported until that has ended: the kernel
    /// drops a watch with the last holder of its file.
    pub fn sample<T>(&self, take: impl FnOnce() -> T) -> T {
        self.samples.fetch_add(1, Ordering::SeqCst);
        let sample = take();
        self.samples.fetch_add(1, Ordering::SeqCst);
        sample
    }

    /// What a set reports of what is closed, without what a [sample](Self::sample) keeps there.
    pub fn wait_without_samples(&self, set: c_int) -> io::Result<Vec<u64>> {
        loop {
            let before = self.samples.load(Ordering::SeqCst);
            let reported = self.wait(set, 0)?;
            let after = self.samples.load(Ordering::SeqCst);
            if reported.is_empty() || before == after && before.is_multiple_of(2) {
                return Ok(reported);
            }
            std::thread::yield_now();
        }
    }

    /// Demands that no channel has had more units read than written.
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

    /// Descriptions of the channels that have not been emptied.
    pub fn left(&self) -> Vec<String> {
        let left = |(i, channel): (usize, &Channel)| {
            let (written, read) =
                (channel.written.load(Ordering::SeqCst), channel.read.load(Ordering::SeqCst));
            (written != read).then(|| format!("channel {i}: {written} units written, {read} read"))
        };
        self.channels.iter().enumerate().filter_map(left).collect()
    }

    pub fn wait(&self, set: c_int, limit: c_int) -> io::Result<Vec<u64>> {
        let events: Vec<_> = self.calls.wait(set, limit)?.collect();
        bump(&self.counts.waits, 1);
        bump(&self.counts.events, events.len() as u64);
        Ok(events)
    }

    /// Waits in a shared set and empties what is ready. Returns whether to go on.
    pub fn serve(&self, set: c_int, limit: c_int) -> io::Result<bool> {
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

    /// Empties what a set reports without waiting. Returns whether it reported anything.
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
            self.fail(format!("a report of data {data:#x}, which no watch has"));
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

    pub fn produce(&self, random: &mut Rng) -> io::Result<()> {
        for _ in 0..random.usize(..32) {
            let channel = &self.channels[random.usize(..CHANNELS)];
            let (written, read) = (&channel.written, &channel.read);
            let units = random.u64(1..=3);
            if written.load(Ordering::Relaxed).wrapping_sub(read.load(Ordering::Relaxed)) as i64
                > FULL as i64
            {
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
    pub fn rewatch(&self, thread: usize, threads: usize, random: &mut Rng) -> io::Result<()> {
        let index = thread + threads * random.usize(..CHANNELS.div_ceil(threads));
        let Some(channel) = self.channels.get(index) else { return Ok(()) };
        let mode = random.usize(..MODES.len());
        let (set, fd, data) = (channel.set, channel.read_end, Self::data(index, mode));
        if random.bool() {
            self.calls.modify(set, fd, MODES[mode], data)?;
        } else {
            self.calls.remove(set, fd)?;
            self.calls.add(set, fd, MODES[mode], data)?;
        }
        bump(&self.counts.controls, 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    /// A duplicate stands for what a reader of `/proc/self/fd` holds.
    #[test]
    fn a_sample_keeps_what_is_closed() {
        let calls = Calls::Libc;
        let load = Load::new(calls).unwrap();
        let (outer, inner) = (calls.set().unwrap(), calls.set().unwrap());
        let counter = calls.counter(EFD_NONBLOCK).unwrap();
        calls.add(outer, inner, EPOLLIN, 1).unwrap();
        calls.add(inner, counter, EPOLLIN, 2).unwrap();
        calls.add_units(counter, 1).unwrap();
        let (held, begun) = (calls.dup(inner).unwrap(), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                load.sample(|| {
                    begun.wait();
                    std::thread::sleep(Duration::from_millis(20));
                    calls.close(held).unwrap();
                });
            });
            begun.wait();
            calls.close(inner).unwrap();
            assert_eq!(load.wait(outer, 0).unwrap(), [1], "it is held");
            assert_eq!(load.wait_without_samples(outer).unwrap(), [0; 0]);
        });
        calls.close(outer).unwrap();
        calls.close(counter).unwrap();
    }
}
