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
//! listener: adding it again would report the same connection twice. What is there once anybody has
//! accepted may be new, and is the set's to report when another declines it.
//!
//! `batons` has the set's part in passing on what a worker was woken for and does not accept,
//! `steps` in leaving it to a worker that holds less; `alarm` is for threads that sleep there since
//! before the first listener.

mod alarm;
mod batons;
mod calm;
mod ctl;
mod leftover;
mod member;
mod others;
mod outline;
mod steps;

use super::baton::{self, Look, Rounds, note_of};
use super::shares::Share;
use super::told::telling;
use super::{ListenerStat, Order, RescueClock};
use crate::kernel_half::KernelEpoll;
use crate::sys::signal_guard::SignalSafeLock;
use crate::sys::{self, user};
use alarm::Alarm;
use calm::Calm;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use core::time::Duration;
pub(crate) use ctl::can_join;
use leftover::Leftover;
use libc::epoll_event;
use member::Member;
use others::Others;
use outline::Outline;
use wakeset::mutated;

/// Listeners in one set that are in the rotation.
const MOST: usize = 8;

/// How long a wait sleeps at most while the kernel has no memory for a watch.
const MISSING_LOOK: Duration = Duration::from_millis(5);

/// The listeners of one set.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Whether there may be members. Changed with the lock held.
    any: AtomicBool,
    /// Taken below the migrations lock; nothing is taken below it.
    lock: SignalSafeLock,
    members: UnsafeCell<[Member; MOST]>,
    /// One above the index of the last member. Changed with the lock held.
    end: AtomicUsize,
    /// Whether a member has no watch for lack of memory. Changed with the lock held.
    lacks_any: AtomicBool,
    /// One listener is, or was, watched under two numbers: no more join. Changed with the lock
    /// held.
    has_twins: AtomicBool,
    /// When a wait last checked the listeners itself.
    pub(crate) rescue_clock: RescueClock,
    /// The baton among the set's watches, -1 for none. Changed with the lock held.
    baton: AtomicI32,
    rounds: Rounds,
    /// What its threads hold of what it has told them of.
    share: Share,
    others: Others,
    /// Whether a member may have stepped back.
    has_stepped: AtomicBool,
    outline: Outline,
    calm: Calm,
    alarm: Alarm,
    leftover: Leftover,
}

// SAFETY: the members are only touched with the lock held, in `with`.
unsafe impl Sync for Rotation {}

