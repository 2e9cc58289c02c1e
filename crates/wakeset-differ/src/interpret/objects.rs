//! Calls that make and close objects, and the attributes of descriptors.

use super::Interpreter;
use super::memory::{ARGUMENT, ARGUMENT_3};
use super::sink::{Outcome, Sink};
use crate::model::Kind;
use crate::program::{At, Op, Time};
use crate::world::{Sysno, World};
use libc::{c_int, timespec};

impl<W: World> Interpreter<W> {
    pub(super) fn can_make(&self, n: u32) -> Option<()> {
        self.model.has_room(n).then_some(())
    }

    pub(super) fn make_counter(&mut self, slot: u8, initial: u32, flags: c_int) -> Option<isize> {
        self.can_make(1)?;
        let result = self.call(Sysno::eventfd2, &[initial as usize, flags as usize]);
        if result >= 0 {
            self.model.made_counter(result as c_int, initial, flags);
            self.set_slot(slot, result as c_int);
        }
        Some(self.shown(result))
    }

    pub(super) fn make_timer(&mut self, slot: u8, flags: c_int) -> Option<isize> {
        self.can_make(1)?;
        let arguments = [libc::CLOCK_MONOTONIC as usize, flags as usize];
        let result = self.call(Sysno::timerfd_create, &arguments);
        if result >= 0 {
            self.model.made_timer(result as c_int, flags);
            self.set_slot(slot, result as c_int);
        }
        Some(self.shown(result))
    }

    pub(super) fn make_set(&mut self, slot: u8, flags: c_int) -> Option<isize> {
        self.can_make(1)?;
        let result = self.call(Sysno::epoll_create1, &[flags as usize]);
        self.made(result, slot, Kind::Set);
        Some(self.shown(result))
    }

    pub(super) fn open_directory(&mut self, slot: u8) -> Option<isize> {
        self.can_make(1)?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let result = self.call(Sysno::open, &[c"/".as_ptr().addr(), flags as usize]);
        self.made(result, slot, Kind::Other);
        Some(self.shown(result))
    }

    pub(super) fn made(&mut self, result: isize, slot: u8, kind: Kind) {
        if result >= 0 {
            self.model.made(result as c_int, kind);
            self.set_slot(slot, result as c_int);
        }
    }

    /// A pipe or a socket pair. Every second one keeps its messages apart: such objects are always
    /// the kernel's.
    pub(super) fn make_pair(&mut self, op: &Op, slot: u8, other: u8) -> Option<Outcome> {
        self.can_make(2)?;
        let pair = self.memory.put(ARGUMENT, [-1, -1]);
        let kernels = slot.is_multiple_of(2);
        let result = if let Op::Pipe { .. } = op {
            let flags = libc::O_NONBLOCK | if kernels { libc::O_DIRECT } else { 0 };
            self.call(Sysno::pipe2, &[pair, flags as usize])
        } else {
            let kind = if kernels { libc::SOCK_SEQPACKET } else { libc::SOCK_STREAM };
            let kind = (libc::SOCK_NONBLOCK | kind) as usize;
            self.call(Sysno::socketpair, &[libc::AF_UNIX as usize, kind, 0, pair])
        };
        if result != 0 {
            return Some(result.into());
        }
        let [first, second] = self.memory.get::<[c_int; 2]>(pair);
        if kernels {
            self.model.made(first, Kind::Other);
            self.model.made(second, Kind::Other);
        } else {
            let sockets = matches!(op, Op::Sockets { .. });
            self.model.made_streams([first, second], sockets);
        }
        self.set_slot(slot, first);
        self.set_slot(other, second);
        let numbers = (first as u64) << 32 | second as u64;
        Some(Outcome { result, beside: self.shown_beside(numbers) })
    }

    pub(super) fn close(&mut self, slot: u8, sink: &mut impl Sink) -> isize {
        let number = self.number(slot);
        self.before_close(number, sink);
        let result = self.call(Sysno::close, &[number as usize]);
        if result == 0 {
            self.closed(number);
        }
        result
    }

    pub(super) fn close_all(&mut self, sink: &mut impl Sink) {
        self.end_children();
        while let Some(number) = self.model.first_open() {
            let result = self.call(Sysno::close, &[number as usize]);
            self.model.closed(number);
            sink.outcome(&Op::CloseAll, result, self.shown_beside(number as u64));
        }
    }

