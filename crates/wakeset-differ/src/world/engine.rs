//! Wakeset's engine alone: descriptions behind a table of numbers that is all there is of descriptors.

use super::{Command, Sysno, World};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use std::fmt;
use std::time::Duration;
use wakeset::{
    Change, Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, OnError, ReadyList, Source,
    Timeout, Timer, TimerFlags, TimerSpec,
};

/// What a number stands for.
enum Object<R: ReadyList> {
    Counter(Description<Counter>),
    Timer(Description<Timer>),
    Set(Description<EventPoll<R>>),
}

impl<R: ReadyList> Clone for Object<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Counter(counter) => Self::Counter(counter.clone()),
            Self::Timer(timer) => Self::Timer(timer.clone()),
            Self::Set(set) => Self::Set(set.clone()),
        }
    }
}

/// The crate `wakeset`, with one of its ready lists.
pub struct Rust<R: ReadyList> {
    engine: Engine,
    numbers: Vec<Option<Object<R>>>,
}

impl<R: ReadyList> fmt::Debug for Rust<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rust").finish_non_exhaustive()
    }
}

/// The first number that a worker's programs get.
const FIRST: usize = 3;
const MOST_EVENTS: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

type Outcome = Result<isize, c_int>;

fn errno(error: Error) -> c_int {
    error.errno()
}

