//! A private epoll set, which a thread sleeps in and uses for nothing else.

use super::{Fired, MOST, Numbers, Obstacle, Order, Wanted};
use crate::sys;
use core::ffi::c_int;
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, epoll_event,
};
use syscalls::Errno;

/// The event mask of a listener's watch.
const LISTENING: u32 = (EPOLLIN | EPOLLEXCLUSIVE) as u32;

/// The data of the timer's watch, which no descriptor has.
const TIMER: u64 = u64::MAX;

/// The data of the baton's watch in a private set, which no descriptor has either.
pub const BATON_DATA: u64 = u64::MAX - 1;

/// The events of a baton's watch: each pass wakes one waiter, and needs no reading.
pub const BATON_EVENTS: u32 = (EPOLLIN | EPOLLET | EPOLLEXCLUSIVE) as u32;

#[derive(Clone, Copy, Debug)]
struct Watch {
    wanted: Wanted,
    /// Of a listener: the same under all its numbers.
    inode: Option<u64>,
    /// How often it was reported since it was last put at the end of the listener's queue.
    reports: u32,
    /// The program was told of a connection on it that the set may not know of.
    unknown: bool,
}

/// The watches of one thread, in an epoll set that no other thread uses.
///
/// The listeners are watched with `EPOLLEXCLUSIVE`: a connection wakes the first watch in the
/// listener's queue whose set a thread sleeps in. The thread has to sleep in the set itself
/// (epoll_wait(2)); a poll(2) of the set would be woken for every connection.
///
/// The set belongs to the caller, which makes it, chooses its number and closes it.
///
/// A sleeper is used by one thread at a time. Its functions are async-signal-safe, but a handler
/// must not use the sleeper of a function that it has interrupted.
#[derive(Debug)]
pub struct Sleeper {
    set: c_int,
    watches: [Watch; MOST],
    len: usize,
    /// A timer ends the sleeps in the set.
    timed: bool,
    /// Two of the listeners are, or were, one.
    twins: bool,
    /// The baton in the set, -1 for none.
    baton: c_int,
}

impl Sleeper {
    /// A sleeper without a set.
    pub const fn new() -> Self {
        let none = Watch { wanted: Wanted::NONE, inode: None, reports: 0, unknown: false };
        Self { set: -1, watches: [none; MOST], len: 0, timed: false, twins: false, baton: -1 }
    }

    /// Goes on with a new, empty set. The caller closes the old one.
    pub fn adopt(&mut self, set: c_int) {
        self.set = set;
        self.len = 0;
        self.timed = false;
        self.twins = false;
        self.baton = -1;
    }

    /// Lets a baton end the sleeps in the set: an eventfd that all waiters of a family have, whose
    /// write wakes one of those that sleep. Its watch is put at the end of the baton's queue, also
    /// if the set has one already. -1: no baton.
    pub fn watch_baton(&mut self, baton: c_int) {
        if self.baton >= 0 {
            let _ = sys::epoll_ctl(self.set, EPOLL_CTL_DEL, self.baton, 0, 0);
        }
        let add = || sys::epoll_ctl(self.set, EPOLL_CTL_ADD, baton, BATON_EVENTS, BATON_DATA);
        // EEXIST: it has become another number, and was added again by whoever did that.
        let is_watched = baton >= 0 && matches!(add(), Ok(()) | Err(Errno::EEXIST));
        self.baton = if is_watched { baton } else { -1 };
    }

    /// The baton in the set, -1 for none.
    pub fn baton(&self) -> c_int {
        self.baton
    }

    /// Lets a timerfd end the sleeps in the set that was adopted last. A timer that is set once is
    /// cheaper than a limit for every sleep, which the kernel would set and cancel each time.
    pub fn watch_timer(&mut self, timer: c_int) {
        self.timed = sys::epoll_ctl(self.set, EPOLL_CTL_ADD, timer, EPOLLIN as u32, TIMER).is_ok();
    }

