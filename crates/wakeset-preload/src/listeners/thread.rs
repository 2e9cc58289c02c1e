//! What a thread keeps for its waits on listeners: its private set, and what it has learned.

use super::ending;
use super::habits::{ANOTHERS, STAND_BACK, STAND_BACK_EVERY, raise};
use super::told;
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::time::Duration;
use libc::epoll_event;
use syscalls::{Sysno, syscall};
use wakeset::{Deadline, Timeout, mutated};
use wakeset_fd::fork;
use wakeset_fd::listeners::baton::{self, Notes, Rounds, Visit};
use wakeset_fd::listeners::{
    self, Fired, Numbers, Obstacle, Order, RescueClock, Share, Sleeper, Wanted, held,
};
use wakeset_fd::signal_guard::SignalGuard;

/// What a thread keeps for its waits on listeners.
pub(super) struct Waiter {
    /// The index of its set among the private sets, and the process in which it is that. The
    /// sleeper is there too.
    pub(super) index: Cell<Option<usize>>,
    pub(super) process: Cell<u32>,
    /// The listener it has accepted from since it last waited in its private set, or was told of
    /// one by another set; -1 for none.
    pub(super) accepted: Cell<c_int>,
    /// The listener that a wait in its private set has reported since it last called accept(2), -1
    /// for none.
    pub(super) reported: Cell<c_int>,
    /// The listener for which a wake of this thread was counted last, until it accepts from that or
    /// finds nothing; -1 for none.
    pub(super) woken: Cell<c_int>,
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
    pub(super) looked: RescueClock,
    /// As who it holds what it accepts: itself, or the set that has told it last.
    pub(super) holder: Cell<u8>,
    /// Its part, of what its own waits tell it of.
    pub(super) share: Share,
    /// What it has done when the baton woke it.
    pub(super) rounds: Rounds,
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    pub(super) static WAITER: Waiter = const { Waiter {
        index: Cell::new(None),
        process: Cell::new(0),
        accepted: Cell::new(-1),
        reported: Cell::new(-1),
        woken: Cell::new(-1),
        emptied: Cell::new(0),
        overtaken: Cell::new(0),
        came_back: Cell::new(false),
        anothers: Cell::new(0),
        stood_back: Cell::new(Duration::ZERO),
        unblocking: Cell::new((-1, 0)),
        looked: RescueClock::never(),
        holder: Cell::new(held::NOBODY),
        share: Share::new(),
        rounds: Rounds::none(),
    } };
}

/// Whether nobody but this thread waits for a listener, as far as is known. If another one does, it
/// is not the only one either from now on.
#[inline]
pub(super) fn is_only_waiter(fd: c_int) -> bool {
    // An address of the thread's own.
    let own = || WAITER.with(|waiter| core::ptr::from_ref(waiter).addr());
    listeners::any_alone() && listeners::is_only_waiter(fd, own())
}

/// The order of a wait of this thread's that begins now.
pub(super) fn order() -> Option<Order> {
    WAITER.with(|waiter| {
        if listeners::counts_held() {
            waiter.holder.set(waiter.share.holder());
        }
        listeners::order_of(waiter.share.counted_as())
    })
}

impl Waiter {
    /// What this thread knows of its set; `None` before it has one in this process. Whoever uses it
    /// holds a guard, which keeps this thread's handlers out, and no other thread touches it.
    fn sleeper(&self) -> Option<NonNull<Sleeper>> {
        let index = self.index.get().filter(|_| self.process.get() == wakeset::process_id())?;
        listeners::sleeper(index)
    }

    /// This thread holds a connection now.
    pub(super) fn hold(&self, connection: c_int) {
        if !listeners::counts_held() {
            return;
        }
        if self.holder.get() == held::NOBODY {
            self.holder.set(self.share.holder());
        }
        held::note_accepted(connection, self.holder.get());
    }

    /// What the set that was prepared for the last wait has for this one, if it is for the same
    /// descriptors: a listener's number, or -1 for something else.
    pub(super) fn has_something(&self, wanted: &[Wanted], order: Order) -> Option<c_int> {
        let _guard = SignalGuard::enter();
        let set = self.index.get().and_then(listeners::private_set)?;
        // SAFETY: this thread's own, and the guard keeps its handlers out.
        let sleeper = unsafe { self.sleeper()?.as_ref() };
        if set != sleeper.set() || !sleeper.should_check_first(wanted, order) {
            return None;
        }
        let mut events = [epoll_event { events: 0, u64: 0 }];
        // SAFETY: memory for one event.
        let found =
            unsafe { syscall!(Sysno::epoll_pwait, sleeper.set(), events.as_mut_ptr(), 1, 0, 0, 8) };
        let [event] = events;
        let number = if Wanted::is_listener(event.u64) { event.u64 as c_int } else { -1 };
        found.is_ok_and(|found| found > 0).then_some(number)
    }

    /// Stands back, if there is cause to: for a thread that has found a connection that it was not
    /// woken for. Returns whether `found` goes on finding it.
    pub(super) fn stand_back(&self, found: &mut dyn FnMut() -> bool) -> bool {
        self.anothers.get() < ANOTHERS || self.stand_back_for(found)
    }

