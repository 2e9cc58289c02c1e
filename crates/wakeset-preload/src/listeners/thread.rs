//! What a thread keeps for its waits on listeners: its private set, and what it has learned.

use super::habits::{ANOTHERS, STAND_BACK, STAND_BACK_EVERY, raise};
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_int;
use core::time::Duration;
use libc::epoll_event;
use syscalls::{Sysno, syscall};
use wakeset::{Deadline, Timeout};
use wakeset_fd::fork;
use wakeset_fd::listeners::{self, Fired, LastLook, Numbers, Obstacle, Order, Sleeper, Wanted};
use wakeset_fd::signal_guard::SignalGuard;

/// What a thread keeps for its waits on listeners.
pub(super) struct Waiter {
    pub(super) sleeper: UnsafeCell<Sleeper>,
    /// The index of its set among the private sets, and the process in which it is that.
    pub(super) index: Cell<Option<usize>>,
    pub(super) process: Cell<u32>,
    /// The listener it has accepted from since it last waited, -1 for none.
    pub(super) accepted: Cell<c_int>,
    /// The listener a wait has reported since it last called accept(2), `SOME` for a set's, -1 for
    /// none.
    pub(super) reported: Cell<c_int>,
    /// How sure it is that there is nothing more then: see [`SURE`](super::habits::SURE).
    pub(super) emptied: Cell<u8>,
    /// How sure it is that what a wait reported is gone: see [`OFTEN`](super::habits::OFTEN).
    pub(super) overtaken: Cell<u8>,
    /// Nothing has woken it since it last accepted: what it finds was there when it came back.
    pub(super) came_back: Cell<bool>,
    /// How sure it is that such a connection is another's: see [`ANOTHERS`].
    pub(super) anothers: Cell<u8>,
    /// When it last stood back, since the machine's start.
    pub(super) stood_back: Cell<Duration>,
    /// A listener that does not block, and in which version of flags and listeners that was asked.
    pub(super) unblocking: Cell<(c_int, u32)>,
    /// When it last looked at what it waits for itself.
    pub(super) looked: LastLook,
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    pub(super) static WAITER: Waiter = const { Waiter {
        sleeper: UnsafeCell::new(Sleeper::new()),
        index: Cell::new(None),
        process: Cell::new(0),
        accepted: Cell::new(-1),
        reported: Cell::new(-1),
        emptied: Cell::new(0),
        overtaken: Cell::new(0),
        came_back: Cell::new(false),
        anothers: Cell::new(0),
        stood_back: Cell::new(Duration::ZERO),
        unblocking: Cell::new((-1, 0)),
        looked: LastLook::never(),
    } };
}

/// Some listener of a set, in [`Waiter::reported`].
pub(super) const SOME: c_int = -2;

impl Waiter {
    /// What the set that was prepared for the last wait has for this one, if it is for the same
    /// descriptors: whether that is a listener.
    pub(super) fn has_something(&self, wanted: &[Wanted], order: Order) -> Option<bool> {
        let _guard = SignalGuard::enter();
        // SAFETY: this thread's own, and the guard keeps its handlers out.
        let sleeper = unsafe { &*self.sleeper.get() };
        let set = self.index.get().and_then(listeners::private_set);
        if self.process.get() != wakeset::process_id()
            || set != Some(sleeper.set())
            || !sleeper.should_check_first(wanted, order)
        {
            return None;
        }
        let mut events = [epoll_event { events: 0, u64: 0 }];
        // SAFETY: memory for one event.
        let found =
            unsafe { syscall!(Sysno::epoll_pwait, sleeper.set(), events.as_mut_ptr(), 1, 0, 0, 8) };
        let [event] = events;
        found.is_ok_and(|found| found > 0).then_some(Wanted::is_listener(event.u64))
    }

