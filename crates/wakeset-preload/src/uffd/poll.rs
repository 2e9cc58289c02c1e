//! poll(2) and ppoll(2) on descriptors one of which is a userfaultfd.

use super::groups::{find, is_off};
use super::read::errno;
use super::thread::{CALL, Call, borrow_doorbell, has_doorbell, silence_doorbell};
use super::using::{Place, Using};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use libc::{nfds_t, pollfd, sigset_t, timespec};
use syscalls::Errno;
use wakeset_fd::count::count;
use wakeset_fd::interpose::{fail, timespec_of};
use wakeset_fd::listeners::RESCUE;
use wakeset_fd::signal_guard::SignalGuard;
use wakeset_fd::stats::Stat;
use wakeset_fd::{user, waits};
use wakeset_group::leader::{Waiter, Woken};

/// Descriptors in a poll(2) beside a userfaultfd; with more the call is the kernel's.
const MOST_POLLED: usize = 64;

/// A call of poll(2) or ppoll(2) as it was made.
struct Polling<'a> {
    fds: *mut pollfd,
    /// Which entry is the userfaultfd's.
    index: usize,
    deadline: Option<Duration>,
    mask: *const sigset_t,
    /// The call itself, with what is left of its time.
    call: &'a mut dyn FnMut(Option<Duration>) -> c_int,
}

/// poll(2) or ppoll(2) with a limit that is not zero, on descriptors one of which is a userfaultfd;
/// `None` for a call that is the kernel's.
///
/// # Safety
/// As ppoll(2).
#[inline]
pub(crate) unsafe fn poll(
    fds: *mut pollfd,
    n: nfds_t,
    limit: Option<Duration>,
    mask: *const sigset_t,
    call: &mut dyn FnMut(Option<Duration>) -> c_int,
) -> Option<c_int> {
    if super::groups::USED.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { poll_in_group(fds, n, limit, mask, call) }
}

