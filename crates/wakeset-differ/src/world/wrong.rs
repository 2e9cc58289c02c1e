//! A side with a bug put in front of it, to show that the comparison finds the bug. A checker that
//! cannot fail proves nothing.

use super::kernel::raw;
use super::{Command, Road, Side, Sysno, World, Write};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use std::collections::{HashMap, HashSet};

/// A bug that can be put into a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// `EPOLLONESHOT` does not disarm.
    OneshotStays,
    /// `EPOLLET` is ignored.
    EdgeIsLevel,
    /// A second ADD is taken for a MOD, instead of failing with EEXIST.
    AddTwice,
    /// MOD and DEL of what is not watched fail with EINVAL, instead of ENOENT.
    WrongErrno,
    /// DEL succeeds, and the watch stays.
    EventAfterRemoval,
    /// The first two events of a wait come in the other order.
    OutOfOrder,
    /// Watches that were reported go to the front of the ready list instead of to its end.
    ReportedGoesFirst,
    /// One wait in 256 does not return its last event; that event's data decides which wait.
    EventLost,
    /// MOD leaves the data unchanged.
    OldData,
    /// A wait that fails with EFAULT drops the events.
    EventsLostToFault,
    /// The commands of a batch are carried out from the last to the first.
    BatchBackwards,
    /// A batch that should stop at an error goes on.
    BatchGoesOn,
    /// What closes by the bindings of a plugin, opened with `RTLD_DEEPBIND`, is not seen.
    RoadUnseen,
    /// A second thread's write into a pipe leaves out a byte.
    ByteLost,
    /// A wait that has two events or more to return does not return, cannot be interrupted,
    /// and leaves a child that holds the worker's pipe.
    WaitNeverEnds,
}

impl Bug {
    /// All bugs, with their names on the command line.
    pub const NAMES: [(&str, Self); 15] = [
        ("oneshot-stays", Self::OneshotStays),
        ("edge-is-level", Self::EdgeIsLevel),
        ("add-twice", Self::AddTwice),
        ("wrong-errno", Self::WrongErrno),
        ("event-after-removal", Self::EventAfterRemoval),
        ("out-of-order", Self::OutOfOrder),
        ("reported-goes-first", Self::ReportedGoesFirst),
        ("event-lost", Self::EventLost),
        ("old-data", Self::OldData),
        ("events-lost-to-fault", Self::EventsLostToFault),
        ("batch-backwards", Self::BatchBackwards),
        ("batch-goes-on", Self::BatchGoesOn),
        ("road-unseen", Self::RoadUnseen),
        ("byte-lost", Self::ByteLost),
        ("wait-never-ends", Self::WaitNeverEnds),
    ];

    /// The side to put it into instead of `side`, which has nothing that it could be wrong about:
    /// the engine's programs have no bad pointers and no pipes, and most sides have no roads.
    pub fn side_for(self, side: Side) -> Side {
        match self {
            Self::EventsLostToFault | Self::ByteLost if side.is_engine() => Side::Api,
            Self::RoadUnseen if !side.takes_roads() => Side::Roads,
            _ => side,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, bug)| *bug == self).map_or("", |(name, _)| name)
    }

    /// The bug of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, bug)| *bug)
    }
}

/// A side with a bug.
#[derive(Debug)]
pub struct Wrong<W> {
    side: W,
    bug: Bug,
    /// The road that was last chosen.
    road: Road,
    /// By set and target: the data of the ADD.
    data: HashMap<(usize, usize), u64>,
    /// By set: what its last wait reported.
    reported: HashMap<usize, HashSet<u64>>,
}

impl<W: World> Wrong<W> {
    /// `side`, with this bug.
    pub fn new(side: W, bug: Bug) -> Self {
        Self { side, bug, road: Road::Name, data: HashMap::new(), reported: HashMap::new() }
    }

