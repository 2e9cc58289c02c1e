//! epoll_wait(2), epoll_pwait(2) and epoll_pwait2(2).

use super::Interpreter;
use super::memory::{ARGUMENT, ARGUMENT_4};
use super::sink::Sink;
use crate::model::{Gathering, Model, Order};
use crate::program::{At, Mask, Op, Timeout, WaitCall};
use crate::world::{Sysno, World};
use libc::{c_int, epoll_event, timespec};

/// A buffer that has room for every event there can be.
const ROOMY: i32 = 64;
/// Events of a set with a ring that are compared in order: more than there can be watches, so that
/// each is polled. (A ring is filled with what is ready, also beyond the room of a wait. The kernel
/// does not poll what it has no room for, which keeps its place, whether it is ready or not.)
const GATHERED: i32 = 30;
/// Gathering ends at this many events: some sets report edges again and again.
const MOST_GATHERED: usize = 200;

/// The arguments of a wait.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub set: u8,
    pub maxevents: i32,
    pub timeout: Timeout,
    pub call: WaitCall,
    pub at: At,
}

impl Wait {
    /// Whether every argument but the buffer is valid.
    fn is_valid(&self) -> bool {
        let valid_time = !matches!(
            self.timeout,
            Timeout::Nonsense(seconds, nanos)
                if seconds < 0 || !(0..1_000_000_000).contains(&nanos)
        );
        let valid_call = match self.call {
            WaitCall::Wait => true,
            WaitCall::Pwait(mask) => mask != Mask::Nowhere,
            WaitCall::Pwait2(mask) => mask != Mask::Nowhere && valid_time,
        };
        let most = i32::MAX / size_of::<epoll_event>() as i32;
        (1..=most).contains(&self.maxevents) && valid_call
    }
}

impl<W: World> Interpreter<W> {
    /// Returns the result of the wait.
    pub(super) fn wait(&mut self, op: &Op, wait: Wait, sink: &mut impl Sink) -> isize {
        let set = self.number(wait.set);
        if self.by_instruction() || wait.at == At::High && wait.is_valid() {
            self.settle(set, sink);
        }
        let (result, order) = self.wait_and_gather(set, wait);
        sink.outcome(op, result, 0);
        if result > 0 {
            sink.events(order, &self.reports);
        }
        result
    }

    /// Waits, and leaves the events in `reports`, in an order that is the same on all sides.
    fn wait_and_gather(&mut self, set: c_int, wait: Wait) -> (isize, Order) {
        let order = self.model.order(set);
        let gathering =
            if wait.maxevents > 0 { self.model.gathering(set) } else { Gathering::None };
        let (maxevents, at) = self.buffer(set, wait, order, gathering);
        let order = if gathering == Gathering::News { Order::None } else { order };
        let events = self.memory.place(at, size_of::<epoll_event>());
        let mut result = self.call_wait(set, events, maxevents, wait);
        self.reports.clear();
        self.push_reports(events, result);
        if matches!(gathering, Gathering::Count | Gathering::News) && result > 0 {
            result = self.gather(set, events, maxevents, gathering);
        }
        match order {
            Order::Whole => {}
            // The sort is stable.
            Order::Halves => self.reports.sort_by_key(|(_, in_process)| *in_process),
            Order::None => self.reports.sort_unstable(),
        }
        (result, order)
    }

    /// The size and the address of the buffer. Which events a small buffer gets depends on the
    /// order of all of them; so does which ones are polled until one cannot be stored. Where
    /// the order is not defined the buffer is good and has room for all.
    fn buffer(&self, set: c_int, wait: Wait, order: Order, gathering: Gathering) -> (c_int, At) {
        let room = wait.maxevents;
        let at = match wait.at {
            At::Before(n) if gathering != Gathering::None && n > 0 => At::Good,
            // An event that could not be stored comes after what the next filling of the ring finds
            // (SEMANTICS.md, 66); a doorbell alone finds no memory either (75).
            _ if room > 0 && (gathering == Gathering::Count || self.model.polls(set)) => At::Good,
            at => at,
        };
        match (gathering, order) {
            (Gathering::OneWait, Order::Whole) => (room.max(ROOMY), at),
            (Gathering::Count, _) => (room.min(GATHERED), at),
            (Gathering::None, Order::Whole) => (room, at),
            _ if room <= 0 => (room, at),
            _ if at == At::High => (room.max(ROOMY), at),
            _ => (room.max(ROOMY), At::Good),
        }
    }

    fn call_wait(&mut self, set: c_int, events: usize, maxevents: c_int, wait: Wait) -> isize {
        let none = Some(timespec { tv_sec: 0, tv_nsec: 0 });
        let (milliseconds, limit) = match wait.timeout {
            Timeout::Zero => (0, none),
            Timeout::Micros(micros) => (
                c_int::from(micros.div_ceil(1000)),
                Some(timespec { tv_sec: 0, tv_nsec: i64::from(micros) * 1000 }),
            ),
            Timeout::Infinite if self.model.is_certainly_ready(set) => (-1, None),
            Timeout::Infinite => (0, none),
            Timeout::Nonsense(seconds, nanos) => {
                (0, Some(timespec { tv_sec: seconds.into(), tv_nsec: nanos }))
            }
        };
        let mask = |mask| match mask {
            Mask::Null => 0,
            Mask::Empty => self.memory.put(ARGUMENT_4, [0_u64; 16]),
            Mask::Nowhere => self.memory.place(At::Forbidden, 1),
        };
        let (number, limit, mask) = match wait.call {
            WaitCall::Wait => (Sysno::epoll_wait, milliseconds as usize, 0),
            WaitCall::Pwait(how) => (Sysno::epoll_pwait, milliseconds as usize, mask(how)),
            WaitCall::Pwait2(how) => {
                let limit = limit.map_or(0, |limit| self.memory.put(ARGUMENT, limit));
                (Sysno::epoll_pwait2, limit, mask(how))
            }
        };
        self.call(number, &[set as usize, events, maxevents as usize, limit, mask, 8])
    }

    /// Appends `found` events to the reports.
    fn push_reports(&mut self, events: usize, found: isize) {
        for i in 0..found.max(0) as usize {
            let event: epoll_event = self.memory.get(events + i * size_of::<epoll_event>());
            self.reports.push(((event.u64, event.events), self.model.is_of_in_process(event.u64)));
        }
    }

    /// Goes on waiting, without sleeping, and returns how many reports there are in the end.
    fn gather(&mut self, set: c_int, events: usize, maxevents: i32, gathering: Gathering) -> isize {
        loop {
            let before = self.reports.len();
            let room = if gathering == Gathering::Count {
                maxevents.min(GATHERED - before as i32)
            } else {
                maxevents
            };
            if room == 0 {
                break;
            }
            let more = [set as usize, events, room as usize, 0];
            let found = self.aside(|this| this.call(Sysno::epoll_wait, &more));
            if found <= 0 {
                break;
            }
            self.push_reports(events, found);
            if gathering == Gathering::News {
                self.drop_known_levels(before);
                let kept = self.reports.len();
                if kept == before || kept > MOST_GATHERED {
                    break;
                }
            }
        }
        self.reports.len() as isize
    }

    /// Removes the reports from `first` on that repeat a level reported before.
    fn drop_known_levels(&mut self, first: usize) {
        let mut kept = first;
        for i in first..self.reports.len() {
            let again = Model::is_of_level(self.reports[i].0.0)
                && self.reports[..kept].contains(&self.reports[i]);
            if !again {
                self.reports.swap(kept, i);
                kept += 1;
            }
        }
        self.reports.truncate(kept);
    }
}
