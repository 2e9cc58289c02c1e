//! How long a wait may take, and with which signal mask.

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
}

impl Until {
    /// The same, or `limit` from now if that is earlier.
    pub(super) fn at_most(self, limit: Duration) -> Self {
        Self { deadline: Some(Deadline::of(self.soon_at_most(limit).timeout)), ..self }
    }

    /// The same, or then if that is earlier. Unlike [`at_most`](Self::at_most) it mostly reads no
    /// clock.
    pub(super) fn no_later_than(self, end: Deadline) -> Self {
        let own = self.deadline.unwrap_or_else(|| Deadline::of(self.timeout));
        Self { deadline: Some(Some(own.map_or(end, |own| own.min(end)))), ..self }
    }

    /// As [`at_most`](Self::at_most), for a sleep that begins at once.
    pub(super) fn soon_at_most(self, limit: Duration) -> Self {
        let left = self.left().map_or(limit, |left| left.min(limit));
        Self { deadline: None, timeout: Timeout::After(left) }
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
