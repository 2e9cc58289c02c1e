//! Time limits of a wait: relative ones as a caller gives them, absolute ones as the sleep needs
//! them.

use crate::sync::clock;
use core::time::Duration;
use rustix::time::Timespec;

/// How long a wait may block, as in epoll_wait(2) and epoll_pwait2(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Until something is ready (epoll_wait's `-1`, epoll_pwait2's null).
    Never,
    /// Not at all: report what is ready now (epoll_wait's `0`).
    Now,
    /// At least this long, in nanoseconds of `CLOCK_MONOTONIC`; never shorter. Later than the clock
    /// can say counts as [`Timeout::Never`].
    After(Duration),
}

impl Timeout {
    /// The `timeout` argument of epoll_wait(2): milliseconds, negative for no limit.
    pub const fn from_millis(timeout: i32) -> Self {
        match timeout {
            0 => Self::Now,
            ms if ms < 0 => Self::Never,
            ms => Self::After(Duration::from_millis(ms as u64)),
        }
    }
}

impl From<Option<Duration>> for Timeout {
    /// The `timeout` argument of epoll_pwait2(2): `None` for no limit.
    fn from(limit: Option<Duration>) -> Self {
        match limit {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            Some(limit) => Self::After(limit),
        }
    }
}

/// A point on `CLOCK_MONOTONIC`, in nanoseconds since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// So late (146 years of uptime) that reaching it can be treated as a spurious wake-up.
    pub(crate) const FAR: Self = Self(i64::MAX as u64 / 2);

    /// The current time.
    pub fn now() -> Self {
        Self(clock::now())
    }

    /// The time of the kernel's last tick, up to some milliseconds ago, which takes less to read.
    #[doc(hidden)]
    pub fn at_last_tick() -> Self {
        Self(clock::at_last_tick())
    }

    /// When a wait that starts now has to end; `None` for never.
    pub fn of(timeout: Timeout) -> Option<Self> {
        match timeout {
            Timeout::Never => None,
            Timeout::Now => Some(Self::now()),
            Timeout::After(limit) => {
                let at = u128::from(Self::now().0) + limit.as_nanos();
                u64::try_from(at).ok().map(Self).filter(|at| *at < Self::FAR)
            }
        }
    }

    /// How much is left until then; zero once it has passed.
    pub fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }

    /// The time from the clock's start, the machine's boot, to this point.
    pub const fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// So many nanoseconds after the clock's start.
    #[doc(hidden)]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[doc(hidden)]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    #[cfg_attr(any(loom, shuttle), allow(dead_code))]
    pub(crate) const fn to_timespec(self) -> Timespec {
        Timespec { tv_sec: (self.0 / 1_000_000_000) as i64, tv_nsec: (self.0 % 1_000_000_000) as _ }
    }
}