    /// Turns `O_NONBLOCK` of a counter, timer or set on or off. Streams and the kernel's objects
    /// stay non-blocking.
    pub(super) fn set_nonblocking(&mut self, slot: u8, on: bool, ioctl: bool) -> Option<isize> {
        let number = self.number(slot);
        if matches!(self.model.kind(number), Some(Kind::Other | Kind::Stream)) {
            return None;
        }
        let result = if ioctl {
            let flag = self.memory.put(ARGUMENT, c_int::from(on));
            self.call(Sysno::ioctl, &[number as usize, libc::FIONBIO as usize, flag])
        } else {
            let flags = if on { libc::O_NONBLOCK } else { 0 };
            self.call(Sysno::fcntl, &[number as usize, libc::F_SETFL as usize, flags as usize])
        };
        if result == 0 {
            self.model.set_nonblocking(number, on);
        }
        Some(result)
    }

    /// timerfd_settime(2). The outcome has the interval of the old setting, and whether there was
    /// time left.
    pub(super) fn set_timer(&mut self, slot: u8, time: Time, at: At) -> Option<Outcome> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        if !self.model.can_set_timer(number) || !self.model.is_parents(number) {
            return None;
        }
        let (flags, spec) = match time {
            Time::Near => self.near_setting()?,
            _ => timer_setting(time)?,
        };
        let place = self.memory.put_at(at, spec);
        let old = self.memory.put(ARGUMENT_3, [u64::MAX; 4]);
        let arguments = [number as usize, flags as usize, place, old];
        let result = self.call(Sysno::timerfd_settime, &arguments);
        if result != 0 {
            return Some(result.into());
        }
        let expired = matches!(time, Time::Past | Time::PastAndAgain);
        if time == Time::Near {
            self.model.set_near_timer(number);
        } else {
            self.model.set_timer(number, expired);
        }
        if expired {
            self.world.until_expired(number);
        }
        let [seconds, nanos, left @ ..] = self.memory.get::<[u64; 4]>(old);
        let beside = seconds << 2 | (nanos & 1) << 1 | u64::from(left != [0; 2]);
        Some(Outcome { result, beside })
    }

    /// timerfd_gettime(2). The outcome has the interval, and whether no time is left, or about as
    /// much as timers are set to, or something else. One that is to expire soon is not asked.
    pub(super) fn time_left(&mut self, slot: u8) -> Option<Outcome> {
        let number = self.number(slot);
        self.no_doorbell(number)?;
        if self.model.is_near_timer(number) {
            return None;
        }
        let place = self.memory.put(ARGUMENT, [u64::MAX; 4]);
        let result = self.call(Sysno::timerfd_gettime, &[number as usize, place]);
        if result != 0 {
            return Some(result.into());
        }
        let [seconds, nanos, left @ ..] = self.memory.get::<[u64; 4]>(place);
        let left = match left {
            [0, 0] => 0,
            [whole, part] if (CENTURY - YEAR..=CENTURY).contains(&whole) && part < 1 << 30 => 1,
            _ => 2,
        };
        Some(Outcome { result, beside: seconds << 3 | (nanos & 1) << 2 | left })
    }
}

/// In seconds.
const CENTURY: u64 = 100 * YEAR;

/// How much later or earlier than another side one may ask.
const YEAR: u64 = 365 * 24 * 3600;

/// Flags and setting; `None` if the timer might expire while the program runs, so that a later call
/// may or may not meet that.
fn timer_setting(time: Time) -> Option<(c_int, libc::itimerspec)> {
    const CENTURY: i64 = self::CENTURY as i64;
    let (flags, seconds, nanos, interval) = match time {
        Time::Past => (libc::TFD_TIMER_ABSTIME, 0, 1, 0),
        Time::PastAndAgain => (libc::TFD_TIMER_ABSTIME, 0, 1, CENTURY),
        // The caller's.
        Time::Near => return None,
        Time::Far => (0, CENTURY, 0, 0),
        Time::Never => (0, 0, 0, 0),
        Time::Nonsense(flags, 0 | 1, 0) if flags & !libc::TFD_TIMER_ABSTIME == 0 => return None,
        Time::Nonsense(flags, seconds, nanos) => (flags, seconds.into(), nanos, 0),
    };
    let spec = libc::itimerspec {
        it_interval: timespec { tv_sec: interval, tv_nsec: 0 },
        it_value: timespec { tv_sec: seconds, tv_nsec: nanos },
    };
    Some((flags, spec))
}
