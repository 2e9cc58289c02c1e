//! The wait for a connection.

use super::{
    Errno, Group, MOST, Numbers, Obstacle, Order, RESCUE, Sleeper, Wanted, is_listening, is_ready,
};
use crate::sys;
use core::ffi::c_int;
use core::time::Duration;
use libc::{epoll_event, pollfd};
use wakeset::{Deadline, Timeout};

/// Waits for connections to a [`Group`]'s listener. It has an epoll set and a timerfd, from its
/// first wait on; a forked child makes its own.
///
/// A waiter is used by one thread at a time. Its functions are not async-signal-safe: a handler
/// that leaves one of them by a jump may leave a descriptor open.
#[derive(Debug)]
pub struct Waiter {
    group: Group,
    /// The process that has made the descriptors; 0: there are none yet. A forked child makes its
    /// own.
    process: u32,
    /// A timerfd that is ready when the listener is to be polled; -1 for none.
    timer: c_int,
    sleeper: Sleeper,
}

impl Waiter {
    pub(super) fn new(group: Group) -> Self {
        Self { group, process: 0, timer: -1, sleeper: Sleeper::new() }
    }

    /// Sleeps until this waiter is to accept a connection (`true`) or the time is up (`false`). A
    /// `limit` of `None` is no limit. The signal mask stays as it is.
    ///
    /// Another thread may be faster with accept(2), which then fails with EAGAIN; the waiter then
    /// waits again. A listener that was shut down counts as ready, as for poll(2).
    ///
    /// # Errors
    /// EINTR: a signal handler ran, or the process was stopped and continued. EBADF, ENOTSOCK,
    /// EINVAL: the descriptor is no longer a listening socket. EINVAL: Linux is older than 4.5.
    /// EMFILE, ENFILE, ENOMEM, ENOSPC: as epoll_create1(2) and epoll_ctl(2).
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<bool, Errno> {
        self.wait_beside(&mut [], limit)
    }

