//! Listeners in a set's kernel half: watched with `EPOLLEXCLUSIVE`, so that a connection wakes one of the sets that watch it, and in the
//! order chosen ([`listeners`]).
//!
//! What the program sees stays a plain watch. `EPOLL_CTL_MOD`, which the kernel refuses for exclusive ones, is removal and addition. A
//! watch goes to the end of the listener's queue in the same way, before the first sleep after it was reported. An addition polls the
//! listener, so nothing that comes in between is lost. One that fails for lack of memory is made again before each sleep; until it succeeds sleeps
//! are short, and what the listener has is reported without a watch.
//!
//! Only sets that nobody shares are treated like this: [`make_plain`] gives them back before a fork, an exec, a duplicate. What the program has
//! asked to be exclusive takes its turn too, and stays exclusive.
//!
//! | left as it is | why |
//! |---|---|
//! | `EPOLLONESHOT`, `EPOLLRDHUP`, `EPOLLPRI`, `EPOLLOUT` and others | an exclusive watch cannot have them |
//! | more than [`MOST`] listeners in a set | no room for notes |
//! | one listener under two numbers, and what is added later | both are reported, and an exclusive watch would be passed over for the other |
//!
//! An edge-triggered watch that was reported keeps its place until the program has emptied the listener: adding it again would report the
//! same connection twice.

use crate::escape;
use crate::listeners::{self, LastLook, ListenerStat, Order};
use crate::section::SectionLock;
use crate::set::FdSet;
use crate::sys::{self, Errno};
use crate::user;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, epoll_event};
use wakeset::{Event, Events};

/// Listeners in one set that take their turn.
const MOST: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Note {
    /// The listener, -1 for no note.
    fd: c_int,
    /// What the watch has in the kernel, without `EPOLLEXCLUSIVE`.
    events: u32,
    data: u64,
    /// The program asked for `EPOLLEXCLUSIVE` itself.
    asked: bool,
    /// An event was reported since the watch was added, or, of edges, since the listener was seen to be empty.
    due: bool,
    /// Reports since the watch was added.
    reports: u32,
    /// The kernel had no memory to add it again.
    missing: bool,
    /// The listener's.
    inode: Option<u64>,
}

const NO_NOTE: Note =
    Note { fd: -1, events: 0, data: 0, asked: false, due: false, reports: 0, missing: false, inode: None };

impl Note {
    fn is_edge(&self) -> bool {
        self.events & libc::EPOLLET as u32 != 0
    }

    fn add(&mut self, set: c_int, exclusive: bool) -> Result<(), Errno> {
        let extra = if exclusive { EPOLLEXCLUSIVE as u32 } else { 0 };
        let event = epoll_event { events: self.events | extra, u64: self.data };
        let result = sys::epoll_ctl(set, EPOLL_CTL_ADD, self.fd, &raw const event);
        self.missing = matches!(result, Err(Errno::ENOMEM | Errno::ENOSPC));
        result
    }

    /// Removes the watch; `false` if this number no longer has one.
    fn remove(&self, set: c_int) -> bool {
        self.missing || sys::epoll_ctl(set, EPOLL_CTL_DEL, self.fd, ptr::null()).is_ok()
    }

    /// Removes the watch and adds it at the end of the queue.
    fn renew(&mut self, set: c_int) {
        let removed = self.remove(set);
        self.due = false;
        self.reports = 0;
        if !removed || matches!(self.add(set, true), Err(error) if !matches!(error, Errno::ENOMEM | Errno::ENOSPC)) {
            *self = NO_NOTE;
        }
    }

    /// Makes the watch what the program asked for, and forgets it.
    fn make_plain(&mut self, set: &FdSet) {
        let closed = set.closed.load(Ordering::SeqCst);
        if (!self.asked || self.missing) && !closed && self.remove(set.fd()) {
            let asked = self.asked;
            // A moment later there may be memory.
            let added = (0..100).any(|_| {
                let result = self.add(set.fd(), asked);
                if self.missing {
                    sys::sched_yield();
                }
                !self.missing && result != Err(Errno::EINTR)
            });
            if !added {
                escape::complain(set.fd(), self.fd, Errno::ENOMEM);
            }
        }
        *self = NO_NOTE;
    }
}

