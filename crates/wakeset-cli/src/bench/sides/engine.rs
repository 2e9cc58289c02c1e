//! Wakeset's engine through its Rust API, with each of its ready lists.
//!
//! Every use of a ready list other than the default is in this file.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, ReadyList, Timer,
    TimerFlags, TimerSpec,
};

use super::backend::Backend;
use crate::failure::Failure;

/// A ready list by its name on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::ValueEnum)]
pub enum List {
    /// What Wakeset uses
    #[default]
    LockFree,
    /// A list behind a spinlock, as Linux had it up to 5.0 and has it since 6.17
    Spinlock,
    /// A list behind a read-write lock, as in Linux 5.1 to 6.16
    Rwlock,
}

impl List {
    /// What a row says about the list it was measured with; nothing for the default.
    pub fn label(self) -> Option<&'static str> {
        match self {
            List::LockFree => None,
            List::Spinlock => Some("spinlock"),
            List::Rwlock => Some("rwlock"),
        }
    }

    /// Fails unless this build has the list.
    pub fn check_available(self) -> Result<(), Failure> {
        if self.of_sets().is_available() {
            return Ok(());
        }
        Err(Failure::own(
            "this build has the lock-free ready list only; the others need \
             cargo run --release --features bench-ready-lists",
        ))
    }

    fn of_sets(self) -> ReadyList {
        match self {
            List::LockFree => ReadyList::LockFree,
            List::Spinlock => ReadyList::Spinlock,
            List::Rwlock => ReadyList::Rwlock,
        }
    }
}

/// Work that runs on any backend.
pub trait Work {
    /// What the work comes to.
    type Output;
    fn run<B: Backend>(self, backend: &B) -> Self::Output;
}

/// An engine for each ready list.
pub struct Engines {
    lock_free: Wakeset,
    spinlock: Wakeset,
    rwlock: Wakeset,
}

impl Engines {
    pub fn new() -> Self {
        Engines {
            lock_free: Wakeset::new(List::LockFree),
            spinlock: Wakeset::new(List::Spinlock),
            rwlock: Wakeset::new(List::Rwlock),
        }
    }

    /// Runs the work on sets with this ready list.
    pub fn run<W: Work>(&self, list: List, work: W) -> W::Output {
        match list {
            List::LockFree => work.run(&self.lock_free),
            List::Spinlock => work.run(&self.spinlock),
            List::Rwlock => work.run(&self.rwlock),
        }
    }
}

/// The engine as a backend, with the ready list to measure.
struct Wakeset {
    engine: Engine,
    ready_list: ReadyList,
}

impl Wakeset {
    fn new(list: List) -> Self {
        Wakeset { engine: Engine::new().leak(), ready_list: list.of_sets() }
    }

    fn number<S>(&self, object: S) -> Numbered<S> {
        // The keys of watches, which are descriptors on the kernel's side. With the object they are
        // unique even if two threads give the same number, and threads with a count of their own
        // do not contend.
        thread_local! { static NEXT: Cell<i32> = const { Cell::new(0) }; }
        let number = NEXT.get();
        NEXT.set(number.wrapping_add(1) & i32::MAX);
        Numbered { number, object }
    }
}

/// An object with the number it is watched under.
pub struct Numbered<S> {
    number: i32,
    object: S,
}

impl Backend for Wakeset {
    type Set = Numbered<Description<EventPoll>>;
    type Counter = Numbered<Description<Counter>>;
    type Timer = Numbered<Description<Timer>>;
    type Event = Event;
    const NO_EVENT: Event = Event::new(Events::empty(), 0);

    fn create_set(&self) -> io::Result<Self::Set> {
        let set = EventPoll::with_ready_list(&self.engine, self.ready_list).map_err(refused)?;
        Ok(self.number(Description::new(&self.engine, set)))
    }