    /// Stands back, if there is cause to: for a thread that has found a connection that it was not
    /// woken for. Returns whether `found` goes on finding it.
    pub(super) fn stand_back(&self, found: &mut dyn FnMut() -> bool) -> bool {
        if self.anothers.get() < ANOTHERS {
            return true;
        }
        let now = Deadline::now().since_boot();
        if now.saturating_sub(self.stood_back.get()) < STAND_BACK_EVERY {
            return true;
        }
        self.stood_back.set(now);
        let deadline = Deadline::of(Timeout::After(STAND_BACK));
        while deadline.is_some_and(|deadline| !deadline.remaining().is_zero()) {
            (0..16).for_each(|_| core::hint::spin_loop());
            if !found() {
                raise(&self.anothers, ANOTHERS);
                return false;
            }
        }
        true
    }

    /// Has the private set watch these, and returns its number; `None` if it cannot.
    pub(super) fn prepare(&self, wanted: &[Wanted], order: Order, prepared: bool) -> Option<c_int> {
        let _guard = SignalGuard::enter();
        // SAFETY: as in `has_something`.
        let sleeper = unsafe { &mut *self.sleeper.get() };
        self.accepted.set(-1);
        let process = wakeset::process_id();
        if self.process.get() != process {
            if !fork::may_make_objects() {
                return None;
            }
            self.process.set(process);
            self.index.set(None);
        }
        let known = self.index.get().and_then(listeners::private_set);
        match known {
            Some(set) if prepared && set == sleeper.set() => return Some(set),
            Some(set) => sleeper.renumber(set),
            None => self.renew(sleeper)?,
        }
        // Before it is watched, so that a thread that blocks in accept(2) afterwards knows.
        let new =
            wanted.iter().filter(|wanted| wanted.listener && !sleeper.has_listener(wanted.fd));
        new.for_each(|wanted| listeners::note_exclusive(wanted.fd));
        let mut result = sleeper.prepare(wanted, order, Numbers::Unknown);
        if result == Err(Obstacle::Stale) {
            wanted
                .iter()
                .filter(|wanted| wanted.listener)
                .for_each(|wanted| listeners::note_exclusive(wanted.fd));
            self.renew(sleeper)?;
            result = sleeper.prepare(wanted, order, Numbers::Unknown);
        }
        if let Err(Obstacle::Refused(_)) = result {
            // The numbers do not stand for what was remembered.
            wanted.iter().for_each(|wanted| listeners::forget(wanted.fd));
        }
        result.ok().map(|()| sleeper.set())
    }

    /// Makes the private set anew.
    pub(super) fn renew(&self, sleeper: &mut Sleeper) -> Option<()> {
        if !fork::may_make_objects() {
            return None;
        }
        let index = self.index.get().or_else(listeners::claim_index)?;
        self.index.set(Some(index));
        listeners::renew_private_set(index, sleeper)
    }

    /// The next wait begins with a new set.
    pub(super) fn forget_watches(&self) {
        let _guard = SignalGuard::enter();
        // SAFETY: as in `has_something`.
        let _ = self.renew(unsafe { &mut *self.sleeper.get() });
    }

    /// The set's number is not its own any more.
    pub(super) fn forget(&self) {
        self.index.set(None);
    }

    /// Gives up the set, so that the program has its number; whether there was one.
    pub(super) fn give_up_set(&self) -> bool {
        let index = self.index.get().filter(|_| self.process.get() == wakeset::process_id());
        index.is_some_and(listeners::close_private_set)
    }

    /// Sorts out what events of the private set mean.
    pub(super) fn sort(&self, events: &[epoll_event]) -> Fired {
        let _guard = SignalGuard::enter();
        // SAFETY: as in `has_something`.
        unsafe { &*self.sleeper.get() }.sort(events)
    }

    /// The program is about to be told of a connection on this listener.
    pub(super) fn note_report(&self, fd: c_int) {
        let _guard = SignalGuard::enter();
        self.accepted.set(-1);
        self.reported.set(fd);
        // SAFETY: as in `has_something`.
        unsafe { &mut *self.sleeper.get() }.note_report(fd);
    }
}