/// The listeners of one set.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Whether there may be notes. Changed with the lock held.
    any: AtomicBool,
    /// Innermost: behind the moves lock.
    lock: SectionLock,
    notes: UnsafeCell<[Note; MOST]>,
    /// One listener is, or was, watched under two numbers: no more take their turn. Changed with the lock held.
    twins: AtomicBool,
    /// When a wait last looked at the listeners itself.
    pub(crate) looked: LastLook,
}

// SAFETY: the notes are only touched with the lock held, in `with`.
unsafe impl Sync for Turns {}

impl Turns {
    pub(crate) const fn new() -> Self {
        let (lock, notes) = (SectionLock::new(), UnsafeCell::new([NO_NOTE; MOST]));
        let (any, twins) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { any, lock, notes, twins, looked: LastLook::never() }
    }

    /// Whether sleeps in this set are about listeners.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn with<T>(&self, f: impl FnOnce(&mut [Note; MOST]) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let notes = unsafe { &mut *self.notes.get() };
        let result = f(notes);
        self.any.store(notes.iter().any(|note| note.fd >= 0), Ordering::Relaxed);
        self.lock.unlock();
        result
    }

    /// Forgets all: the set is new, or its number is gone.
    pub(crate) fn clear(&self) {
        self.twins.store(false, Ordering::Relaxed);
        if self.any() {
            self.with(|notes| *notes = [NO_NOTE; MOST]);
        }
    }

    /// Notes what a wait has reported, after a sleep or without one.
    pub(crate) fn note_reports(&self, events: *const epoll_event, found: c_int, slept: bool) {
        if !self.any() || found <= 0 {
            return;
        }
        self.with(|notes| {
            for i in 0..found as usize {
                // SAFETY: the kernel has just written `found` events there.
                let data = unsafe { events.add(i).read_unaligned() }.u64;
                // Another watch with the same data costs a turn, and nothing else.
                for note in notes.iter_mut().filter(|note| note.fd >= 0 && note.data == data) {
                    note.due = true;
                    note.reports = note.reports.saturating_add(1);
                    if slept {
                        listeners::count(note.fd, ListenerStat::Wakes);
                    }
                }
            }
        });
    }

    /// Before a sleep: those that have been reported go to the end. Whether all are watched.
    pub(crate) fn take_turns(&self, set: &FdSet) -> bool {
        if !self.any() {
            return true;
        }
        let order = listeners::order().unwrap_or(Order::Lifo);
        self.with(|notes| {
            if set.in_kernel.load(Ordering::SeqCst) || set.closed.load(Ordering::SeqCst) {
                return true;
            }
            for note in notes.iter_mut().filter(|note| note.fd >= 0) {
                listeners::count(note.fd, ListenerStat::Waits);
                let settled = note.due && !(note.is_edge() && listeners::is_ready(note.fd));
                if settled && order.ends_turn(note.reports) || note.missing {
                    note.renew(set.fd());
                } else if settled {
                    // What was reported is gone, so what comes next may be in need of rescue.
                    note.due = false;
                }
            }
            !notes.iter().any(|note| note.missing)
        })
    }

    /// Writes events of listeners that have something and no watch to `place`, at most `room`; how many. An edge is reported like a level: whether
    /// a connection is a new one cannot be told.
    pub(crate) fn report_missing(&self, place: *mut epoll_event, room: c_int) -> c_int {
        if !self.any() {
            return 0;
        }
        self.with(|notes| {
            let mut written = 0;
            for note in notes.iter_mut().filter(|note| note.missing) {
                let has_connection = || sys::poll_now(note.fd, libc::POLLIN) & libc::POLLIN != 0;
                if written == room || !listeners::is_listener(note.fd) || !has_connection() {
                    continue;
                }
                let event = epoll_event { events: libc::EPOLLIN as u32, u64: note.data };
                // SAFETY: the caller of the wait gives the memory for as many.
                if !unsafe { user::store_event(place.wrapping_add(written as usize), event) } {
                    break;
                }
                written += 1;
            }
            written
        })
    }

    /// Once in [`RESCUE`](listeners::RESCUE), whatever else the waits in this set are woken by: a connection whose waiter has died is reported to it.
    pub(crate) fn rescue_if_due(&self, set: &FdSet) {
        if !self.any() || !self.looked.until_next().is_zero() {
            return;
        }
        self.looked.note();
        self.with(|notes| {
            if set.in_kernel.load(Ordering::SeqCst) || set.closed.load(Ordering::SeqCst) {
                return;
            }
            for note in notes.iter_mut().filter(|note| note.fd >= 0) {
                let told = note.is_edge() && note.due;
                if !told && listeners::is_ready(note.fd) {
                    note.renew(set.fd());
                }
            }
        });
    }
}

