//! Event bits and the events a wait reports: `struct epoll_event` of epoll_ctl(2).

use bitflags::bitflags;

bitflags! {
    /// Readiness bits and input flags, with the values of `<sys/epoll.h>`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Events: u32 {
        /// `EPOLLIN`: a read will not block.
        const IN = 0x001;
        /// `EPOLLPRI`: an exceptional condition.
        const PRI = 0x002;
        /// `EPOLLOUT`: a write will not block.
        const OUT = 0x004;
        /// `EPOLLERR`: an error condition; always reported, whether asked for or not.
        const ERR = 0x008;
        /// `EPOLLHUP`: hang-up; always reported, whether asked for or not.
        const HUP = 0x010;
        /// `EPOLLNVAL`: never reported; kept so that its bit is masked as Linux masks it.
        const NVAL = 0x020;
        /// `EPOLLRDNORM`: as `IN` for nearly every source.
        const RDNORM = 0x040;
        /// `EPOLLRDBAND`: priority data can be read.
        const RDBAND = 0x080;
        /// `EPOLLWRNORM`: as `OUT` for nearly every source.
        const WRNORM = 0x100;
        /// `EPOLLWRBAND`: priority data can be written.
        const WRBAND = 0x200;
        /// `EPOLLMSG`: ignored by Linux.
        const MSG = 0x400;
        /// `EPOLLRDHUP`: the peer has shut down its writing half.
        const RDHUP = 0x2000;
        /// `EPOLLEXCLUSIVE`: among several sets that watch one source, wake one.
        const EXCLUSIVE = 1 << 28;
        /// `EPOLLWAKEUP`: accepted and without effect; keeping a machine from suspending is the
        /// kernel's business.
        const WAKEUP = 1 << 29;
        /// `EPOLLONESHOT`: disarm the watch after one report.
        const ONESHOT = 1 << 30;
        /// `EPOLLET`: report changes, not states.
        const ET = 1 << 31;
        const _ = !0;
    }
}

impl Events {
    /// The bits that say how to report, not what (Linux's private bits).
    pub const FLAGS: Self =
        Self::EXCLUSIVE.union(Self::WAKEUP).union(Self::ONESHOT).union(Self::ET);
    /// Reported whether asked for or not.
    pub const ALWAYS: Self = Self::ERR.union(Self::HUP);
    /// What may stand beside `EXCLUSIVE` in an add.
    pub const EXCLUSIVE_OK: Self = Self::IN
        .union(Self::OUT)
        .union(Self::ALWAYS)
        .union(Self::WAKEUP)
        .union(Self::ET)
        .union(Self::EXCLUSIVE);
}

/// What a set is asked to watch for, and what a wait reports: `struct epoll_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Asked for: readiness bits and input flags. Reported: the readiness bits that hold.
    pub events: Events,
    /// The caller's own 64 bits (`epoll_data_t`), handed back unchanged.
    pub data: u64,
}

impl Event {
    /// An event with these bits and data.
    pub const fn new(events: Events, data: u64) -> Self {
        Self { events, data }
    }
}