    #[cold]
    fn stand_back_for(&self, found: &mut dyn FnMut() -> bool) -> bool {
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
        // Before the guard: `make` does nothing inside of one.
        if let Some(first) = wanted.iter().find(|wanted| wanted.listener) {
            baton::make(first.fd);
        }
        let _guard = SignalGuard::enter();
        self.accepted.set(-1);
        let process = wakeset::process_id();
        if self.process.get() != process {
            if !fork::may_make_objects() {
                return None;
            }
            self.process.set(process);
            self.index.set(None);
        }
        let mut sleeper = match self.index.get().and_then(listeners::private_set) {
            Some(set) => {
                // SAFETY: as in `has_something`.
                let sleeper = unsafe { self.sleeper()?.as_mut() };
                if prepared && set == sleeper.set() {
                    return Some(set);
                }
                sleeper.renumber(set);
                sleeper
            }
            None => self.renew()?,
        };
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
            sleeper = self.renew()?;
            result = sleeper.prepare(wanted, order, Numbers::Unknown);
        }
        if let Err(Obstacle::Refused(_)) = result {
            // The numbers do not stand for what was remembered.
            wanted.iter().for_each(|wanted| listeners::forget(wanted.fd));
        }
        result.ok()?;
        let baton = baton::number();
        if sleeper.baton() != baton || self.rounds.is_due() {
            self.rounds.note_placed();
            sleeper.watch_baton(baton);
        }
        Some(sleeper.set())
    }

    /// Makes the private set anew. The caller holds a guard, and no other reference to the sleeper.
    #[allow(clippy::mut_from_ref, reason = "it points out of the waiter, to what its thread owns")]
    fn renew(&self) -> Option<&mut Sleeper> {
        if !fork::may_make_objects() {
            return None;
        }
        let index = self.index.get().or_else(listeners::claim_index)?;
        self.index.set(Some(index));
        ending::hear_of_it();
        // SAFETY: as in `has_something`.
        let sleeper = unsafe { self.sleeper()?.as_mut() };
        listeners::renew_private_set(index, sleeper)?;
        Some(sleeper)
    }

    /// The next wait begins with a new set.
    pub(super) fn forget_watches(&self) {
        let _guard = SignalGuard::enter();
        let _ = self.renew();
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

    /// What has woken the thread in a wait that a handler or a cancellation has ended counts as
    /// told to it.
    fn note_unseen(&self) {
        let is_own = self.process.get() == wakeset::process_id();
        let set = self.index.get().filter(|_| is_own).and_then(listeners::private_set);
        let Some(set) = set else { return };
        let mut events = [epoll_event { events: 0, u64: 0 }; 8];
        // SAFETY: memory for as many events.
        let found = unsafe { syscall!(Sysno::epoll_pwait, set, events.as_mut_ptr(), 8, 0, 0, 8) };
        let found = events.iter().take(found.unwrap_or(0));
        let listeners = found.filter(|event| Wanted::is_listener(event.u64));
        listeners.for_each(|event| told::note_unseen(event.u64 as c_int));
    }

    /// The thread is about to end: gives up the set and its entry. A handler may end it when the
    /// baton has woken it, and before it has passed that on. So it passes on what others have
    /// declined in any case, once its own set cannot get it any more.
    pub(super) fn end(&self) {
        let guard = SignalGuard::enter();
        self.note_unseen();
        let is_own = self.process.get() == wakeset::process_id();
        let has_set = self.index.take().is_some();
        if is_own {
            listeners::release_private_set();
        }
        drop(guard);
        if is_own && has_set && baton::has_notes() {
            baton::pass();
        }
    }

    /// Sorts out what events of the private set mean.
    pub(super) fn sort(&self, events: &[epoll_event]) -> Fired {
        let _guard = SignalGuard::enter();
        let Some(sleeper) = self.sleeper() else {
            // A handler has found that the set is gone.
            return Fired { stale: !events.is_empty(), ..Fired::default() };
        };
        // SAFETY: as in `has_something`.
        unsafe { sleeper.as_ref() }.sort(events)
    }

    /// The notes of the listeners that its set watches.
    pub(super) fn notes(&self) -> Notes {
        let _guard = SignalGuard::enter();
        // SAFETY: as in `has_something`.
        let sleeper = self.sleeper().map(|sleeper| unsafe { sleeper.as_ref() });
        let inodes = sleeper.into_iter().flat_map(Sleeper::inodes);
        inodes.fold(0, |notes, inode| notes | baton::note_of(inode))
    }

    /// The baton has woken this thread, which looks at its listeners next, unless it has done so in
    /// this round.
    pub(super) fn visit(&self) -> Option<Visit> {
        let _guard = SignalGuard::enter();
        self.rounds.visit()
    }

    /// What the last wake was for is accepted, or gone; whether that was for this listener.
    pub(super) fn ends_wake(&self, fd: c_int) -> bool {
        let is_its = self.woken.get() == fd;
        if is_its {
            self.woken.set(-1);
        }
        is_its
    }

    /// The program is about to be told of a connection on this listener; `known`: the private set
    /// has reported it. It is level-triggered, and goes on reporting it until all are gone.
    pub(super) fn note_report(&self, fd: c_int, known: bool) {
        let _guard = SignalGuard::enter();
        self.accepted.set(-1);
        self.reported.set(fd);
        self.share.note_awake(true);
        told::note(fd, false);
        if let Some(mut sleeper) = self.sleeper() {
            // SAFETY: as in `has_something`.
            let sleeper = unsafe { sleeper.as_mut() };
            sleeper.note_report(fd);
            if !known && !mutated!("found_stays_unknown") {
                sleeper.note_unknown(fd);
            }
        }
    }
}