impl Rotation {
    pub(crate) const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            lock: SignalSafeLock::new(),
            members: UnsafeCell::new([Member::NONE; MOST]),
            end: AtomicUsize::new(0),
            lacks_any: AtomicBool::new(false),
            has_twins: AtomicBool::new(false),
            rescue_clock: RescueClock::never(),
            baton: AtomicI32::new(-1),
            rounds: Rounds::none(),
            share: Share::new(),
            others: Others::none(),
            has_stepped: AtomicBool::new(false),
            outline: Outline::none(),
            calm: Calm::none(),
            alarm: Alarm::none(),
            leftover: Leftover::none(),
        }
    }

    /// Returns whether sleeps in this set are about listeners.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn with<T>(&self, f: impl FnOnce(&mut [Member; MOST]) -> T) -> T {
        self.lock.lock();
        self.calm.end();
        self.outline.begin_version();
        // SAFETY: this thread holds the lock.
        let members = unsafe { &mut *self.members.get() };
        let result = f(members);
        self.note_members(members);
        self.outline.end_version(members);
        self.lock.unlock();
        result
    }

    /// [`with`](Self::with) for waits, which add no member: those after the last one are left out,
    /// because each takes a line of a cache that the program has just used for something else.
    fn with_known<T>(&self, f: impl FnOnce(&mut [Member]) -> T) -> T {
        self.with_same(|members| {
            let result = f(members);
            self.note_members(members);
            result
        })
    }

    /// [`with_known`](Self::with_known) for what leaves the members where they are, with their
    /// watches.
    fn with_same<T>(&self, f: impl FnOnce(&mut [Member]) -> T) -> T {
        self.lock.lock();
        let end = self.end.load(Ordering::Relaxed);
        // SAFETY: this thread holds the lock.
        let members = unsafe { &mut *self.members.get() };
        let result = f(members.get_mut(..end).unwrap_or_default());
        self.lock.unlock();
        result
    }

    /// Notes which members there are, all of which are among these.
    fn note_members(&self, members: &[Member]) {
        let end = members.iter().rposition(Member::is_some).map_or(0, |last| last + 1);
        self.end.store(end, Ordering::Relaxed);
        // After the version has begun, for `note_wait`.
        self.any.store(end > 0, Ordering::Release);
        let lacks = |member: &Member| member.missing && !member.is_stepped;
        self.lacks_any.store(members.iter().any(lacks), Ordering::Relaxed);
    }

    /// Forgets all, for a new set in this slot.
    pub(crate) fn clear(&self) {
        self.has_twins.store(false, Ordering::Relaxed);
        self.baton.store(-1, Ordering::Relaxed);
        self.others.clear();
        self.has_stepped.store(false, Ordering::Relaxed);
        self.calm.begin_anew();
        self.alarm.begin_anew();
        if self.any() {
            self.with(|members| *members = [Member::NONE; MOST]);
        }
    }

    /// Notes what a wait has reported, after a sleep or without one.
    pub(crate) fn note_reports(&self, events: *const epoll_event, found: c_int, slept: bool) {
        // SAFETY: the kernel has just written `found` events there.
        if !self.any() || found <= 0 || unsafe { self.calm.is_about_others(events, found) } {
            return;
        }
        self.with_same(|members| {
            self.calm.pause();
            for i in 0..found as usize {
                // SAFETY: the kernel has just written `found` events there.
                let data = unsafe { events.add(i).read_unaligned() }.u64;
                // Another watch with the same data costs a member its position, and nothing else.
                let reported = |member: &&mut Member| member.is_some() && member.data == data;
                for member in members.iter_mut().filter(reported) {
                    member.note_report();
                    self.share.note_awake(true);
                    if let Some(telling) = telling() {
                        (telling.hold_as)(self.share.holder());
                        (telling.tell)(member.fd, member.is_edge());
                        if slept {
                            (telling.wake)(member.fd);
                        }
                    }
                    if slept {
                        super::count(member.fd, ListenerStat::Wakes);
                    }
                }
            }
        });
    }

    /// Before a sleep: puts the watches that have been reported at the end of their queues. Returns
    /// how long the wait sleeps at most, if there is a listener that is not watched.
    pub(crate) fn rotate(&self, set: &impl KernelEpoll) -> Option<Duration> {
        if !self.any() {
            self.drop_kept_baton(set);
            return None;
        }
        if self.is_calm() {
            self.sleep_calmly();
            return None;
        }
        self.with_known(|members| {
            // What a listener's event has paused does not outlast what follows.
            self.calm.end();
            if !set.is_usable() {
                return None;
            }
            let is_due = members.iter().any(|member| member.is_some() && member.due);
            let whole = || super::order_of(self.share.counted_as());
            let order = if is_due { whole() } else { super::order() };
            let order = order.unwrap_or(Order::Lifo);
            for member in members.iter_mut().filter(|member| member.is_some()) {
                if self.stays_back(member) {
                    continue;
                }
                super::count(member.fd, ListenerStat::Waits);
                // What was declined here, and is gone by now, is over.
                if Look::may_end(note_of(member.inode)) {
                    let look = Look::begin();
                    if !super::is_ready(member.fd) {
                        look.found_empty(member.fd);
                    }
                }
                let settled = member.due && !(member.is_edge() && super::is_ready(member.fd));
                if settled && order.ends_turn(member.reports) || member.missing {
                    member.renew(set.number());
                } else if settled {
                    // What was reported is gone, so what comes next may be in need of rescue.
                    member.due = false;
                }
            }
            self.place_baton(set, members);
            let notes = member::notes_of(members);
            self.share.note_sleep(notes);
            self.begin_calm(members, notes);
            if !members.iter().any(|member| member.is_stepped) {
                self.has_stepped.store(false, Ordering::Relaxed);
            }
            let missing = members.iter().filter(|member| member.missing);
            missing
                .map(
                    |member| if member.is_stepped { self.share.until_look() } else { MISSING_LOOK },
                )
                .min()
        })
    }

    /// Writes events of listeners that have a connection and no watch behind the first `filled`
    /// events, at most `maxevents` in all, and returns how many: not of those that are among these
    /// already. An edge is reported like a level: whether a connection is a new one cannot be found
    /// out.
    pub(crate) fn report_missing(
        &self,
        events: *mut epoll_event,
        filled: c_int,
        maxevents: c_int,
    ) -> c_int {
        if !self.lacks_any.load(Ordering::Relaxed) {
            return 0;
        }
        self.with_known(|members| {
            let mut written = 0;
            for member in members.iter_mut().filter(|member| member.missing && !member.is_stepped) {
                let has_connection = || sys::poll_now(member.fd, libc::POLLIN) & libc::POLLIN != 0;
                // SAFETY: the wait has found so many.
                let is_known = || unsafe { steps::has_event(events, filled, member.data) };
                if filled + written == maxevents
                    || !super::is_listener(member.fd)
                    || !has_connection()
                    || !member.is_ambiguous && is_known()
                {
                    continue;
                }
                let event = epoll_event { events: libc::EPOLLIN as u32, u64: member.data };
                // SAFETY: the caller of the wait gives the memory for as many.
                if !unsafe {
                    user::store_event(events.wrapping_add((filled + written) as usize), event)
                } {
                    break;
                }
                written += 1;
            }
            written
        })
    }

    /// Once in each [`RESCUE`](super::RESCUE), whatever else wakes the waits in this set: a
    /// connection whose waiter has died is reported to the set. Returns how long until then if the
    /// set is calm (`calm`).
    pub(crate) fn rescue_if_due(&self, set: &impl KernelEpoll) -> Option<Duration> {
        if !self.any() {
            return None;
        }
        let calm = self.calm.left();
        if calm.is_some() || !self.rescue_clock.until_next().is_zero() {
            return calm;
        }
        self.rescue(set);
        None
    }

    /// Looks at the listeners, and reports to the set what they have.
    fn rescue(&self, set: &impl KernelEpoll) {
        self.calm.begin_anew();
        self.rescue_clock.note();
        Look::begin_rescue();
        self.with_known(|members| {
            if !set.is_usable() {
                return;
            }
            for member in members.iter_mut().filter(|member| member.is_some()) {
                if member.is_stepped {
                    self.share.take_next();
                }
                let look = Look::begin();
                if !super::is_ready(member.fd) {
                    look.found_empty(member.fd);
                } else if member.is_told_by_look() {
                    member.renew(set.number());
                }
            }
        });
    }

    /// The set is closed, which its state says by now, and its number is about to go: no thread
    /// that has seen it open is still changing a watch by that number, which may be another set's
    /// next. `has_doorbell`: it has one, which may be about to get another number.
    pub(crate) fn leave_number(&self, has_doorbell: bool) {
        let has_doorbell = has_doorbell && !mutated!("doorbell_moves_beside_a_close");
        let has_watch = self.any() || self.has_baton();
        if has_watch && !mutated!("watch_moves_in_anothers_set") || has_doorbell {
            self.lock.lock();
            self.lock.unlock();
        }
    }

    /// Calls `f`, which changes a watch of a set with a doorbell by its number if that is open: a
    /// close waits for it.
    pub(crate) fn before_number_goes<T>(&self, f: impl FnOnce() -> T) -> T {
        self.with_same(|_| f())
    }

    /// Makes the watches of a set that migrates what the program asked for. The baton may just have
    /// woken a thread there, which does not find it any more: it is passed on, whatever is noted.
    /// The caller holds the migrations lock.
    pub(crate) fn make_plain(&self, set: &impl KernelEpoll) {
        self.end_alarm(set);
        if !self.any() && self.baton.load(Ordering::Relaxed) < 0 {
            return;
        }
        let left = self.with(|members| {
            let members = members.iter_mut().filter(|member| member.is_some());
            members.for_each(|member| member.make_plain(set));
            self.drop_baton(set)
        });
        if left && !mutated!("plain_set_keeps_the_baton") {
            baton::pass_locked();
        }
    }
}
