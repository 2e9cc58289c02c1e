//! Who answers the calls. All sides take them in the form of syscall(2): a number and up to six arguments.

mod api;
mod engine;
mod interposed;
mod kernel;
mod library;
mod wrong;

pub use api::Api;
pub use engine::Rust;
pub use interposed::{Interposed, is_preloaded};
pub use kernel::Kernel;
pub use library::Library;
pub use syscalls::Sysno;
pub use wakeset_fd::Command;
pub use wrong::{Bug, Wrong};

/// Where a worker runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel, by raw system calls.
    Kernel,
    /// The functions of the crate `wakeset-fd`.
    Api,
    /// The functions of the C library.
    Library,
    /// libc's functions, which the preload library has replaced.
    Interposed,
    /// The crate `wakeset` alone, without any descriptors.
    Engine,
    /// The same with its spinlocked ready list.
    EngineSpinLock,
    /// The same with its read-write-locked ready list.
    EngineRwLock,
}

impl Side {
    /// All of them, with the names they have on the command line.
    pub const NAMES: [(&str, Self); 7] = [
        ("kernel", Self::Kernel),
        ("api", Self::Api),
        ("library", Self::Library),
        ("interposed", Self::Interposed),
        ("engine", Self::Engine),
        ("engine-spinlock", Self::EngineSpinLock),
        ("engine-rwlock", Self::EngineRwLock),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, side)| *side == self).map_or("", |(name, _)| name)
    }

    /// The side of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, side)| *side)
    }
}

/// A side that takes calls.
pub trait World {
    /// Makes a call; the result or a negative errno.
    ///
    /// # Safety
    /// The arguments are as that call wants them. Addresses that cannot be accessed are fine.
    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize;

    /// Several epoll_ctl(2) on one set, in order; with `stop` those behind an error are ECANCELED.
    fn batch(&mut self, set: i32, stop: bool, commands: &mut [Command]) {
        let mut stopped = false;
        for command in commands {
            let event = &raw const command.event;
            let arguments = [set as usize, command.op as usize, command.fd as usize, event as usize, 0, 0];
            // SAFETY: the event is there.
            let single = |world: &mut Self| unsafe { world.call(Sysno::epoll_ctl, arguments) } as i32;
            command.result = if stopped { -libc::ECANCELED } else { single(self) };
            stopped |= stop && command.result != 0;
        }
    }

    /// Gives a set an event ring, and `polls` if so wished, where the side has such things.
    fn ring(&mut self, set: i32, entries: usize, polls: bool) {
        let _ = (set, entries, polls);
    }

    /// A program begins. `by_number`: by way of syscall(2), if there is a choice.
    fn begin(&mut self, by_number: bool) {
        let _ = by_number;
    }

    /// A child comes and goes.
    fn fork(&mut self) {}

    /// Returns when the timer at this number, which has been set to a time that has passed, has expired. The kernel's needs an interrupt for it,
    /// which may be late; in process there is nothing to wait for, and the kernel timer has not been set.
    fn until_expired(&mut self, number: libc::c_int) {
        let is_due = |text: String| text.contains("settime flags: 01") && text.contains("ticks: 0\n");
        while std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).is_ok_and(is_due) {}
    }
}