    fn create_counter(&self) -> io::Result<Self::Counter> {
        let counter = Counter::new(0, CounterFlags::NONBLOCK);
        Ok(self.number(Description::new(&self.engine, counter)))
    }

    fn create_timer(&self) -> io::Result<Self::Timer> {
        Ok(self.number(Description::new(&self.engine, Timer::new(TimerFlags::NONBLOCK))))
    }

    fn add_timer(&self, set: &Self::Set, to: &Self::Timer, bits: u32, data: u64) -> io::Result<()> {
        let event = Event::new(Events::from_bits_retain(bits), data);
        set.object.add(to.number, &to.object, event).map_err(refused)
    }

    fn add(&self, set: &Self::Set, to: &Self::Counter, bits: u32, data: u64) -> io::Result<()> {
        let event = Event::new(Events::from_bits_retain(bits), data);
        set.object.add(to.number, &to.object, event).map_err(refused)
    }

    fn modify(&self, set: &Self::Set, of: &Self::Counter, bits: u32, data: u64) -> io::Result<()> {
        let event = Event::new(Events::from_bits_retain(bits), data);
        set.object.modify(of.number, &of.object, event).map_err(refused)
    }

    fn remove(&self, set: &Self::Set, from: &Self::Counter) -> io::Result<()> {
        set.object.remove(from.number, &from.object).map_err(refused)
    }

    fn add_set(&self, set: &Self::Set, inner: &Self::Set, bits: u32, data: u64) -> io::Result<()> {
        let event = Event::new(Events::from_bits_retain(bits), data);
        set.object.add(inner.number, &inner.object, event).map_err(refused)
    }

    fn remove_set(&self, set: &Self::Set, inner: &Self::Set) -> io::Result<()> {
        set.object.remove(inner.number, &inner.object).map_err(refused)
    }

    fn wait(&self, set: &Self::Set, events: &mut [Event], limit: Duration) -> io::Result<usize> {
        set.object.wait(events, Some(limit).into()).map_err(refused)
    }

    fn make_ring(&self, set: &Self::Set, entries: usize) -> io::Result<()> {
        set.object.make_ring(entries).map(drop).map_err(refused)
    }

    fn take(&self, set: &Self::Set, events: &mut [Event]) -> io::Result<usize> {
        match set.object.ring() {
            Some(ring) => Ok(ring.take(events)),
            None => self.wait(set, events, Duration::ZERO),
        }
    }

    fn data(event: &Event) -> u64 {
        event.data
    }

    fn write(&self, counter: &Self::Counter, value: u64) -> io::Result<()> {
        counter.object.write(value).map_err(refused)
    }

    fn read(&self, counter: &Self::Counter) -> io::Result<Option<u64>> {
        match counter.object.read() {
            Ok(value) => Ok(Some(value)),
            Err(Error::WouldBlock) => Ok(None),
            Err(e) => Err(refused(e)),
        }
    }

    fn set_timer(&self, timer: &Self::Timer, time: Duration) -> io::Result<()> {
        let spec = TimerSpec { value: time, interval: Duration::ZERO };
        timer.object.set(spec).map(drop).map_err(refused)
    }

    fn read_timer(&self, timer: &Self::Timer) -> io::Result<Option<u64>> {
        match timer.object.read() {
            Ok(value) => Ok(Some(value)),
            Err(Error::WouldBlock) => Ok(None),
            Err(e) => Err(refused(e)),
        }
    }
}

#[cold]
fn refused(error: Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `--ready-list` names is what the engine's set has, by the engine's own account.
    #[test]
    fn sets_have_the_list_that_was_asked_for() {
        for list in [List::LockFree, List::Spinlock, List::Rwlock] {
            list.check_available().expect("tests turn the feature on");
            let set = Wakeset::new(list).create_set().expect("memory for a set");
            let (set, name) = (format!("{:?}", *set.object), list.of_sets());
            assert!(set.contains(&format!("ready_list: {name:?}")), "{set}");
        }
    }
}