    /// Whether a timer ends the sleeps.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Notes that the timer is gone.
    pub fn forget_timer(&mut self) {
        self.timed = false;
    }

    /// Whether the set watches each of these, and a listener among them is to go to the end of its
    /// queue. Checking the set without sleeping is then cheaper than [`prepare`](Self::prepare),
    /// and tells as much if it finds something.
    pub fn should_check_first(&self, wanted: &[Wanted], order: Order) -> bool {
        let mut due = false;
        let known = wanted.iter().all(|wanted| {
            self.known()
                .find(|watch| watch.wanted == *wanted)
                .inspect(|watch| due |= order.ends_turn(watch.reports))
                .is_some()
        });
        known && due
    }

    /// Whether the set watches this listener, as far as the sleeper knows.
    pub fn has_listener(&self, fd: c_int) -> bool {
        self.known().any(|watch| watch.wanted.fd == fd && watch.wanted.listener)
    }

    /// The inodes of the listeners that the set watches, where they are known.
    pub fn inodes(&self) -> impl Iterator<Item = Option<u64>> {
        self.known().filter(|watch| watch.wanted.listener).map(|watch| watch.inode)
    }

    /// Notes that the set has another number now.
    pub fn renumber(&mut self, set: c_int) {
        self.set = set;
    }

    /// The set that was adopted last.
    pub fn set(&self) -> c_int {
        self.set
    }

    /// Makes the set watch these descriptors, and no others. A listener's watch keeps its place in
    /// the queue, unless it is to go to the end.
    ///
    /// # Errors
    /// See [`Obstacle`]. A set that has just been adopted is never stale. After
    /// [`Obstacle::Refused`], the refused descriptor is not watched, and the next call tries again.
    pub fn prepare(
        &mut self,
        wanted: &[Wanted],
        order: Order,
        numbers: Numbers,
    ) -> Result<(), Obstacle> {
        let mut i = 0;
        while let Some(watch) =
            self.watches.get(..self.len).and_then(|watches| watches.get(i)).copied()
        {
            if wanted.iter().any(|wanted| {
                wanted.fd == watch.wanted.fd && wanted.listener == watch.wanted.listener
            }) {
                i += 1;
            } else {
                self.drop_watch(i)?;
            }
        }
        for wanted in wanted {
            let known = self.known().position(|watch| watch.wanted.fd == wanted.fd);
            match known {
                Some(place) if wanted.listener => self.renew_listener(place, order, numbers)?,
                Some(place) => self.renew_other(place, *wanted, numbers)?,
                None => self.add(*wanted)?,
            }
        }
        Ok(())
    }

    fn known(&self) -> impl Iterator<Item = &Watch> {
        self.watches.iter().take(self.len)
    }

    fn drop_watch(&mut self, place: usize) -> Result<(), Obstacle> {
        let Some(watch) = self.watches.get(place).copied() else { return Ok(()) };
        self.len -= 1;
        self.watches.swap(place, self.len);
        match sys::epoll_ctl(self.set, EPOLL_CTL_DEL, watch.wanted.fd, 0, 0) {
            // Its description may live on under another number, and its watch would take
            // connections away from other waiters.
            Err(_) if watch.wanted.listener => Err(Obstacle::Stale),
            _ => Ok(()),
        }
    }

    /// Renews the watch of a listener that is watched already, or was under this number.
    fn renew_listener(
        &mut self,
        place: usize,
        order: Order,
        numbers: Numbers,
    ) -> Result<(), Obstacle> {
        let Some(watch) = self.watches.get_mut(place) else { return Ok(()) };
        if order.ends_turn(watch.reports) || watch.unknown {
            let Watch { wanted, inode, .. } = *watch;
            sys::epoll_ctl(self.set, EPOLL_CTL_DEL, wanted.fd, 0, 0)
                .map_err(|_| Obstacle::Stale)?;
            self.len -= 1;
            self.watches.swap(place, self.len);
            return self.watch(wanted, inode, LISTENING);
        }
        if numbers == Numbers::Same {
            return Ok(());
        }
        // This changes nothing: an exclusive watch refuses it with EINVAL, which shows that the
        // watch is still the one of this file.
        match sys::epoll_ctl(
            self.set,
            EPOLL_CTL_MOD,
            watch.wanted.fd,
            EPOLLIN as u32,
            watch.wanted.data(),
        ) {
            Err(Errno::EINVAL) => Ok(()),
            _ => Err(Obstacle::Stale),
        }
    }