unsafe fn poll_in_group(
    fds: *mut pollfd,
    n: nfds_t,
    limit: Option<Duration>,
    mask: *const sigset_t,
    call: &mut dyn FnMut(Option<Duration>) -> c_int,
) -> Option<c_int> {
    let n = usize::try_from(n).ok().filter(|n| *n <= MOST_POLLED)?;
    let mut copies = [pollfd { fd: -1, events: 0, revents: 0 }; MOST_POLLED + 1];
    let mut found = None;
    for (i, copy) in copies.iter_mut().enumerate().take(n) {
        // SAFETY: any bits are a pollfd.
        *copy = unsafe { user::load(fds.wrapping_add(i)) }?;
        if find(copy.fd).is_some() {
            // Two of them, or one that is polled for something else.
            if found.is_some() || copy.events & libc::POLLIN == 0 {
                return None;
            }
            found = Some(i);
        }
    }
    let index = found?;
    let using = Using::begin(copies[index].fd)?;
    if !using.is_nonblocking() {
        // poll(2) says POLLERR at once.
        return None;
    }
    // Besides the turn the call waits for other descriptors: then a doorbell tells it of the turn.
    let doorbell =
        if n > 1 || !mask.is_null() { Some(borrow_doorbell(using.group)?) } else { None };
    copies[index] = pollfd { fd: doorbell.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    let deadline = limit.map(|limit| now().saturating_add(limit));
    let polling = Polling { fds, index, deadline, mask, call };
    let result = polling.run(&using, doorbell, &mut copies[..n]);
    let _guard = SignalGuard::enter();
    CALL.with(Call::return_doorbell);
    Some(result)
}

/// How a sleep in the queue ended.
enum Slept {
    /// The thread was given the turn.
    Given,
    /// The turn was taken from a thread that had kept it too long.
    Rescued,
    /// The thread is no longer in the queue.
    Out,
    Interrupted,
    /// Another descriptor of the call is ready, or something is wrong with the call, which will
    /// say so.
    Check,
    TimeUp,
}

impl Polling<'_> {
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(now()))
    }

    fn run(mut self, using: &Using, doorbell: Option<c_int>, copies: &mut [pollfd]) -> c_int {
        loop {
            let waiter = Waiter::new(doorbell);
            let mut place = using.join(&waiter);
            while place != Place::Out {
                if is_off() {
                    using.give_up(&waiter, place);
                    let left = self.left();
                    return (self.call)(left);
                }
                if doorbell.is_some() && !has_doorbell() {
                    // A handler has run.
                    using.give_up(&waiter, place);
                    return fail(libc::EINTR) as c_int;
                }
                if place == Place::Leads {
                    return self.make_call(using);
                }
                place = match self.sleep(using, &waiter, doorbell, copies) {
                    Slept::Rescued => Place::Leads,
                    Slept::Given | Slept::Out => using.take(&waiter),
                    ended => {
                        using.leave(&waiter);
                        if let Some(result) = self.after_leaving(ended) {
                            return result;
                        }
                        Place::Out
                    }
                };
            }
        }
    }

    /// After a sleep that has not brought the turn. `None`: the thread queues again.
    fn after_leaving(&mut self, ended: Slept) -> Option<c_int> {
        if matches!(ended, Slept::Interrupted) {
            return Some(fail(libc::EINTR) as c_int);
        }
        let found = (self.call)(Some(Duration::ZERO));
        (found != 0 || matches!(ended, Slept::TimeUp)).then_some(found)
    }

    /// Makes the call with the turn, which the thread keeps if it is told of a message.
    fn make_call(&mut self, using: &Using) -> c_int {
        let left = self.left();
        let found = (self.call)(left);
        let error = errno();
        let has_message = found > 0 && self.has_message();
        using.finish(has_message);
        CALL.with(|call| call.has_message.set(has_message));
        count(Stat::UffdWakes, usize::from(has_message));
        if found < 0 {
            fail(error);
        }
        found
    }

    /// Whether the call has reported a message.
    fn has_message(&self) -> bool {
        // SAFETY: any bits are a pollfd.
        let entry = unsafe { user::load(self.fds.wrapping_add(self.index).cast_const()) };
        entry.is_some_and(|entry| entry.revents & libc::POLLIN != 0)
    }

    fn sleep(
        &self,
        using: &Using,
        waiter: &Waiter,
        doorbell: Option<c_int>,
        copies: &mut [pollfd],
    ) -> Slept {
        loop {
            let left = self.left();
            if left == Some(Duration::ZERO) {
                return Slept::TimeUp;
            }
            // In this order: a thread that has got the turn since has another stamp.
            let stamp = using.group.stamp();
            let until = Some(using.group.told.until_next()).filter(|until| !until.is_zero());
            if until.is_none() && using.rescue(waiter, stamp) {
                return Slept::Rescued;
            }
            let until = until.unwrap_or(RESCUE);
            let limit = timespec_of(left.map_or(until, |left| left.min(until)));
            let ended = match doorbell {
                None => match waiter.sleep(Some(&limit)) {
                    Woken::Heir => Some(Slept::Given),
                    Woken::Out => Some(Slept::Out),
                    Woken::Interrupted => Some(Slept::Interrupted),
                    Woken::TimedOut => None,
                },
                Some(_) => self.sleep_by_doorbell(waiter, copies, &limit),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn sleep_by_doorbell(
        &self,
        waiter: &Waiter,
        copies: &mut [pollfd],
        limit: &timespec,
    ) -> Option<Slept> {
        let (entries, n) = (copies.as_mut_ptr(), copies.len());
        // Of what ppoll(2) writes back only the doorbell's entry is read.
        // SAFETY: entries of ours, and the caller's mask or null.
        let slept = unsafe { waits::ppoll(entries, n, Some(limit), self.mask.cast()) };
        let was_rung = copies[self.index].revents != 0;
        if was_rung {
            silence_doorbell();
        }
        match slept {
            Err(Errno::EINTR) => Some(Slept::Interrupted),
            _ if !has_doorbell() => Some(Slept::Interrupted),
            _ if waiter.is_heir() => Some(Slept::Given),
            _ if !waiter.is_queued() => Some(Slept::Out),
            Err(_) => Some(Slept::Check),
            Ok(found) if found > usize::from(was_rung) => Some(Slept::Check),
            Ok(_) => None,
        }
    }
}

fn now() -> Duration {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: memory for the time. The call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, ptr::from_mut(&mut time)) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
