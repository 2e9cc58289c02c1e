//! The listeners of one set. Their alarm, and the word by which the set is calm, are what they are
//! in every build; nothing else is done for them.

#[path = "../../../src/kernel_half/listeners/rotation/alarm.rs"]
mod alarm;

use super::RESCUE;
use super::calm::Calm;
use super::members::Member;
use crate::kernel_half::KernelEpoll;
use crate::set::FdSet;
use crate::sys::sync::{AtomicBool, Ordering};
use crate::sys::{self, Errno};
use alarm::Alarm;
use core::ffi::c_int;
use core::time::Duration;
use libc::{EPOLL_CTL_ADD, epoll_event};
use loom::sync::Mutex;
use wakeset::{Deadline, Events, Timeout};

/// Listeners in one set.
const MOST: usize = 2;

pub(crate) fn can_join(_: Events) -> bool {
    false
}

#[derive(Debug)]
pub(crate) struct Rotation {
    any: AtomicBool,
    members: Mutex<[Member; MOST]>,
    pub(crate) rescue_clock: RescueClock,
    alarm: Alarm,
    calm: Calm,
}

#[derive(Debug)]
pub(crate) struct RescueClock;

impl RescueClock {
    pub(crate) fn next(&self) -> Deadline {
        Deadline::of(Timeout::After(RESCUE)).unwrap()
    }

    pub(crate) fn until_next(&self) -> Duration {
        RESCUE
    }
}

impl Rotation {
    pub(crate) fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            members: Mutex::new([Member::NONE; MOST]),
            rescue_clock: RescueClock,
            alarm: Alarm::none(),
            calm: Calm::none(),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut [Member; MOST]) -> T) -> T {
        let mut members = self.members.lock().unwrap();
        self.calm.end();
        let result = f(&mut members);
        let mut watched = members.iter().filter(|member| member.is_some());
        let first = watched.next();
        self.any.store(first.is_some(), Ordering::Relaxed);
        if let Some(first) = first {
            let second = watched.next().unwrap_or(first);
            self.calm.begin([first.data, second.data], 0, self.rescue_clock.next());
        }
        result
    }

    /// epoll_ctl(2) of a listener in this place, as `ctl` has it: an addition, or a removal.
    /// Returns whether the set has got its first listener by it.
    pub(crate) fn epoll_ctl(
        &self,
        set: &FdSet,
        op: c_int,
        fd: c_int,
        event: epoll_event,
        place: usize,
    ) -> Result<bool, Errno> {
        let result = self.with(|members| {
            let is_first = !members.iter().any(Member::is_some);
            sys::epoll_ctl(set.fd(), op, fd, &raw const event)?;
            let member = Member { fd, data: event.u64, is_ambiguous: false, inode: None };
            members[place] = if op == EPOLL_CTL_ADD { member } else { Member::NONE };
            Ok(is_first && members.iter().any(Member::is_some))
        });
        self.leave_baton_alone(set);
        result
    }

    /// As there; there is no baton.
    fn leave_baton_alone(&self, set: &FdSet) {
        if !self.any() && self.alarm.is_set() {
            self.with(|members| self.alarm.ends_with_the_last(set, members));
        }
    }

    /// Whether the set's alarm is set.
    pub(crate) fn has_alarm(&self) -> bool {
        self.alarm.is_set()
    }

    pub(crate) fn make_plain(&self, _: &impl KernelEpoll) {
        unreachable!("a doorbell is there, and a timer")
    }

    fn rescue(&self, _: &impl KernelEpoll) {}

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.is()
    }

    pub(crate) fn is_calm_alone(&self) -> bool {
        self.is_calm()
    }

    pub(crate) fn sleep_calmly(&self) {}

    pub(crate) fn wake_calmly(&self) {}

    pub(crate) fn mind(&self, _: &FdSet, _: Deadline) {}

    pub(crate) fn takes(&self) -> bool {
        true
    }

    pub(crate) fn calm_left(&self, _: Deadline) -> Option<c_int> {
        self.is_calm().then_some(RESCUE.as_millis() as c_int)
    }

    pub(crate) fn is_listeners(&self, event: epoll_event) -> bool {
        self.calm.is_listeners(event)
    }

    pub(crate) fn may_spin(&self) -> bool {
        true
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn rotate(&self, _: &FdSet) -> Option<Duration> {
        None
    }

    pub(crate) fn rescue_if_due(&self, _: &FdSet) -> Option<Duration> {
        None
    }

    pub(crate) fn note_reports(&self, _: *const epoll_event, _: c_int, _: bool) {}

    pub(crate) fn looks_first(&self) -> bool {
        false
    }

    pub(crate) fn note_nothing(&self) {}

    pub(crate) fn take_baton(&self, _: &FdSet, _: c_int) -> bool {
        false
    }

    pub(crate) fn step_back(&self, _: &FdSet, _: *mut epoll_event, found: c_int) -> (c_int, bool) {
        (found, false)
    }

    pub(crate) unsafe fn leave_for_now(&self, _: *mut epoll_event, found: c_int) -> c_int {
        found
    }

    pub(crate) fn outstays(&self, _: impl FnOnce() -> Duration) -> bool {
        false
    }

    pub(crate) fn end_wait(&self, _: &FdSet) {}

    pub(crate) fn has_baton(&self) -> bool {
        false
    }

    pub(crate) fn note_sleep(&self, _: c_int, _: c_int) {}

    pub(crate) fn begin_wait(&self) -> (u32, u32) {
        (0, 0)
    }

    pub(crate) fn note_wait(&self, _: (u32, u32), _: c_int, _: c_int) {}

    pub(crate) fn note_other(&self, _: u64) {}

    pub(crate) fn report_missing(&self, _: *mut epoll_event, _: c_int, _: c_int) -> c_int {
        0
    }
}