impl<R: ReadyList + 'static> Rust<R> {
    /// An engine of its own.
    #[allow(clippy::new_without_default, reason = "an engine is not a value")]
    pub fn new() -> Self {
        Self { engine: Engine::new(), numbers: (0..FIRST + 1024).map(|_| None).collect() }
    }

    fn at(&self, number: usize) -> Result<&Object<R>, c_int> {
        let number = number as c_int;
        let place = usize::try_from(number).ok().and_then(|number| self.numbers.get(number));
        place.and_then(Option::as_ref).ok_or(libc::EBADF)
    }

    fn put(&mut self, object: Object<R>) -> Outcome {
        let number = (FIRST..self.numbers.len()).find(|number| self.numbers[*number].is_none()).ok_or(libc::EMFILE)?;
        self.numbers[number] = Some(object);
        Ok(number as isize)
    }

    fn eventfd(&mut self, initial: u32, flags: c_int) -> Outcome {
        let known = libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        if flags & !known != 0 {
            return Err(libc::EINVAL);
        }
        let counter = Counter::new(initial.into(), CounterFlags::from_bits_truncate(flags as u32));
        let counter = Object::Counter(Description::new(&self.engine, counter));
        self.put(counter)
    }

    fn timerfd_create(&mut self, flags: c_int) -> Outcome {
        if flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) != 0 {
            return Err(libc::EINVAL);
        }
        let timer = Timer::new(TimerFlags::from_bits_truncate(flags as u32));
        let timer = Object::Timer(Description::new(&self.engine, timer));
        self.put(timer)
    }

    fn epoll_create1(&mut self, flags: c_int) -> Outcome {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(libc::EINVAL);
        }
        let set = EventPoll::with_ready_list(&self.engine).map_err(errno)?;
        let set = Object::Set(Description::new(&self.engine, set));
        self.put(set)
    }

    fn set(&self, number: usize) -> Result<&Description<EventPoll<R>>, c_int> {
        match self.at(number)? {
            Object::Set(set) => Ok(set),
            Object::Counter(_) | Object::Timer(_) => Err(libc::EINVAL),
        }
    }

    fn epoll_ctl(&self, epfd: usize, op: c_int, fd: usize, event: epoll_event) -> Outcome {
        self.at(epfd)?;
        let target = self.at(fd)?;
        let set = self.set(epfd)?;
        if matches!(target, Object::Set(target) if std::ptr::eq(&**target, &**set)) {
            return Err(libc::EINVAL);
        }
        let event = Event::new(Events::from_bits_retain(event.events), event.u64);
        match target {
            Object::Counter(counter) => Self::change(set, op, fd as i32, counter, event),
            Object::Timer(timer) => Self::change(set, op, fd as i32, timer, event),
            Object::Set(inner) => Self::change(set, op, fd as i32, inner, event),
        }
    }

    fn change<S: Source + 'static>(
        set: &EventPoll<R>,
        op: c_int,
        fd: i32,
        source: &Description<S>,
        event: Event,
    ) -> Outcome {
        match op {
            EPOLL_CTL_ADD => set.add(fd, source, event),
            EPOLL_CTL_MOD => set.modify(fd, source, event),
            EPOLL_CTL_DEL => set.remove(fd, source),
            _ => return Err(libc::EINVAL),
        }
        .map(|()| 0)
        .map_err(errno)
    }

    /// The change that a command of a batch asks the engine for.
    fn as_change(&self, epfd: c_int, command: &Command) -> Option<Change<'_>> {
        let set = self.set(epfd as usize).ok()?;
        let (fd, event) = (command.fd, command.event);
        let event = Event::new(Events::from_bits_retain(event.events), event.u64);
        fn change<'a, S: Source + 'static>(
            op: c_int,
            fd: c_int,
            source: &'a Description<S>,
            event: Event,
        ) -> Option<Change<'a>> {
            Some(match op {
                EPOLL_CTL_ADD => Change::add(fd, source, event),
                EPOLL_CTL_MOD => Change::modify(fd, source, event),
                EPOLL_CTL_DEL => Change::remove(fd, source),
                _ => return None,
            })
        }
        match self.at(fd as usize).ok()? {
            Object::Counter(counter) => change(command.op, fd, counter, event),
            Object::Timer(timer) => change(command.op, fd, timer, event),
            Object::Set(inner) if std::ptr::eq(&**inner, &**set) => None,
            Object::Set(inner) => change(command.op, fd, inner, event),
        }
    }

    unsafe fn wait(&self, epfd: usize, events: *mut epoll_event, room: c_int, milliseconds: c_int) -> Outcome {
        self.at(epfd)?;
        if room <= 0 || room > MOST_EVENTS {
            return Err(libc::EINVAL);
        }
        let set = self.set(epfd)?;
        let mut place = events;
        if let Some(ring) = set.ring() {
            let mut taken = [Event::default(); 64];
            let room = taken.len().min(room as usize);
            let n = ring.wait(&mut taken[..room], Timeout::from_millis(milliseconds)).map_err(errno)?;
            for event in &taken[..n] {
                let event = epoll_event { events: event.events.bits(), u64: event.data };
                // SAFETY: the caller gives memory for what there is.
                unsafe {
                    place.write_unaligned(event);
                    place = place.add(1);
                }
            }
            return Ok(n as isize);
        }
        let found = set.wait_with(room as usize, Timeout::from_millis(milliseconds), &mut |event| {
            let event = epoll_event { events: event.events.bits(), u64: event.data };
            // SAFETY: the caller gives memory for what there is.
            unsafe {
                place.write_unaligned(event);
                place = place.add(1);
            }
            true
        });
        found.map(|n| n as isize).map_err(errno)
    }
}

fn set_timer(timer: &Timer, flags: c_int, new: libc::itimerspec) -> Result<libc::itimerspec, Error> {
    let duration = |time: libc::timespec| Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    let time = |time: Duration| libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let (value, interval) = (duration(new.it_value), duration(new.it_interval));
    let old = match flags & libc::TFD_TIMER_ABSTIME {
        0 => timer.set(TimerSpec { value, interval }),
        _ => timer.set_at(value, interval),
    }?;
    Ok(libc::itimerspec { it_value: time(old.value), it_interval: time(old.interval) })
}

