//! A set, and the calls of a program on it.

pub(crate) mod doorbell;
#[path = "../../src/set/first_listener.rs"]
pub(crate) mod first_listener;
#[path = "../../src/set/polls/mod.rs"]
pub(crate) mod polls;
#[path = "../../src/set/quiet.rs"]
pub(crate) mod quiet;
pub(crate) mod ring;
#[path = "../../src/set/state.rs"]
pub(crate) mod state;
#[path = "../../src/set/wait/mod.rs"]
pub(crate) mod wait;

use crate::kernel_half::KernelEpoll;
use crate::kernel_half::listeners::rotation::Rotation;
use crate::migrate;
use crate::rooms::kernel::KERNEL;
use crate::set::polls::Polls;
use crate::set::quiet::Quiet;
use crate::set::state::SetState;
use crate::set::wait::{Limit, Mask, Wait};
use crate::stats::Stat;
use crate::stats::count::SetPlace;
use crate::sys::sync::{AtomicI32, AtomicU32};
use crate::sys::{self, Errno};
use crate::table::lifecycle;
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLLIN, epoll_event};
use std::vec::Vec;
use wakeset::{Counter, Description, Engine, Event, EventPoll, Events, Timeout};

#[derive(Debug)]
pub(crate) struct FdSet {
    pub(crate) set: EventPoll,
    pub(crate) state: SetState,
    /// Nothing migrates here.
    pub(crate) migrated_watches: core::sync::atomic::AtomicU32,
    pub(crate) unsettled: core::sync::atomic::AtomicU32,
    pub(crate) doorbell: AtomicI32,
    /// Nobody takes a doorbell's number here.
    pub(crate) rings: core::sync::atomic::AtomicU32,
    pub(crate) rotation: Rotation,
    pub(crate) polls: Polls,
    pub(crate) round_robin: AtomicU32,
    general_waits: core::sync::atomic::AtomicU32,
    pub(crate) counted: SetPlace,
}

impl FdSet {
    pub(crate) fn new() -> Self {
        Self::of(&Engine::new())
    }

    pub(crate) fn of(engine: &Engine) -> Self {
        Self {
            set: EventPoll::new(engine).unwrap(),
            state: SetState::new(),
            migrated_watches: core::sync::atomic::AtomicU32::new(0),
            unsettled: core::sync::atomic::AtomicU32::new(0),
            doorbell: AtomicI32::new(-1),
            rings: core::sync::atomic::AtomicU32::new(0),
            rotation: Rotation::new(),
            polls: Polls::new(),
            round_robin: AtomicU32::new(0),
            general_waits: core::sync::atomic::AtomicU32::new(0),
            counted: SetPlace,
        }
    }

    pub(crate) fn fd(&self) -> c_int {
        0
    }

    pub(crate) fn has_several(&self) -> bool {
        false
    }

    pub(crate) fn migrate(&self, _: Stat) {
        unreachable!("a doorbell is there")
    }

    pub(crate) fn note_kernel_watch(&self) {
        if self.state.note_kernel_watch() {
            self.set.kick_all();
        }
    }

    /// epoll_ctl(2) as `set::kernel_watch` has it for a kernel descriptor.
    pub(crate) fn ctl(&self, op: c_int, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
        let asked = Event::new(Events::from_bits_retain(events), data);
        if let Some(result) = polls::epoll_ctl(self, op, fd, asked) {
            return result;
        }
        if op == EPOLL_CTL_ADD {
            self.state.note_not_only_polls();
        }
        if op == EPOLL_CTL_ADD && !self.state.has_kernel() {
            return self.add_first(fd, events, data);
        }
        let event = epoll_event { events, u64: data };
        sys::epoll_ctl(self.fd(), op, fd, &raw const event)?;
        if self.polls.are_active() && !polls::are_for_me(self) {
            polls::give_up(self);
        }
        Ok(())
    }

    /// As `add_first` there. No set is around this one.
    fn add_first(&self, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
        let _migrating = migrate::hold_migrations();
        if !self.set.is_empty() {
            assert_eq!(doorbell::install_held(self), Ok(true));
        }
        let event = epoll_event { events, u64: data };
        sys::epoll_ctl(self.fd(), EPOLL_CTL_ADD, fd, &raw const event)?;
        self.note_kernel_watch();
        Ok(())
    }

