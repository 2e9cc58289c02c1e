//! A private epoll set, used to sleep and for nothing else.

use super::{Order, kernel};
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, EPOLLIN, epoll_event};
use syscalls::Errno;

/// Descriptors in one wait. A wait on more is rare, and its watches would cost more than they save.
pub const MOST: usize = 64;

/// How a listener is watched.
const LISTENING: u32 = (EPOLLIN | EPOLLEXCLUSIVE) as u32;

/// The data of the timer's watch; no descriptor has it.
const TIMER: u64 = u64::MAX;

/// A descriptor that a wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its number.
    pub fd: c_int,
    /// What is waited for, as the bits of epoll_ctl(2). Of a listener: nothing but connections.
    pub events: u32,
    /// Whether it is a listening socket, whose connections wake one waiter each.
    pub listener: bool,
}

impl Wanted {
    /// Nothing, to fill an array with.
    pub const NONE: Self = Self { fd: -1, events: 0, listener: false };

    /// Whether an event with this data is a listener's, whose number is then its lower half.
    pub fn is_listener(data: u64) -> bool {
        data >> 32 == 1
    }

    fn data(self) -> u64 {
        u64::from(self.fd as u32) | u64::from(self.listener) << 32
    }
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    wanted: Wanted,
    /// A listener's: under two numbers it has one.
    inode: Option<u64>,
    /// Reports since the watch was last put at the end of the listener's queue.
    reports: u32,
}

/// Why a wait cannot sleep in the private set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A number has come to stand for something else, and the old thing may still be watched: the caller makes a new set.
    Stale,
    /// The kernel does not watch a descriptor in this way: EPERM for a regular file, EINVAL before Linux 4.5, ENOTSOCK, EBADF…
    Refused(Errno),
}

/// What a sleep ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// A listener.
    pub listener: bool,
    /// Another descriptor of the wait.
    pub other: bool,
    /// Something that no longer has a place in the set.
    pub stale: bool,
    /// The timer: it is time for a look at the listeners, and to set it anew.
    pub timer: bool,
    /// One listener may be watched under two numbers: an event says so of one of them, and it takes a look to tell.
    pub twins: bool,
}

impl Fired {
    /// Whether it was listeners and nothing else, and their events say all.
    pub fn only_listeners(&self) -> bool {
        self.listener && !(self.other || self.stale || self.timer || self.twins)
    }
}

/// What may have become of the numbers since a set was last prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Each stands for what it stood for.
    Same,
    /// Any may stand for something else: every watch is checked.
    Unknown,
}

/// The watches of one thread, in an epoll set that no other uses.
///
/// The listeners are watched with `EPOLLEXCLUSIVE`: a connection wakes the first watch in the listener's queue whose set somebody
/// sleeps in. The set has to be slept in directly (epoll_wait(2)); a poll(2) of it would be woken for every connection.
///
/// The set itself belongs to the caller, who makes it, numbers it and closes it.
#[derive(Debug)]
pub struct Sleeper {
    set: c_int,
    watches: [Watch; MOST],
    len: usize,
    /// A timer ends the sleeps in the set.
    timed: bool,
    /// Two of the listeners are, or were, one.
    twins: bool,
}

impl Sleeper {
    /// No set yet.
    pub const fn new() -> Self {
        let none = Watch { wanted: Wanted::NONE, inode: None, reports: 0 };
        Self { set: -1, watches: [none; MOST], len: 0, timed: false, twins: false }
    }

    /// Goes on with a new, empty set. The old one is the caller's to close.
    pub fn adopt(&mut self, set: c_int) {
        self.set = set;
        self.len = 0;
        self.timed = false;
        self.twins = false;
    }

    /// Lets a timerfd end the sleeps in the set that was adopted last. A timer that is set once spares every sleep a limit of its own, which
    /// the kernel would set and cancel each time.
    pub fn watch_timer(&mut self, timer: c_int) {
        self.timed = kernel::epoll_ctl(self.set, EPOLL_CTL_ADD, timer, EPOLLIN as u32, TIMER).is_ok();
    }

    /// Whether a timer ends the sleeps.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// There is no timer any more.
    pub fn forget_timer(&mut self) {
        self.timed = false;
    }

    /// Whether the set watches each of these, and whether a listener among them is due to go to the end of its queue: a look at the
    /// set is then cheaper than [`prepare`](Self::prepare), and says as much if it finds something.
    pub fn is_worth_a_look(&self, wanted: &[Wanted], order: Order) -> bool {
        let mut due = false;
        let known = wanted.iter().all(|wanted| {
            self.known()
                .find(|watch| watch.wanted == *wanted)
                .inspect(|watch| due |= order.ends_turn(watch.reports))
                .is_some()
        });
        known && due
    }

    /// Whether the set watches this listener, as far as it knows.
    pub fn has_listener(&self, fd: c_int) -> bool {
        self.known().any(|watch| watch.wanted.fd == fd && watch.wanted.listener)
    }