/// Whether a watch with these flags can be made exclusive, without a difference to what it reports.
fn can_take_turns(events: Events) -> bool {
    let allowed = Events::IN | Events::ERR | Events::HUP | Events::WAKEUP | Events::ET | Events::EXCLUSIVE;
    events.contains(Events::IN) && events.intersection(allowed) == events
}

/// epoll_ctl(2) on a descriptor of the kernel's, in the kernel half of `set`.
pub(crate) fn epoll_ctl(
    set: &FdSet,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
    asked: Event,
) -> Result<(), Errno> {
    let call = || sys::epoll_ctl(set.fd(), op, fd, event);
    let may_join = || {
        let allowed = can_take_turns(asked.events) && listeners::order().is_some() && listeners::confirm(fd);
        allowed && !set.turns.twins.load(Ordering::Relaxed)
    };
    if !(set.turns.any() || op == EPOLL_CTL_ADD && may_join()) {
        return call();
    }
    let wants_exclusive = asked.events.contains(Events::EXCLUSIVE);
    let note = Note {
        fd,
        events: asked.events.bits() & !(EPOLLEXCLUSIVE as u32),
        data: asked.data,
        asked: wants_exclusive,
        ..NO_NOTE
    };
    set.turns.with(|notes| {
        if set.in_kernel.load(Ordering::SeqCst) {
            return call();
        }
        let known = notes.iter().position(|note| note.fd == fd);
        match op {
            EPOLL_CTL_ADD => {
                let inode = listeners::inode(fd);
                let is_twin = |note: &&mut Note| note.fd >= 0 && note.fd != fd && note.inode == inode;
                if inode.is_some() && notes.iter_mut().any(|note| is_twin(&note)) {
                    // Both are reported, so none may be passed over because of the other.
                    set.turns.twins.store(true, Ordering::Relaxed);
                    notes.iter_mut().filter(is_twin).for_each(|note| note.make_plain(set));
                }
                let place = known.or_else(|| notes.iter().position(|note| note.fd < 0)).filter(|_| may_join());
                let Some(place) = place.and_then(|place| notes.get_mut(place)) else {
                    let result = call();
                    if let (Ok(()), Some(stale)) = (result, known.and_then(|known| notes.get_mut(known))) {
                        *stale = NO_NOTE;
                    }
                    return result;
                };
                let mut note = Note { inode, ..note };
                listeners::note_in_turn(fd);
                match note.add(set.fd(), true) {
                    Ok(()) => {
                        *place = note;
                        Ok(())
                    }
                    // Before Linux 4.5, or an error that the kernel will name again.
                    Err(Errno::EINVAL) => call(),
                    result => result,
                }
            }
            EPOLL_CTL_MOD => {
                let Some(known) = known.and_then(|known| notes.get_mut(known)) else { return call() };
                if known.asked || wants_exclusive {
                    return call();
                }
                if !known.remove(set.fd()) {
                    *known = NO_NOTE;
                    return call();
                }
                *known = Note { inode: known.inode, ..note };
                let stays = may_join();
                match known.add(set.fd(), stays) {
                    Ok(()) if stays => {}
                    // As good as done: it is added before the next sleep.
                    Err(_) if known.missing => {}
                    Ok(()) => *known = NO_NOTE,
                    Err(error) => {
                        *known = NO_NOTE;
                        return Err(error);
                    }
                }
                Ok(())
            }
            EPOLL_CTL_DEL => {
                let missing = known.and_then(|known| notes.get_mut(known)).is_some_and(|known| {
                    let missing = known.missing;
                    *known = NO_NOTE;
                    missing
                });
                if missing { Ok(()) } else { call() }
            }
            _ => call(),
        }
    })
}

/// Makes the watches of a set that goes into the kernel what the program asked for. The caller holds the moves lock.
pub(crate) fn make_plain(set: &FdSet) {
    if !set.turns.any() {
        return;
    }
    set.turns.with(|notes| {
        notes.iter_mut().filter(|note| note.fd >= 0).for_each(|note| note.make_plain(set));
    });
}