    /// As [`wait`](Self::wait); also returns `false` when poll(2) reports something about one of
    /// `others`, whose `revents` are written as poll(2) does. An entry with a negative number is
    /// ignored.
    ///
    /// When a number comes to stand for another file, one call in between has to leave it out.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and for `others`: EBADF if one is closed, EPERM if one is a regular
    /// file, EINVAL if one is the listener or is there twice, E2BIG if there are [`MOST`] or more.
    pub fn wait_beside(
        &mut self,
        others: &mut [pollfd],
        limit: Option<Duration>,
    ) -> Result<bool, Errno> {
        let deadline = Deadline::of(Timeout::from(limit));
        let mut wanted = [Wanted::NONE; MOST];
        let wanted = self.fill(&mut wanted, others)?;
        others.iter_mut().for_each(|other| other.revents = 0);
        let Some(order) = self.group.order else {
            return self.sleep_unordered(others, deadline.map(Deadline::remaining));
        };
        let mut numbers = Numbers::Same;
        if self.process != wakeset::process_id() {
            self.renew()?;
            numbers = Numbers::Unknown;
        }
        if self.sleeper.should_check_first(wanted, order) {
            // A connection that is there already is taken without a place in the queue.
            if let Some(ended) = self.sleep(others, Some(Duration::ZERO), false)? {
                return Ok(ended);
            }
        }
        self.prepare(wanted, order, numbers)?;
        loop {
            let left = deadline.map(Deadline::remaining);
            if let Some(ended) = self.sleep(others, left, true)? {
                return Ok(ended);
            }
            if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return Ok(false);
            }
        }
    }

    /// The listener, then the others.
    fn fill<'a>(
        &self,
        wanted: &'a mut [Wanted; MOST],
        others: &[pollfd],
    ) -> Result<&'a [Wanted], Errno> {
        let listener = self.group.listener;
        let mut len = 0;
        let mut push = |fd, events, listener| {
            let (before, after) = wanted.split_at_mut(len);
            if before.iter().any(|before: &Wanted| before.fd == fd) {
                return Err(Errno::EINVAL);
            }
            *after.first_mut().ok_or(Errno::E2BIG)? = Wanted { fd, events, listener };
            len += 1;
            Ok(())
        };
        push(listener, libc::EPOLLIN as u32, true)?;
        for other in others.iter().filter(|other| other.fd >= 0) {
            push(other.fd, u32::from(other.events as u16), false)?;
        }
        Ok(wanted.get(..len).unwrap_or_default())
    }

    /// One sleep; `None` if there is nothing to report. With `polls`, a sleep that nothing has
    /// ended but its limit is followed by a poll of the listener.
    fn sleep(
        &mut self,
        others: &mut [pollfd],
        left: Option<Duration>,
        polls: bool,
    ) -> Result<Option<bool>, Errno> {
        // Without a timer each sleep has a limit of its own.
        let limit =
            if self.sleeper.is_timed() { left } else { Some(left.unwrap_or(RESCUE).min(RESCUE)) };
        let mut events = [epoll_event { events: 0, u64: 0 }; 8];
        let found = sys::epoll_wait(self.sleeper.set(), &mut events, limit)?;
        let mut fired = self.sleeper.sort(events.get(..found).unwrap_or_default());
        if fired.timer && sys::set_timer(self.timer, RESCUE).is_err() {
            // The program has closed a descriptor that is not its own.
            self.sleeper.forget_timer();
        }
        if fired.other && sys::poll_now(others)? == 0 {
            fired.other = false;
        }
        let listener = self.group.listener;
        // Also when nothing woke this thread: that is the rescue.
        if fired.listener || (fired.timer || found == 0 && polls) && is_ready(listener) {
            self.sleeper.note_report(listener);
            return Ok(Some(true));
        }
        Ok(fired.other.then_some(false))
    }

    /// The wait of a group without an order: poll(2) itself.
    fn sleep_unordered(
        &self,
        others: &mut [pollfd],
        left: Option<Duration>,
    ) -> Result<bool, Errno> {
        let listener = self.group.listener;
        if !is_listening(listener)? {
            return Err(Errno::EINVAL);
        }
        let mut entries = [pollfd { fd: -1, events: 0, revents: 0 }; MOST];
        let entries = entries.get_mut(..=others.len()).ok_or(Errno::E2BIG)?;
        let [first, rest @ ..] = entries else { return Err(Errno::E2BIG) };
        *first = pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        rest.copy_from_slice(others);
        sys::poll(entries, left)?;
        let [first, rest @ ..] = entries else { return Err(Errno::E2BIG) };
        if rest.iter().any(|other| other.revents & libc::POLLNVAL != 0) {
            return Err(Errno::EBADF);
        }
        others.copy_from_slice(rest);
        Ok(first.revents != 0)
    }

    fn prepare(&mut self, wanted: &[Wanted], order: Order, numbers: Numbers) -> Result<(), Errno> {
        let mut result = self.sleeper.prepare(wanted, order, numbers);
        if result == Err(Obstacle::Stale) {
            self.renew()?;
            result = self.sleeper.prepare(wanted, order, Numbers::Unknown);
        }
        match result {
            Ok(()) => Ok(()),
            Err(Obstacle::Refused(error)) => Err(error),
            Err(Obstacle::Stale) => Err(Errno::EBADF),
        }
    }

    /// Makes new descriptors. The old ones, which a forked child may have inherited, are closed.
    fn renew(&mut self) -> Result<(), Errno> {
        let set = sys::epoll_create()?;
        self.close();
        self.sleeper.adopt(set);
        self.process = wakeset::process_id();
        self.timer = sys::timer().unwrap_or(-1);
        if sys::set_timer(self.timer, RESCUE).is_ok() {
            self.sleeper.watch_timer(self.timer);
        }
        Ok(())
    }

    fn close(&mut self) {
        if self.process != 0 {
            sys::close(self.sleeper.set());
        }
        if self.timer >= 0 {
            sys::close(self.timer);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.close();
    }
}