    /// The event at an address that may not be there.
    fn load(address: usize) -> Option<epoll_event> {
        let mut event = epoll_event { events: 0, u64: 0 };
        let len = size_of::<epoll_event>();
        let to = libc::iovec { iov_base: (&raw mut event).cast(), iov_len: len };
        let from = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
        // SAFETY: the call writes to `event` only, and fails if it cannot read the address.
        let got = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0)
        };
        (got == len as isize).then_some(event)
    }

    /// epoll_ctl(2) with another event.
    unsafe fn with_event(&mut self, mut all: [usize; 6], event: epoll_event) -> isize {
        all[3] = (&raw const event).addr();
        // SAFETY: the caller's contract; `event` outlives the call.
        unsafe { self.side.call(Sysno::epoll_ctl, all) }
    }

    unsafe fn epoll_ctl(&mut self, all: [usize; 6]) -> isize {
        let (op, key) = (all[1] as c_int, (all[0], all[2]));
        let event = if op == EPOLL_CTL_DEL { None } else { Self::load(all[3]) };
        // SAFETY: the caller's contract, for all below.
        unsafe {
            let result = match (self.bug, event) {
                (Bug::OneshotStays, Some(mut event)) => {
                    event.events &= !(libc::EPOLLONESHOT as u32);
                    self.with_event(all, event)
                }
                (Bug::EdgeIsLevel, Some(mut event)) => {
                    event.events &= !(libc::EPOLLET as u32);
                    self.with_event(all, event)
                }
                (Bug::OldData, Some(mut event)) if op == EPOLL_CTL_MOD => {
                    event.u64 = self.data.get(&key).copied().unwrap_or(event.u64);
                    self.with_event(all, event)
                }
                (Bug::EventAfterRemoval, None) if op == EPOLL_CTL_DEL => {
                    // A MOD instead: it has the same errors, and the watch stays.
                    let mut change = all;
                    change[1] = EPOLL_CTL_MOD as usize;
                    let data = self.data.get(&key).copied().unwrap_or(0);
                    self.with_event(change, epoll_event { events: libc::EPOLLIN as u32, u64: data })
                }
                _ => self.side.call(Sysno::epoll_ctl, all),
            };
            if let (EPOLL_CTL_ADD, 0, Some(event)) = (op, result, event) {
                self.data.insert(key, event.u64);
            }
            match self.bug {
                Bug::AddTwice if result == -(libc::EEXIST as isize) => {
                    let mut change = all;
                    change[1] = EPOLL_CTL_MOD as usize;
                    self.side.call(Sysno::epoll_ctl, change)
                }
                Bug::WrongErrno if result == -(libc::ENOENT as isize) => -(libc::EINVAL as isize),
                _ => result,
            }
        }
    }

    unsafe fn wait(&mut self, number: Sysno, all: [usize; 6]) -> isize {
        // SAFETY: the caller's contract.
        let result = unsafe { self.side.call(number, all) };
        if result == -(libc::EFAULT as isize) && self.bug == Bug::EventsLostToFault {
            let mut lost = [epoll_event { events: 0, u64: 0 }; 64];
            // SAFETY: room for 64 events.
            unsafe {
                self.side.call(Sysno::epoll_wait, [all[0], lost.as_mut_ptr().addr(), 64, 0, 0, 0])
            };
        }
        if result <= 0 {
            return result;
        }
        let n = result as usize;
        // SAFETY: the call has written this many events there.
        let mut events: Vec<_> = (0..n)
            .map(|i| unsafe { (all[1] as *const epoll_event).add(i).read_unaligned() })
            .collect();
        match self.bug {
            Bug::OutOfOrder if n >= 2 => events.swap(0, 1),
            Bug::WaitNeverEnds if n >= 2 => never_end(),
            Bug::ReportedGoesFirst => {
                let before = self.reported.entry(all[0]).or_default();
                // The sort is stable.
                events.sort_by_key(|event| !before.contains(&{ event.u64 }));
                *before = events.iter().map(|event| event.u64).collect();
            }
            Bug::EventLost if events.last().is_some_and(|event| event.u64 >> 8 & 0xff == 0) => {
                return result - 1;
            }
            _ => {}
        }
        for (i, event) in events.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { (all[1] as *mut epoll_event).add(i).write_unaligned(event) };
        }
        result
    }
}

/// Sleeps, in a child too, until the driver kills both.
fn never_end() -> ! {
    // SAFETY: the mask is there; what follows fork(2) makes system calls only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        libc::syscall(libc::SYS_fork);
        loop {
            libc::syscall(libc::SYS_pause);
        }
    }
}

impl<W: World> World for Wrong<W> {
    unsafe fn call(&mut self, number: Sysno, all: [usize; 6]) -> isize {
        // SAFETY: the caller's contract.
        unsafe {
            match number {
                Sysno::epoll_ctl => self.epoll_ctl(all),
                Sysno::epoll_wait | Sysno::epoll_pwait | Sysno::epoll_pwait2 => {
                    self.wait(number, all)
                }
                Sysno::close if self.bug == Bug::RoadUnseen && self.road == Road::DeepBind => {
                    raw(number, all)
                }
                _ => self.side.call(number, all),
            }
        }
    }

    fn begin(&mut self, by_number: bool) {
        self.road = Road::Name;
        self.side.begin(by_number);
    }

    fn batch(&mut self, set: c_int, stop: bool, commands: &mut [Command]) {
        match self.bug {
            Bug::BatchBackwards => {
                commands.reverse();
                self.side.batch(set, stop, commands);
                commands.reverse();
            }
            Bug::BatchGoesOn => self.side.batch(set, false, commands),
            _ => self.side.batch(set, stop, commands),
        }
    }

    fn write(&self) -> Option<Write> {
        let write = self.side.write()?;
        Some(match self.bug {
            Bug::ByteLost => Box::new(move |number, bytes| {
                let result = write(number, bytes.get(1..).unwrap_or_default());
                if result > 0 { result + 1 } else { result }
            }),
            _ => write,
        })
    }

    fn ring(&mut self, set: c_int, entries: usize, polls: bool) {
        self.side.ring(set, entries, polls);
    }

    fn take(&mut self, road: Road) {
        self.road = road;
        self.side.take(road);
    }

    fn end_quiet(&mut self) {
        self.side.end_quiet();
    }

    fn open_name_space(&mut self) {
        self.side.open_name_space();
    }

    fn complaint(&mut self) -> Option<&'static str> {
        self.side.complaint()
    }

    fn fork(&mut self) {
        self.side.fork();
    }
}