impl<R: ReadyList + 'static> World for Rust<R> {
    fn until_expired(&mut self, _: c_int) {}

    unsafe fn call(&mut self, number: Sysno, [a, b, c, d, ..]: [usize; 6]) -> isize {
        // SAFETY: the caller's contract: programs for this side pass good addresses only.
        let outcome = unsafe {
            match number {
                Sysno::eventfd2 => self.eventfd(a as u32, b as c_int),
                Sysno::timerfd_create => self.timerfd_create(b as c_int),
                Sysno::timerfd_settime => self.at(a).and_then(|object| match object {
                    Object::Timer(timer) => {
                        let old = set_timer(timer, b as c_int, (c as *const libc::itimerspec).read_unaligned());
                        old.map(|old| (d as *mut libc::itimerspec).write_unaligned(old)).map_err(errno).map(|()| 0)
                    }
                    Object::Counter(_) | Object::Set(_) => Err(libc::EINVAL),
                }),
                Sysno::epoll_create1 => self.epoll_create1(a as c_int),
                Sysno::epoll_ctl => self.epoll_ctl(a, b as c_int, c, (d as *const epoll_event).read_unaligned()),
                Sysno::epoll_wait => self.wait(a, b as *mut epoll_event, c as c_int, d as c_int),
                Sysno::read => self.at(a).and_then(|object| match object {
                    Object::Counter(counter) => {
                        counter.read().map(|value| (b as *mut u64).write_unaligned(value)).map_err(errno).map(|()| 8)
                    }
                    Object::Timer(timer) => {
                        timer.read().map(|value| (b as *mut u64).write_unaligned(value)).map_err(errno).map(|()| 8)
                    }
                    Object::Set(_) => Err(libc::EINVAL),
                }),
                Sysno::write => self.at(a).and_then(|object| match object {
                    Object::Counter(counter) => {
                        counter.write((b as *const u64).read_unaligned()).map_err(errno).map(|()| 8)
                    }
                    Object::Timer(_) | Object::Set(_) => Err(libc::EINVAL),
                }),
                Sysno::close => self.at(a).map(drop).map(|()| {
                    self.numbers[a] = None;
                    0
                }),
                Sysno::dup => self.at(a).cloned().and_then(|object| self.put(object)),
                Sysno::fcntl | Sysno::ioctl => self.at(a).map(|object| {
                    let on = if number == Sysno::ioctl {
                        *(c as *const c_int) != 0
                    } else {
                        c as c_int & libc::O_NONBLOCK != 0
                    };
                    match object {
                        Object::Counter(counter) => counter.set_nonblocking(on),
                        Object::Timer(timer) => timer.set_nonblocking(on),
                        Object::Set(_) => {}
                    }
                    0
                }),
                _ => unreachable!("a call that programs for this side do not make"),
            }
        };
        outcome.unwrap_or_else(|errno| -(errno as isize))
    }

    fn ring(&mut self, epfd: c_int, entries: usize, _polls: bool) {
        if let Ok(set) = self.set(epfd as usize) {
            let _ = set.make_ring(entries);
        }
    }

    fn batch(&mut self, epfd: c_int, stop: bool, commands: &mut [Command]) {
        let mut begin = 0;
        let mut stopped = false;
        while begin < commands.len() {
            // As many as the engine can be asked for; what comes between is about numbers.
            let mut changes: Vec<_> =
                commands[begin..].iter().map_while(|command| self.as_change(epfd, command)).collect();
            if let (false, Ok(set)) = (stopped, self.set(epfd as usize)) {
                set.apply(&mut changes, if stop { OnError::Stop } else { OnError::GoOn });
            }
            let results: Vec<_> = changes.iter().map(Change::result).collect();
            for (command, result) in commands[begin..].iter_mut().zip(results) {
                command.result = result.map_or(-libc::ECANCELED, |result| result.map_or_else(|e| -e.errno(), |()| 0));
                stopped |= stop && command.result != 0;
            }
            begin += changes.len();
            if let Some(command) = commands.get_mut(begin) {
                let single = || self.epoll_ctl(epfd as usize, command.op, command.fd as usize, command.event);
                let result = if stopped { Err(libc::ECANCELED) } else { single() };
                command.result = result.map_or_else(|errno| -errno, |_| 0);
                stopped |= stop && command.result != 0;
                begin += 1;
            }
        }
    }
}
