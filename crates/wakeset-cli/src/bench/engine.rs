//! Wakeset's engine through its Rust API.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, ReadyList, Timer, TimerFlags,
    TimerSpec,
};

use super::backend::Backend;

/// The engine as a backend, with the ready list to measure.
pub struct Wakeset<R> {
    engine: Engine,
    ready_list: PhantomData<R>,
}

impl<R> Wakeset<R> {
    pub fn new() -> Self {
        Wakeset { engine: Engine::new().leak(), ready_list: PhantomData }
    }

    fn number<S>(&self, object: S) -> Numbered<S> {
        // The watches' keys, which are descriptors on the other side. With the object they are unique even if two threads
        // give the same number, and threads that count for themselves do not contend.
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

impl<R: ReadyList> Backend for Wakeset<R> {
    type Set = Numbered<Description<EventPoll<R>>>;
    type Counter = Numbered<Description<Counter>>;
    type Timer = Numbered<Description<Timer>>;
    type Event = Event;
    const NO_EVENT: Event = Event::new(Events::empty(), 0);

    fn create_set(&self) -> io::Result<Self::Set> {
        let set = EventPoll::with_ready_list(&self.engine).map_err(refused)?;
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
    use wakeset::{LockFree, RwLock, SpinLock};

    /// What `--ready-list` names is what the engine's set has, by the engine's own account.
    #[test]
    fn sets_have_the_list_that_was_asked_for() {
        fn list<R: ReadyList>() -> String {
            let set = Wakeset::<R>::new().create_set().expect("memory for a set");
            format!("{:?}", *set.object)
        }
        for (set, name) in
            [(list::<LockFree>(), "LockFree"), (list::<SpinLock>(), "SpinLock"), (list::<RwLock>(), "RwLock")]
        {
            assert!(set.contains(&format!("ready_list: {name}")), "{set}");
        }
    }
}
