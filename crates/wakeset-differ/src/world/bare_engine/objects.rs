//! A table of numbers, which is all that this side has of descriptors.
//!
//! This folder is the only place of the crate that names the ready lists.

use libc::{c_int, epoll_event};
use std::fmt;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, EventPoll, ReadyList, Timer, TimerFlags,
};

/// What a number stands for.
pub(super) enum Object {
    Counter(Description<Counter>),
    Timer(Description<Timer>),
    Set(Description<EventPoll>),
}

impl Clone for Object {
    fn clone(&self) -> Self {
        match self {
            Self::Counter(counter) => Self::Counter(counter.clone()),
            Self::Timer(timer) => Self::Timer(timer.clone()),
            Self::Set(set) => Self::Set(set.clone()),
        }
    }
}

/// The crate `wakeset` alone, with one of its ready lists. A build without that list refuses every
/// set.
pub struct BareEngine {
    ready_list: ReadyList,
    engine: Engine,
    numbers: Vec<Option<Object>>,
}

impl fmt::Debug for BareEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareEngine").finish_non_exhaustive()
    }
}

/// The first number that programs of a worker get.
const FIRST: usize = 3;
/// How many numbers there are.
const NUMBERS: usize = 1024;

/// The result of a call, or its errno.
pub(super) type Outcome = Result<isize, c_int>;

pub(super) fn errno(error: Error) -> c_int {
    error.errno()
}

impl BareEngine {
    /// An engine of its own, whose sets have this ready list.
    pub fn new(ready_list: ReadyList) -> Self {
        let numbers = (0..FIRST + NUMBERS).map(|_| None).collect();
        Self { ready_list, engine: Engine::new(), numbers }
    }

    /// An engine whose sets have the lock-free ready list.
    pub fn lock_free() -> Self {
        Self::new(ReadyList::LockFree)
    }

    pub(super) fn at(&self, number: usize) -> Result<&Object, c_int> {
        let number = number as c_int;
        let object = usize::try_from(number).ok().and_then(|number| self.numbers.get(number));
        object.and_then(Option::as_ref).ok_or(libc::EBADF)
    }

    pub(super) fn set(&self, number: usize) -> Result<&Description<EventPoll>, c_int> {
        match self.at(number)? {
            Object::Set(set) => Ok(set),
            Object::Counter(_) | Object::Timer(_) => Err(libc::EINVAL),
        }
    }

    /// Gives an object the lowest free number.
    fn put(&mut self, object: Object) -> Outcome {
        let number = (FIRST..self.numbers.len())
            .find(|number| self.numbers[*number].is_none())
            .ok_or(libc::EMFILE)?;
        self.numbers[number] = Some(object);
        Ok(number as isize)
    }

    pub(super) fn eventfd(&mut self, initial: u32, flags: c_int) -> Outcome {
        let known = libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        if flags & !known != 0 {
            return Err(libc::EINVAL);
        }
        let counter = Counter::new(initial.into(), CounterFlags::from_bits_truncate(flags as u32));
        let counter = Object::Counter(Description::new(&self.engine, counter));
        self.put(counter)
    }

    pub(super) fn timerfd_create(&mut self, flags: c_int) -> Outcome {
        if flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) != 0 {
            return Err(libc::EINVAL);
        }
        let timer = Timer::new(TimerFlags::from_bits_truncate(flags as u32));
        let timer = Object::Timer(Description::new(&self.engine, timer));
        self.put(timer)
    }

    pub(super) fn epoll_create1(&mut self, flags: c_int) -> Outcome {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(libc::EINVAL);
        }
        let set = EventPoll::with_ready_list(&self.engine, self.ready_list).map_err(errno)?;
        let set = Object::Set(Description::new(&self.engine, set));
        self.put(set)
    }

    pub(super) fn close(&mut self, number: usize) -> Outcome {
        self.at(number)?;
        self.numbers[number] = None;
        Ok(0)
    }

    pub(super) fn dup(&mut self, number: usize) -> Outcome {
        let object = self.at(number)?.clone();
        self.put(object)
    }
}

/// An epoll_event for an engine's event.
pub(super) fn to_epoll_event(event: wakeset::Event) -> epoll_event {
    epoll_event { events: event.events.bits(), u64: event.data }
}

/// An engine's event for an epoll_event.
pub(super) fn to_event(event: epoll_event) -> wakeset::Event {
    wakeset::Event::new(wakeset::Events::from_bits_retain(event.events), event.u64)
}
