//! What counters, timers and streams hold, and so which calls on them would sleep.

use super::description::{ET, IN, Kind, ONESHOT};
use super::{Description, Model};

/// Bytes, with an allowance for each write, that a stream surely holds in user space on every side.
const STREAM_BYTES: u64 = 3000;
const WRITE_ALLOWANCE: u64 = 16;

impl Model {
    fn description(&self, number: i32) -> Option<&Description> {
        self.at(number).map(|at| &self.descriptions[at])
    }

    /// Whether a write of `value` would sleep.
    pub fn write_blocks(&self, number: i32, value: u64) -> bool {
        self.description(number).is_some_and(|it| {
            it.kind == Kind::Counter
                && !it.nonblocking
                && value < u64::MAX
                && it.value > u64::MAX - 1 - value
        })
    }

    /// Whether a read would sleep.
    pub fn read_blocks(&self, number: i32) -> bool {
        self.description(number).is_some_and(|it| {
            matches!(it.kind, Kind::Counter | Kind::Timer) && !it.nonblocking && it.value == 0
        })
    }

    /// Whether a wait on the set is certain to find something.
    pub fn is_certainly_ready(&self, epfd: i32) -> bool {
        let Some(set) = self.at(epfd).filter(|set| self.is_set(*set)) else { return false };
        self.descriptions[set].watches.iter().any(|watch| {
            let target = &self.descriptions[usize::from(watch.description)];
            watch.events & (ET | ONESHOT) == 0
                && watch.events & IN != 0
                && matches!(target.kind, Kind::Counter | Kind::Timer)
                && target.value > 0
        })
    }

    /// A write has succeeded.
    pub fn wrote(&mut self, number: i32, value: u64) {
        if let Some(counter) = self.at(number) {
            let counter = &mut self.descriptions[counter];
            counter.value = counter.value.saturating_add(value);
        }
    }

    /// A write of `len` bytes to a stream has succeeded. Returns whether the stream is to migrate
    /// on all sides, because it might not hold more in user space.
    pub fn wrote_to_stream(&mut self, number: i32, len: u64) -> bool {
        self.at(number).is_some_and(|stream| {
            let stream = &mut self.descriptions[stream];
            stream.value = stream.value.saturating_add(len + WRITE_ALLOWANCE);
            !stream.migrated && stream.value > STREAM_BYTES
        })
    }

    /// All that was written to a pipe has been read.
    pub fn emptied(&mut self, writer: i32) {
        if let Some(writer) = self.at(writer) {
            self.descriptions[writer].value = 0;
        }
    }

    /// A read has taken something.
    pub fn has_read(&mut self, number: i32) {
        if let Some(read) = self.at(number) {
            let counter = &mut self.descriptions[read];
            counter.value = if counter.semaphore { counter.value.saturating_sub(1) } else { 0 };
            if counter.kind == Kind::Timer {
                // The read may have set the kernel's timer again.
                self.timer_set(read);
            }
        }
    }

    /// A timer has been set, to a time that has passed or to one that has not.
    pub fn set_timer(&mut self, number: i32, expired: bool) {
        if let Some(timer) = self.at(number) {
            self.near = self.near.filter(|near| usize::from(*near) != timer);
            self.descriptions[timer].value = u64::from(expired);
            self.timer_set(timer);
        }
    }

    /// A timer has been set to a time that comes soon.
    pub fn set_near_timer(&mut self, number: i32) {
        self.set_timer(number, false);
        self.near = self.at(number).map(|timer| timer as u8);
    }

    /// Whether there is a timer that expires soon.
    pub fn has_near_timer(&self) -> bool {
        self.near.is_some()
    }

    /// Whether this is that timer.
    pub fn is_near_timer(&self, number: i32) -> bool {
        self.near.is_some_and(|near| self.at(number) == Some(usize::from(near)))
    }

    /// The timer that was to expire soon has expired; a number of it, if it has one.
    pub fn near_timer_expired(&mut self) -> Option<i32> {
        let timer = usize::from(self.near.take()?);
        self.descriptions[timer].value = 1;
        self.open.iter().copied().find(|number| self.at(*number) == Some(timer))
    }

    /// `O_NONBLOCK` has been turned on or off.
    pub fn set_nonblocking(&mut self, number: i32, on: bool) {
        if let Some(at) = self.at(number) {
            self.descriptions[at].nonblocking = on;
        }
    }
}
