//! The sides that make the calls of a program. Every side takes a call in the form of syscall(2): a
//! number and up to six arguments.
//!
//! | side | what makes the calls |
//! |---|---|
//! | [`Kernel`] | the running kernel |
//! | [`Api`] | the functions of the crate `wakeset-fd` |
//! | [`Library`] | the functions of the C library |
//! | [`Interposed`] | libc's functions and syscall(2), in a process with the preload library |
//! | [`BareEngine`] | the crate `wakeset` alone, with each of its ready lists |
//! | [`Roads`] | libc's functions by every road that leads to them, with other preloads or without |
//! | [`Wrong`] | any of them with a bug put in front |

mod api;
mod bare_engine;
mod faults;
mod interposed;
mod kernel;
mod libc_call;
mod library;
mod roads;
mod wrong;

pub use api::Api;
pub use bare_engine::BareEngine;
pub use interposed::{Interposed, is_preloaded};
pub use kernel::Kernel;
pub use library::Library;
pub use roads::{FOLDER, Road, Roads};
pub use syscalls::Sysno;
pub use wakeset_fd::Command;
pub use wrong::{Bug, Wrong};

/// The side on which a worker runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel, by raw system calls.
    Kernel,
    /// The functions of the crate `wakeset-fd`.
    Api,
    /// The functions of the C library.
    Library,
    /// libc's functions as the preload library has replaced them.
    Interposed,
    /// The crate `wakeset` alone, without descriptors.
    Engine,
    /// The same, with the ready list under a spinlock.
    EngineSpinLock,
    /// The same, with the ready list under a read-write lock.
    EngineRwLock,
    /// libc's functions by every road, in a process with the preload library.
    Roads,
    /// The same with a preload before it, which wraps every call.
    RoadsBefore,
    /// The same with a preload behind it, which wraps a call that it does not answer.
    RoadsBehind,
    /// The same with a preload behind it that wraps every call.
    RoadsBeneath,
    /// The same with both preloads, and without the preload library.
    RoadsPlain,
    /// libc's functions by every road and the system call instruction, in a process with the
    /// preload library, which catches that.
    RoadsInstruction,
}

impl Side {
    /// All of them, with the names they have on the command line.
    pub const NAMES: [(&str, Self); 13] = [
        ("kernel", Self::Kernel),
        ("api", Self::Api),
        ("library", Self::Library),
        ("interposed", Self::Interposed),
        ("engine", Self::Engine),
        ("engine-spinlock", Self::EngineSpinLock),
        ("engine-rwlock", Self::EngineRwLock),
        ("roads", Self::Roads),
        ("roads-before", Self::RoadsBefore),
        ("roads-behind", Self::RoadsBehind),
        ("roads-beneath", Self::RoadsBeneath),
        ("roads-plain", Self::RoadsPlain),
        ("roads-instruction", Self::RoadsInstruction),
    ];

    /// Those that take every road.
    pub const ROADS: [Self; 6] = [
        Self::Roads,
        Self::RoadsBefore,
        Self::RoadsBehind,
        Self::RoadsBeneath,
        Self::RoadsPlain,
        Self::RoadsInstruction,
    ];

    /// Whether it is the engine alone.
    pub fn is_engine(self) -> bool {
        matches!(self, Self::Engine | Self::EngineSpinLock | Self::EngineRwLock)
    }

    /// Whether its programs take every road to libc.
    pub fn takes_roads(self) -> bool {
        Self::ROADS.contains(&self)
    }

    /// Whether this build has it: the engine's locked ready lists take the feature
    /// `bench-ready-lists`.
    pub fn is_available(self) -> bool {
        match self {
            Self::EngineSpinLock => wakeset::ReadyList::Spinlock.is_available(),
            Self::EngineRwLock => wakeset::ReadyList::Rwlock.is_available(),
            _ => true,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, side)| *side == self).map_or("", |(name, _)| name)
    }

    /// The side of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, side)| *side)
    }
}

/// write(2) of these bytes, by any thread: its result, or a negative errno.
pub type Write = Box<dyn Fn(libc::c_int, &[u8]) -> isize + Send>;

/// A side that takes calls.
pub trait World {
    /// Makes a call, and returns its result or a negative errno.
    ///
    /// # Safety
    /// The arguments are as that call wants them; addresses may be inaccessible.
    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize;

    /// Makes several epoll_ctl(2) on one set, in order. With `stop`, those after a failed one are
    /// not carried out and get ECANCELED.
    fn batch(&mut self, set: i32, stop: bool, commands: &mut [Command]) {
        let mut stopped = false;
        for command in commands {
            let event = &raw const command.event;
            let arguments =
                [set as usize, command.op as usize, command.fd as usize, event as usize, 0, 0];
            // SAFETY: the event is there.
            let single =
                |world: &mut Self| unsafe { world.call(Sysno::epoll_ctl, arguments) } as i32;
            command.result = if stopped { -libc::ECANCELED } else { single(self) };
            stopped |= stop && command.result != 0;
        }
    }

    /// Gives a set an event ring, on the sides that have rings; with `polls`, an io_uring watches
    /// the set's sockets.
    fn ring(&mut self, set: i32, entries: usize, polls: bool) {
        let _ = (set, entries, polls);
    }

    /// write(2) for a second thread, on the sides that have streams: libc's function, where the
    /// side is not something else.
    fn write(&self) -> Option<Write> {
        Some(Box::new(|number, bytes| {
            // SAFETY: the bytes are there.
            libc_call::size(unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) })
        }))
    }

    /// A program begins. `by_number`: its calls are made through syscall(2), if there is a choice.
    fn begin(&mut self, by_number: bool) {
        let _ = by_number;
    }

    /// The next calls are made by this road, on the sides that have roads.
    fn take(&mut self, road: Road) {
        let _ = road;
    }

    /// Opens a plugin in a name space of its own, on the sides that have roads. Every object is
    /// the kernel's from then on.
    fn open_name_space(&mut self) {}

    /// From now on all roads are taken, on a side that has kept to some of them until then. No
    /// program runs in the process meanwhile.
    fn end_quiet(&mut self) {}

    /// What has gone wrong with the side itself, if anything has. No program runs in the process
    /// meanwhile.
    fn complaint(&mut self) -> Option<&'static str> {
        None
    }

    /// Forks a child that ends at once, and waits for it.
    fn fork(&mut self) {}

    /// Waits until the timer at this number, which has been set to a time that has passed, has
    /// expired. The kernel's timer needs an interrupt for that, which may be late. A timer in
    /// process has expired at once, and its kernel timer is not set.
    fn until_expired(&mut self, number: libc::c_int) {
        let is_due =
            |text: String| text.contains("settime flags: 01") && text.contains("ticks: 0\n");
        while std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).is_ok_and(is_due) {}
    }
}