    /// The set has another number now.
    pub fn renumber(&mut self, set: c_int) {
        self.set = set;
    }

    /// The set that was adopted last.
    pub fn set(&self) -> c_int {
        self.set
    }

    /// Makes the set watch these, and nothing else that it knows of. A listener keeps its place in the queue, unless it is due to go to
    /// the end.
    ///
    /// # Errors
    /// See [`Obstacle`]. A set that has just been adopted is never stale. After [`Obstacle::Refused`] what could not be added is not watched, and the
    /// next call tries again.
    pub fn prepare(&mut self, wanted: &[Wanted], order: Order, numbers: Numbers) -> Result<(), Obstacle> {
        let mut i = 0;
        while let Some(watch) = self.watches.get(..self.len).and_then(|watches| watches.get(i)).copied() {
            if wanted.iter().any(|wanted| wanted.fd == watch.wanted.fd && wanted.listener == watch.wanted.listener) {
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
        match kernel::epoll_ctl(self.set, EPOLL_CTL_DEL, watch.wanted.fd, 0, 0) {
            // Its description may live on under another number, and would take connections away from others.
            Err(_) if watch.wanted.listener => Err(Obstacle::Stale),
            _ => Ok(()),
        }
    }

    /// A listener that is watched already, or was under this number.
    fn renew_listener(&mut self, place: usize, order: Order, numbers: Numbers) -> Result<(), Obstacle> {
        let Some(watch) = self.watches.get_mut(place) else { return Ok(()) };
        if order.ends_turn(watch.reports) {
            let Watch { wanted, inode, .. } = *watch;
            kernel::epoll_ctl(self.set, EPOLL_CTL_DEL, wanted.fd, 0, 0).map_err(|_| Obstacle::Stale)?;
            self.len -= 1;
            self.watches.swap(place, self.len);
            return self.watch(wanted, inode, LISTENING);
        }
        if numbers == Numbers::Same {
            return Ok(());
        }
        // Nothing is changed by this: an exclusive watch refuses it, and so says that it is still the one of this file.
        match kernel::epoll_ctl(self.set, EPOLL_CTL_MOD, watch.wanted.fd, EPOLLIN as u32, watch.wanted.data()) {
            Err(Errno::EINVAL) => Ok(()),
            _ => Err(Obstacle::Stale),
        }
    }

    fn renew_other(&mut self, place: usize, wanted: Wanted, numbers: Numbers) -> Result<(), Obstacle> {
        let Some(watch) = self.watches.get_mut(place) else { return Ok(()) };
        if numbers == Numbers::Same && watch.wanted == wanted {
            return Ok(());
        }
        watch.wanted = wanted;
        match kernel::epoll_ctl(self.set, EPOLL_CTL_MOD, wanted.fd, wanted.events, wanted.data()) {
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
        if wanted.listener && !kernel::is_listening(wanted.fd).map_err(Obstacle::Refused)? {
            return Err(Obstacle::Refused(Errno::EINVAL));
        }
        if !wanted.listener {
            return self.watch(wanted, None, wanted.events);
        }
        let inode = kernel::inode(wanted.fd);
        self.twins |= inode.is_some() && self.known().any(|watch| watch.inode == inode);
        self.watch(wanted, inode, LISTENING)
    }

    fn watch(&mut self, wanted: Wanted, inode: Option<u64>, events: u32) -> Result<(), Obstacle> {
        let Some(place) = self.watches.get_mut(self.len) else { return Err(Obstacle::Refused(Errno::E2BIG)) };
        match kernel::epoll_ctl(self.set, EPOLL_CTL_ADD, wanted.fd, events, wanted.data()) {
            Ok(()) => {
                *place = Watch { wanted, inode, reports: 0 };
                self.len += 1;
                Ok(())
            }
            Err(Errno::EEXIST) => Err(Obstacle::Stale),
            Err(error) => Err(Obstacle::Refused(error)),
        }
    }

    /// Says what a sleep has ended with.
    pub fn sort(&self, events: &[epoll_event]) -> Fired {
        let mut fired = Fired { twins: self.twins, ..Fired::default() };
        for event in events {
            let data = event.u64;
            match self.known().find(|watch| watch.wanted.data() == data) {
                _ if data == TIMER => fired.timer = true,
                Some(watch) if watch.wanted.listener => fired.listener = true,
                Some(_) => fired.other = true,
                None => fired.stale = true,
            }
        }
        fired
    }

    /// Notes that a listener is about to be reported: at the end of its turn it goes to the end of its queue before the next sleep.
    pub fn note_report(&mut self, fd: c_int) {
        let len = self.len;
        for watch in self.watches.iter_mut().take(len) {
            if watch.wanted.listener && watch.wanted.fd == fd {
                watch.reports = watch.reports.saturating_add(1);
            }
        }
    }
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}
