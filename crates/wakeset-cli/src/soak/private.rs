//! The private half of the load: objects that one thread makes, uses and closes alone, so that
//! every report can be foretold.

use std::io;

use fastrand::Rng;
use libc::{EFD_NONBLOCK, EPOLLIN, EPOLLONESHOT, c_int};

use super::counts::bump;
use super::load::{Load, MODES};

/// Data of the watch on the inner set, and of the watch on the pipe.
const INNER: u64 = 1;
const PIPE: u64 = 100;

/// Makes a set with some eventfds, perhaps in another set, perhaps with a pipe; uses all of it, and
/// closes it.
pub fn use_objects(load: &Load, random: &mut Rng) -> io::Result<()> {
    let mut objects = Objects::make(load, random)?;
    for _ in 0..2 {
        objects.write_and_read(random)?;
    }
    objects.close(random)
}

/// An eventfd of the set.
struct Counter {
    fd: c_int,
    mode: usize,
    /// What it holds.
    units: u64,
}

struct Objects<'a> {
    load: &'a Load,
    set: c_int,
    outer: c_int,
    /// Whether the outer set watches the set.
    nested: bool,
    pipe: Option<[c_int; 2]>,
    /// The data of each one's watch is its index.
    counters: Vec<Counter>,
}

impl<'a> Objects<'a> {
    fn make(load: &'a Load, random: &mut Rng) -> io::Result<Self> {
        let calls = load.calls;
        let (set, outer) = (calls.set()?, calls.set()?);
        let nested = random.bool();
        if nested {
            calls.add(outer, set, EPOLLIN, INNER)?;
        }
        let pipe = if random.u32(..4) == 0 { Some(calls.pipe()?) } else { None };
        if let Some([read_end, write_end]) = pipe {
            calls.add(set, read_end, EPOLLIN, PIPE)?;
            calls.write(write_end, b"x")?;
            demand(load, "a pipe", set, &[PIPE])?;
            calls.read(read_end, &mut [0; 8])?;
        }
        let mut counters = Vec::new();
        for data in 0..random.u64(1..=6) {
            let (fd, mode) = (calls.counter(EFD_NONBLOCK)?, random.usize(..MODES.len()));
            calls.add(set, fd, MODES[mode], data)?;
            counters.push(Counter { fd, mode, units: 0 });
        }
        bump(&load.counts.objects_made, 2 + counters.len() as u64);
        Ok(Objects { load, set, outer, nested, pipe, counters })
    }

    /// Writes to some of the eventfds, demands their reports, and reads them.
    fn write_and_read(&mut self, random: &mut Rng) -> io::Result<()> {
        let (load, calls) = (self.load, self.load.calls);
        let mut expected = Vec::new();
        for (i, counter) in self.counters.iter_mut().enumerate() {
            if random.bool() {
                counter.units = random.u64(1..=9);
                calls.add_units(counter.fd, counter.units)?;
                expected.push(i as u64);
            }
        }
        if self.nested {
            let reports = if expected.is_empty() { &[][..] } else { &[INNER] };
            demand(load, "the outer set", self.outer, reports)?;
        }
        demand(load, "what was written", self.set, &expected)?;
        for (i, counter) in self.counters.iter_mut().enumerate() {
            demand_units(load, "what was written", counter.fd, std::mem::take(&mut counter.units))?;
            if MODES[counter.mode] & EPOLLONESHOT != 0 || random.u32(..4) == 0 {
                calls.modify(self.set, counter.fd, MODES[counter.mode], i as u64)?;
                bump(&load.counts.controls, 1);
            }
        }
        demand(load, "when all is read", self.set, &[])
    }

    /// Removes some of the eventfds and closes the rest as they are: none may be reported.
    fn close(mut self, random: &mut Rng) -> io::Result<()> {
        let (load, calls) = (self.load, self.load.calls);
        while let Some(Counter { fd, .. }) = self.counters.pop() {
            calls.add_units(fd, 1)?;
            match random.u32(..3) {
                0 => {
                    calls.remove(self.set, fd)?;
                    demand(load, "after a removal", self.set, &[])?;
                    calls.close(fd)?;
                }
                1 => {
                    calls.close(fd)?;
                    demand_nothing(load, "after a close", self.set)?;
                }
                _ => {
                    // The set is closed with a report in it.
                    self.counters.iter().try_for_each(|counter| calls.close(counter.fd))?;
                    calls.close(self.set)?;
                    demand_nothing(load, "with the inner set closed", self.outer)?;
                    calls.close(self.outer)?;
                    calls.close(fd)?;
                    return self.close_pipe();
                }
            }
        }
        calls.close(self.outer)?;
        calls.close(self.set)?;
        self.close_pipe()
    }

    fn close_pipe(&self) -> io::Result<()> {
        self.pipe.into_iter().flatten().try_for_each(|end| self.load.calls.close(end))
    }
}

/// Gives an eventfd or a set, with something in it, a second descriptor, and closes the first.
pub fn migrate(load: &Load, random: &mut Rng) -> io::Result<()> {
    let calls = load.calls;
    let (mut set, mut counter) = (calls.set()?, calls.counter(EFD_NONBLOCK)?);
    calls.add(set, counter, EPOLLIN, 7)?;
    calls.add_units(counter, 3)?;
    let chosen = if random.bool() { &mut counter } else { &mut set };
    let second = calls.dup(*chosen)?;
    calls.close(std::mem::replace(chosen, second))?;
    demand(load, "after a migration", set, &[7])?;
    calls.add_units(counter, 4)?;
    demand(load, "after a migration", set, &[7])?;
    demand_units(load, "after a migration", counter, 7)?;
    demand(load, "after a migration and a read", set, &[])?;
    calls.close(counter)?;
    calls.close(set)?;
    bump(&load.counts.migrations, 1);
    bump(&load.counts.objects_made, 2);
    Ok(())
}

/// Demands that a set reports this, in whatever order.
fn demand(load: &Load, what: &str, set: c_int, expected: &[u64]) -> io::Result<()> {
    compare(load, what, set, load.wait(set, 0)?, expected);
    Ok(())
}

/// Demands that a set reports nothing of what has been closed.
fn demand_nothing(load: &Load, what: &str, set: c_int) -> io::Result<()> {
    compare(load, what, set, load.wait_without_samples(set)?, &[]);
    Ok(())
}

fn compare(load: &Load, what: &str, set: c_int, mut reported: Vec<u64>, expected: &[u64]) {
    let mut expected = expected.to_vec();
    reported.sort_unstable();
    expected.sort_unstable();
    if reported != expected {
        load.fail(format!("{what}: set {set} reports {reported:?} and not {expected:?}"));
    }
}

fn demand_units(load: &Load, what: &str, fd: c_int, expected: u64) -> io::Result<()> {
    let units = load.calls.take_units(fd)?;
    if units != Some(expected).filter(|n| *n > 0) {
        load.fail(format!("{what}: {units:?} units in {fd} and not {expected}"));
    }
    Ok(())
}
