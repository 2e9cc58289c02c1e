//! How long a wait may take, and with which signal mask.

use crate::sys::user;
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::timespec;
use wakeset::{Deadline, Timeout};

/// How long a wait may take, in the form it was asked for.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// epoll_wait(2) and epoll_pwait(2): milliseconds, negative for no limit.
    Milliseconds(c_int),
    /// epoll_pwait2(2): null for no limit.
    Timespec(*const timespec),
}

impl Limit {
    /// The milliseconds of epoll_wait(2).
    pub fn milliseconds(self) -> c_int {
        match self {
            Self::Milliseconds(limit) => limit,
            Self::Timespec(_) => -1,
        }
    }

    /// The time of epoll_pwait2(2).
    pub fn timespec(self) -> *const timespec {
        match self {
            Self::Milliseconds(_) => ptr::null(),
            Self::Timespec(limit) => limit,
        }
    }

    /// How long a wait may take. `None`: the pointer is bad, or the time is not valid.
    ///
    /// # Safety
    /// The memory, if it is there, is not written by another thread at the same time.
    pub(crate) unsafe fn timeout(self) -> Option<Timeout> {
        let limit = match self {
            Self::Milliseconds(milliseconds) => return Some(Timeout::from_millis(milliseconds)),
            Self::Timespec(limit) if limit.is_null() => return Some(Timeout::Never),
            Self::Timespec(limit) => limit,
        };
        // SAFETY: any bits are a timespec.
        let timespec { tv_sec, tv_nsec } = unsafe { user::load(limit) }?;
        match (u64::try_from(tv_sec), u32::try_from(tv_nsec)) {
            (Ok(seconds), Ok(nanos @ 0..=999_999_999)) => {
                Some(Timeout::from(Some(Duration::new(seconds, nanos))))
            }
            _ => None,
        }
    }
}

/// What is left of the limit of a wait that the kernel answers: something of ours may end its sleep
/// before the time is up.
#[derive(Debug)]
pub struct Rest {
    asked: Limit,
    begun: Option<Deadline>,
    left: Cell<timespec>,
}

impl Rest {
    /// For a wait that begins now. The program's memory is the kernel's to look at first: a fault
    /// that it says EFAULT to may be the thread's end here.
    pub fn of(asked: Limit) -> Self {
        let takes_time = match asked {
            Limit::Milliseconds(limit) => limit > 0,
            Limit::Timespec(limit) => !limit.is_null(),
        };
        let left = Cell::new(timespec_of(Duration::ZERO));
        Self { asked, begun: takes_time.then(Deadline::now), left }
    }

    /// The limit of a wait for the rest of the time, in the form it was asked for. It is valid
    /// until this is called again, or goes.
    ///
    /// # Safety
    /// The kernel has accepted the limit that was asked for.
    pub unsafe fn limit(&self) -> Limit {
        let Some(begun) = self.begun else { return self.asked };
        // SAFETY: it is there.
        let Some(Timeout::After(whole)) = (unsafe { self.asked.timeout() }) else {
            return self.asked;
        };
        let passed = Deadline::now().since_boot().saturating_sub(begun.since_boot());
        let left = whole.saturating_sub(passed);
        match self.asked {
            Limit::Milliseconds(_) => Limit::Milliseconds(milliseconds_of(left)),
            Limit::Timespec(_) => {
                self.left.set(timespec_of(left));
                Limit::Timespec(self.left.as_ptr())
            }
        }
    }
}

/// In milliseconds, rounded up so as not to end early.
pub(crate) fn milliseconds_of(left: Duration) -> c_int {
    let part = u64::from(left.subsec_nanos().div_ceil(1_000_000));
    let whole = left.as_secs().saturating_mul(1000).saturating_add(part);
    c_int::try_from(whole).unwrap_or(c_int::MAX)
}

/// The signal mask of epoll_pwait(2): a pointer, null for none, and the size that was given with
/// it. A size of 0 says that the call was epoll_wait(2), which a filter may know alone.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// The kernel's signal set.
    pub set: *const u8,
    /// Its size in bytes.
    pub bytes: usize,
}