    /// epoll_ctl(2) as `set::epoll_ctl` has it for an addition of an in-process object.
    pub(crate) fn add(&self, fd: c_int, counter: &Description<Counter>, events: u32, data: u64) {
        let install_if_mixed = || {
            if self.state.has_kernel() {
                assert_eq!(doorbell::install(self), Ok(true));
            }
        };
        install_if_mixed();
        let asked = Event::new(Events::from_bits_retain(events), data);
        self.set.add(fd, counter, asked).unwrap();
        install_if_mixed();
    }

    /// epoll_ctl(2) as `set::kernel_watch` has it for a listener of a set with a kernel half, in
    /// this place among the listeners.
    pub(crate) fn ctl_of_listener(&self, op: c_int, fd: c_int, place: usize, data: u64) {
        let event = epoll_event { events: EPOLLIN as u32, u64: data };
        if self.rotation.epoll_ctl(self, op, fd, event, place).unwrap() {
            first_listener::tell_sleepers(self);
        }
    }

    /// What `set::fd_set` does before the number is closed, as far as the kernel half goes.
    pub(crate) fn lose_number(&self) {
        self.state.close();
        self.set.between_scans(|| {});
        self.rotation.end_alarm(self);
        doorbell::remove(self);
    }

    /// epoll_wait(2) without a limit, as the interposer has it: a quiet wait, if the set is quiet.
    /// Where a sleep that has a limit finds nothing, `None`.
    pub(crate) fn wait_quietly(&self, maxevents: usize) -> Option<Vec<u64>> {
        let Some(quiet) = Quiet::of(self, -1, None) else { return self.try_wait(maxevents) };
        let mut events = std::vec![epoll_event { events: 0, u64: 0 }; maxevents];
        let (place, capacity) = (events.as_mut_ptr(), maxevents as c_int);
        let call = |within| {
            sys::epoll_pwait(0, place, capacity, within, ptr::null(), 0).unwrap_or_else(|error| {
                // SAFETY: this thread's errno.
                unsafe { *libc::__errno_location() = error.into_raw() };
                -1
            })
        };
        // SAFETY: it writes what it returns.
        match unsafe { quiet.wait(self, place, capacity, call) } {
            Some(found) => data_of(events, found),
            None => self.try_wait(maxevents),
        }
    }

    /// The same, as a general wait.
    pub(crate) fn try_wait(&self, maxevents: usize) -> Option<Vec<u64>> {
        let mut events = std::vec![epoll_event { events: 0, u64: 0 }; maxevents];
        let (place, limit) = (events.as_mut_ptr(), Limit::Milliseconds(-1));
        let wait = Wait::new(self, place, maxevents as c_int, limit, Timeout::Never);
        let found = wait.run().unwrap_or(-1);
        data_of(events, found)
    }

    /// epoll_wait(2) for up to `maxevents` events; returns the data of each.
    pub(crate) fn wait(&self, maxevents: usize, timeout: Timeout) -> Vec<u64> {
        let mut events = std::vec![epoll_event { events: 0, u64: 0 }; maxevents];
        let limit = Limit::Milliseconds(if timeout == Timeout::Now { 0 } else { -1 });
        let wait = Wait {
            mask: Mask { set: ptr::null(), bytes: sys::SIGSET_BYTES },
            ..Wait::new(self, events.as_mut_ptr(), maxevents as c_int, limit, timeout)
        };
        let n = wait.run().unwrap() as usize;
        events.truncate(n);
        events.iter().map(|event| event.u64).collect()
    }
}

impl KernelEpoll for FdSet {
    fn number(&self) -> c_int {
        self.fd()
    }

    fn is_in_kernel(&self) -> bool {
        self.state.is_in_kernel()
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }

    fn admit_baton(&self) -> u64 {
        unreachable!("nobody declines")
    }

    fn admit_alarm(&self) -> u64 {
        doorbell::admit(self);
        doorbell::alarm_cookie(self)
    }
}

fn data_of(events: Vec<epoll_event>, found: c_int) -> Option<Vec<u64>> {
    (found >= 0).then(|| events.iter().take(found as usize).map(|event| event.u64).collect())
}

/// close(2) of a number.
pub(crate) fn close(fd: c_int) {
    lifecycle::before_close(fd);
    KERNEL.close(fd);
}
