//! The listeners in the kernel half of a set: watched with `EPOLLEXCLUSIVE`, so that a connection
//! wakes one of the sets that watch the listener, and in the order chosen
//! ([`listeners`](super)).
//!
//! What the program sees stays a plain watch. `EPOLL_CTL_MOD`, which the kernel refuses for
//! exclusive watches, is a removal and an addition. In the same way a watch goes to the end of the
//! listener's queue, before the first sleep after it was reported. An addition polls the listener,
//! so nothing that comes in between is lost. An addition that fails for lack of memory is tried
//! again before each sleep; until it succeeds sleeps are short, and what the listener has is
//! reported without a watch.
//!
//! Only sets that no other process shares are treated like this: [`Rotation::make_plain`] turns the
//! watches back into plain ones before a fork, an exec, a duplicate. A watch that the program
//! itself asked to be exclusive joins the rotation too, and stays exclusive.
//!
//! | left as it is | why |
//! |---|---|
//! | `EPOLLONESHOT`, `EPOLLRDHUP`, `EPOLLPRI`, `EPOLLOUT` and others | an exclusive watch cannot have them |
//! | more than [`MOST`] listeners in a set | there is no memory for more |
//! | one listener under two numbers, and what is added later | both are reported, and an exclusive watch would be passed over for the other |
//!
//! An edge-triggered watch that was reported keeps its position until the program has emptied the
//! listener: adding it again would report the same connection twice.

mod ctl;
mod member;

use super::{LastLook, ListenerStat, Order};
use crate::kernel_half::KernelEpoll;
use crate::sys::signal_guard::SignalSafeLock;
use crate::sys::{self, user};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::epoll_event;
use member::Member;

/// Listeners in one set that are in the rotation.
const MOST: usize = 8;

/// The listeners of one set.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Whether there may be members. Changed with the lock held.
    any: AtomicBool,
    /// Taken below the migrations lock; nothing is taken below it.
    lock: SignalSafeLock,
    members: UnsafeCell<[Member; MOST]>,
    /// One listener is, or was, watched under two numbers: no more join. Changed with the lock
    /// held.
    has_twins: AtomicBool,
    /// When a wait last checked the listeners itself.
    pub(crate) last_look: LastLook,
}

// SAFETY: the members are only touched with the lock held, in `with`.
unsafe impl Sync for Rotation {}

impl Rotation {
    pub(crate) const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            lock: SignalSafeLock::new(),
            members: UnsafeCell::new([Member::NONE; MOST]),
            has_twins: AtomicBool::new(false),
            last_look: LastLook::never(),
        }
    }

    /// Returns whether sleeps in this set are about listeners.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn with<T>(&self, f: impl FnOnce(&mut [Member; MOST]) -> T) -> T {
        self.lock.lock();
        // SAFETY: this thread holds the lock.
        let members = unsafe { &mut *self.members.get() };
        let result = f(members);
        self.any.store(members.iter().any(Member::is_some), Ordering::Relaxed);
        self.lock.unlock();
        result
    }

    /// Forgets all, for a new set in this slot.
    pub(crate) fn clear(&self) {
        self.has_twins.store(false, Ordering::Relaxed);
        if self.any() {
            self.with(|members| *members = [Member::NONE; MOST]);
        }
    }

    /// Notes what a wait has reported, after a sleep or without one.
    pub(crate) fn note_reports(&self, events: *const epoll_event, found: c_int, slept: bool) {
        if !self.any() || found <= 0 {
            return;
        }
        self.with(|members| {
            for i in 0..found as usize {
                // SAFETY: the kernel has just written `found` events there.
                let data = unsafe { events.add(i).read_unaligned() }.u64;
                // Another watch with the same data costs a member its position, and nothing else.
                let reported = |member: &&mut Member| member.is_some() && member.data == data;
                for member in members.iter_mut().filter(reported) {
                    member.due = true;
                    member.reports = member.reports.saturating_add(1);
                    if slept {
                        super::count(member.fd, ListenerStat::Wakes);
                    }
                }
            }
        });
    }

    /// Before a sleep: puts the watches that have been reported at the end of their queues. Returns
    /// whether all members are watched.
    pub(crate) fn rotate(&self, set: &impl KernelEpoll) -> bool {
        if !self.any() {
            return true;
        }
        let order = super::order().unwrap_or(Order::Lifo);
        self.with(|members| {
            if !set.is_usable() {
                return true;
            }
            for member in members.iter_mut().filter(|member| member.is_some()) {
                super::count(member.fd, ListenerStat::Waits);
                let settled = member.due && !(member.is_edge() && super::is_ready(member.fd));
                if settled && order.ends_turn(member.reports) || member.missing {
                    member.renew(set.number());
                } else if settled {
                    // What was reported is gone, so what comes next may be in need of rescue.
                    member.due = false;
                }
            }
            !members.iter().any(|member| member.missing)
        })
    }

    /// Writes events of listeners that have a connection and no watch to `events`, at most
    /// `maxevents`, and returns how many. An edge is reported like a level: whether a connection is
    /// a new one cannot be found out.
    pub(crate) fn report_missing(&self, events: *mut epoll_event, maxevents: c_int) -> c_int {
        if !self.any() {
            return 0;
        }
        self.with(|members| {
            let mut written = 0;
            for member in members.iter_mut().filter(|member| member.missing) {
                let has_connection = || sys::poll_now(member.fd, libc::POLLIN) & libc::POLLIN != 0;
                if written == maxevents || !super::is_listener(member.fd) || !has_connection() {
                    continue;
                }
                let event = epoll_event { events: libc::EPOLLIN as u32, u64: member.data };
                // SAFETY: the caller of the wait gives the memory for as many.
                if !unsafe { user::store_event(events.wrapping_add(written as usize), event) } {
                    break;
                }
                written += 1;
            }
            written
        })
    }

    /// Once in each [`RESCUE`](super::RESCUE), whatever else wakes the waits in this set: a
    /// connection whose waiter has died is reported to the set.
    pub(crate) fn rescue_if_due(&self, set: &impl KernelEpoll) {
        if !self.any() || !self.last_look.until_next().is_zero() {
            return;
        }
        self.last_look.note();
        self.with(|members| {
            if !set.is_usable() {
                return;
            }
            for member in members.iter_mut().filter(|member| member.is_some()) {
                let is_reported = member.is_edge() && member.due;
                if !is_reported && super::is_ready(member.fd) {
                    member.renew(set.number());
                }
            }
        });
    }

    /// Makes the watches of a set that migrates what the program asked for. The caller holds the
    /// migrations lock.
    pub(crate) fn make_plain(&self, set: &impl KernelEpoll) {
        if !self.any() {
            return;
        }
        self.with(|members| {
            let members = members.iter_mut().filter(|member| member.is_some());
            members.for_each(|member| member.make_plain(set));
        });
    }
}