impl Mask {
    /// That of epoll_wait(2).
    pub const NONE: Self = Self { set: ptr::null(), bytes: 0 };
}

/// When a wait ends: as asked for, or, once time has passed, at a deadline.
#[derive(Clone, Copy)]
pub(super) struct Until {
    pub(super) deadline: Option<Option<Deadline>>,
    pub(super) timeout: Timeout,
    /// It is the end of a sleep alone, which is earlier.
    pub(super) is_cut: bool,
}

impl Until {
    /// When a wait ends for which nothing else is said.
    pub(super) fn of(timeout: Timeout) -> Self {
        Self { deadline: None, timeout, is_cut: false }
    }

    /// The same, or `limit` from now if that is earlier.
    pub(super) fn at_most(self, limit: Duration) -> Self {
        let soon = self.soon_at_most(limit);
        Self { deadline: Some(Deadline::of(soon.timeout)), timeout: self.timeout, ..soon }
    }

    /// The same, or then if that is earlier. Unlike [`at_most`](Self::at_most) it mostly reads no
    /// clock.
    pub(super) fn no_later_than(self, end: Deadline) -> Self {
        let own = self.deadline.unwrap_or_else(|| Deadline::of(self.timeout));
        let is_cut = self.is_cut || own.is_none_or(|own| end < own);
        Self { deadline: Some(Some(own.map_or(end, |own| own.min(end)))), is_cut, ..self }
    }

    /// As [`at_most`](Self::at_most), for a sleep that begins at once.
    pub(super) fn soon_at_most(self, limit: Duration) -> Self {
        let left = self.left();
        let is_cut = self.is_cut || left.is_none_or(|left| limit < left);
        let timeout = Timeout::After(left.map_or(limit, |left| left.min(limit)));
        Self { deadline: None, timeout, is_cut }
    }

    /// For how long the time has been up.
    pub(super) fn late(self) -> Duration {
        let since = |end: Deadline| Deadline::now().since_boot().saturating_sub(end.since_boot());
        self.deadline.flatten().map_or(Duration::ZERO, since)
    }

    /// How much time is left; `None` for no limit.
    pub(super) fn left(self) -> Option<Duration> {
        match (self.deadline, self.timeout) {
            (Some(deadline), _) => deadline.map(Deadline::remaining),
            (None, Timeout::Never) => None,
            (None, Timeout::Now) => Some(Duration::ZERO),
            (None, Timeout::After(limit)) => Some(limit),
        }
    }
}

pub(crate) fn timespec_of(limit: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    }
}

/// How long to sleep first for a timer that is due in `left`. Linux lets a wait in epoll last
/// longer by up to a two-hundredth of its length, so that it can wake several at once, and a timer
/// not at all.
pub(crate) fn short_of(left: Duration) -> Duration {
    const SHORT: Duration = Duration::from_millis(10);
    if left < SHORT { left } else { left - left / 128 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A sleep that was cut short had the kernel's last word, and one that was not was repeated.
    #[test]
    fn a_sleep_is_cut_that_ends_before_its_wait() {
        let after = |seconds| Timeout::After(Duration::from_secs(seconds));
        let within = |seconds| Until {
            deadline: Some(Deadline::of(after(seconds))),
            ..Until::of(after(seconds))
        };
        let [short, long] = [1, 20].map(Duration::from_secs);
        let [early, late] = [1, 20].map(|seconds| Deadline::of(after(seconds)).expect("a time"));
        let wait = within(10);
        assert!(wait.at_most(short).is_cut && !wait.at_most(long).is_cut);
        assert!(wait.soon_at_most(short).is_cut && !wait.soon_at_most(long).is_cut);
        assert!(wait.no_later_than(early).is_cut && !wait.no_later_than(late).is_cut);
        assert!(wait.at_most(short).at_most(long).no_later_than(late).is_cut);
        assert!(!within(0).at_most(short).is_cut, "its time is up");
        let no_limit = Until::of(Timeout::Never);
        assert!(!no_limit.is_cut && no_limit.at_most(long).is_cut);
        assert!(no_limit.no_later_than(late).is_cut);
    }
}
