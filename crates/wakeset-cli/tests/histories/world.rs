//! What answers the calls of a history: the kernel, or the preload library in its place; Wakeset by
//! number; the engine itself.

use crate::backend::{Backend, Errno, Kernel, KernelSigset, Wakeset};
use libc::{c_int, c_uint, epoll_event, timespec};
use std::collections::BTreeSet;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;
use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, Timeout};

/// What the threads of a round call.
pub trait World: Backend {
    const NAME: &'static str;
    /// It has kernel descriptors.
    const PIPES: bool = true;
    /// Descriptors may be closed and duplicated while other threads use their numbers.
    const CLOSES: bool = true;

    /// The kernel's pipe, which does not block: reading end, writing end.
    fn pipe() -> Result<(c_int, c_int), Errno> {
        let mut ends = [-1; 2];
        // SAFETY: room for two numbers.
        match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } {
            0 => Ok((ends[0], ends[1])),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }

    /// A child that ends at once, having shared all descriptors. Nothing where that is not the
    /// world's business.
    fn fork() {}

    /// How long something may take that has to happen, on a machine busy with other things.
    fn time_limit() -> Duration {
        Duration::from_secs(20)
    }

    /// Nobody uses anything of the last round any more.
    fn end_round() {}
}

impl World for Kernel {
    const NAME: &'static str = "kernel";

    fn fork() {
        // SAFETY: the child does nothing but end, and is waited for.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => libc::waitpid(child, ptr::null_mut(), 0),
            }
        };
    }
}

impl World for Wakeset {
    const NAME: &'static str = "wakeset";
}

/// The engine's own types, under numbers that mean something here only.
pub struct Bare;

enum Object {
    Counter(Description<Counter>),
    Set(Description<EventPoll>),
}

const NUMBERS: usize = 64;

/// Objects by number, without a lock: a lock would order what the threads do. They are there until
/// the round ends.
static OBJECTS: [AtomicPtr<Object>; NUMBERS] = [const { AtomicPtr::new(ptr::null_mut()) }; NUMBERS];
/// Which numbers are in use, and the engine.
static WORLD: Mutex<Option<(Engine, BTreeSet<usize>)>> = Mutex::new(None);

impl Bare {
    fn object(number: c_int) -> Result<&'static Object, Errno> {
        let slot = usize::try_from(number)
            .ok()
            .and_then(|number| OBJECTS.get(number))
            .ok_or(libc::EBADF)?;
        let object = slot.load(Ordering::Relaxed);
        // SAFETY: made by `put`, and ended between rounds only.
        unsafe { object.as_ref() }.ok_or(libc::EBADF)
    }

    fn set(number: c_int) -> Result<&'static EventPoll, Errno> {
        match Self::object(number)? {
            Object::Set(set) => Ok(set),
            Object::Counter(_) => Err(libc::EINVAL),
        }
    }

    fn counter(number: c_int) -> Result<&'static Counter, Errno> {
        match Self::object(number)? {
            Object::Counter(counter) => Ok(counter),
            Object::Set(_) => Err(libc::EINVAL),
        }
    }

    fn put(make: impl FnOnce(&Engine) -> Object) -> Result<c_int, Errno> {
        let mut world = WORLD.lock().unwrap();
        let (engine, used) = world.get_or_insert_with(|| (Engine::new(), BTreeSet::new()));
        let number = (0..NUMBERS).find(|number| !used.contains(number)).ok_or(libc::EMFILE)?;
        used.insert(number);
        OBJECTS[number].store(Box::into_raw(Box::new(make(engine))), Ordering::SeqCst);
        Ok(number as c_int)
    }
}

fn errno(error: wakeset::Error) -> Errno {
    error.errno()
}

impl Backend for Bare {
    fn epoll_create1(_: c_int) -> Result<c_int, Errno> {
        Self::put(|engine| {
            Object::Set(Description::new(engine, EventPoll::new(engine).expect("memory")))
        })
    }

    unsafe fn epoll_ctl(
        set: c_int,
        op: c_int,
        fd: c_int,
        event: *mut epoll_event,
    ) -> Result<(), Errno> {
        let set = Self::set(set)?;
        // SAFETY: valid by the caller's contract.
        let asked = unsafe { event.as_ref() };
        let asked = asked.map_or(Event::default(), |asked| {
            Event::new(Events::from_bits_retain(asked.events), asked.u64)
        });
        match (op, Self::object(fd)?) {
            (libc::EPOLL_CTL_ADD, Object::Counter(source)) => set.add(fd, source, asked),
            (libc::EPOLL_CTL_ADD, Object::Set(source)) => set.add(fd, source, asked),
            (libc::EPOLL_CTL_MOD, Object::Counter(source)) => set.modify(fd, source, asked),
            (libc::EPOLL_CTL_MOD, Object::Set(source)) => set.modify(fd, source, asked),
            (_, Object::Counter(source)) => set.remove(fd, source),
            (_, Object::Set(source)) => set.remove(fd, source),
        }
        .map_err(errno)
    }

    unsafe fn epoll_wait(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
    ) -> Result<c_int, Errno> {
        let mut n = 0;
        let waited =
            Self::set(set)?.wait_with(max as usize, Timeout::from_millis(timeout), &mut |event| {
                // SAFETY: room for `max` events by the caller's contract.
                unsafe {
                    events.add(n).write_unaligned(epoll_event {
                        events: event.events.bits(),
                        u64: event.data,
                    })
                };
                n += 1;
                true
            });
        waited.map(|n| n as c_int).map_err(errno)
    }

    unsafe fn epoll_pwait2(
        _: c_int,
        _: *mut epoll_event,
        _: c_int,
        _: *const timespec,
        _: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        Err(libc::ENOSYS)
    }

    fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
        let flags = CounterFlags::from_bits_truncate(flags as u32);
        Self::put(|engine| {
            Object::Counter(Description::new(engine, Counter::new(u64::from(initial), flags)))
        })
    }

    unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: valid by the caller's contract.
        Self::counter(fd)?
            .read_bytes(unsafe { std::slice::from_raw_parts_mut(buffer, len) })
            .map_err(errno)
    }

    unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: valid by the caller's contract.
        Self::counter(fd)?
            .write_bytes(unsafe { std::slice::from_raw_parts(buffer, len) })
            .map_err(errno)
    }

    fn close(_: c_int) -> Result<(), Errno> {
        Ok(())
    }

    fn dup(_: c_int) -> Result<c_int, Errno> {
        Err(libc::ENOSYS)
    }

    fn dup2(_: c_int, _: c_int) -> Result<c_int, Errno> {
        Err(libc::ENOSYS)
    }

    fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno> {
        Self::counter(fd)?.set_nonblocking(nonblocking);
        Ok(())
    }
}

impl World for Bare {
    const NAME: &'static str = "engine";
    const PIPES: bool = false;
    const CLOSES: bool = false;

    fn pipe() -> Result<(c_int, c_int), Errno> {
        Err(libc::ENOSYS)
    }

    fn end_round() {
        for object in &OBJECTS {
            let object = object.swap(ptr::null_mut(), Ordering::SeqCst);
            if !object.is_null() {
                // SAFETY: made by `put`, taken out by us, and no thread uses it between rounds.
                drop(unsafe { Box::from_raw(object) });
            }
        }
        if let Some((_, used)) = WORLD.lock().unwrap().as_mut() {
            used.clear();
        }
    }
}