    fn renew_other(
        &mut self,
        place: usize,
        wanted: Wanted,
        numbers: Numbers,
    ) -> Result<(), Obstacle> {
        let Some(watch) = self.watches.get_mut(place) else { return Ok(()) };
        if numbers == Numbers::Same && watch.wanted == wanted {
            return Ok(());
        }
        watch.wanted = wanted;
        match sys::epoll_ctl(self.set, EPOLL_CTL_MOD, wanted.fd, wanted.events, wanted.data()) {
            Ok(()) => Ok(()),
            Err(Errno::ENOENT) => {
                self.len -= 1;
                self.watches.swap(place, self.len);
                self.add(wanted)
            }
            Err(error) => Err(Obstacle::Refused(error)),
        }
    }

    fn add(&mut self, wanted: Wanted) -> Result<(), Obstacle> {
        if wanted.listener && !sys::is_listening(wanted.fd).map_err(Obstacle::Refused)? {
            return Err(Obstacle::Refused(Errno::EINVAL));
        }
        if !wanted.listener {
            return self.watch(wanted, None, wanted.events);
        }
        let inode = sys::inode(wanted.fd);
        self.twins |= inode.is_some() && self.known().any(|watch| watch.inode == inode);
        self.watch(wanted, inode, LISTENING)
    }

    fn watch(&mut self, wanted: Wanted, inode: Option<u64>, events: u32) -> Result<(), Obstacle> {
        let Some(place) = self.watches.get_mut(self.len) else {
            return Err(Obstacle::Refused(Errno::E2BIG));
        };
        match sys::epoll_ctl(self.set, EPOLL_CTL_ADD, wanted.fd, events, wanted.data()) {
            Ok(()) => {
                *place = Watch { wanted, inode, reports: 0, unknown: false };
                self.len += 1;
                Ok(())
            }
            Err(Errno::EEXIST) => Err(Obstacle::Stale),
            Err(error) => Err(Obstacle::Refused(error)),
        }
    }

    /// Says what ended a sleep, from its events.
    pub fn sort(&self, events: &[epoll_event]) -> Fired {
        let mut fired = Fired { twins: self.twins, ..Fired::default() };
        for event in events {
            let data = event.u64;
            match self.known().find(|watch| watch.wanted.data() == data) {
                _ if data == TIMER => fired.timer = true,
                _ if data == BATON_DATA => fired.baton = true,
                Some(watch) if watch.wanted.listener => fired.listener = true,
                Some(_) => fired.other = true,
                None => fired.stale = true,
            }
        }
        fired
    }

    /// Notes that a listener is about to be reported. Before the next sleep its watch goes to the
    /// end of its queue, if the order says so.
    pub fn note_report(&mut self, fd: c_int) {
        for watch in self.listeners_at(fd) {
            watch.reports = watch.reports.saturating_add(1);
        }
    }

    /// Notes that the listener that is about to be reported was found ready by a look of the
    /// caller's: its connection may have woken another waiter alone, so that the set does not know
    /// of it, nor of those that are left there afterwards. Before the next sleep its watch is added
    /// again, which polls the listener.
    pub fn note_unknown(&mut self, fd: c_int) {
        for watch in self.listeners_at(fd) {
            watch.unknown = true;
        }
    }

    fn listeners_at(&mut self, fd: c_int) -> impl Iterator<Item = &mut Watch> {
        let known = self.watches.iter_mut().take(self.len);
        known.filter(move |watch| watch.wanted.listener && watch.wanted.fd == fd)
    }
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}
