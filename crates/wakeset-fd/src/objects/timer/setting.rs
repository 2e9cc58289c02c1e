//! What timerfds are set to, as programs say it and are told.

use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::time::Duration;
use libc::{CLOCK_MONOTONIC, TFD_TIMER_ABSTIME, itimerspec, timespec};
use wakeset::{Error, Expiry, Timer, TimerSpec, mutated};

pub(super) fn time_of(nanos: u64) -> timespec {
    timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// As Linux takes it; `None` is EINVAL.
fn duration_of(time: timespec) -> Option<Duration> {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos @ 0..=999_999_999)) => Some(Duration::new(seconds, nanos)),
        _ => None,
    }
}

pub(super) fn itimerspec_of(spec: TimerSpec) -> itimerspec {
    let time = |time: Duration| time_of(time.as_nanos() as u64);
    itimerspec { it_value: time(spec.value), it_interval: time(spec.interval) }
}

/// What timerfd_settime(2) sets a timer to.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    spec: TimerSpec,
    /// `spec.value` is a point in time.
    is_absolute: bool,
}

impl Setting {
    /// By the arguments of a call. `Err`: what the call comes to whatever the number stands for.
    ///
    /// # Safety
    /// `new` is valid unless the kernel says EFAULT.
    pub(super) unsafe fn of(flags: c_int, new: *const itimerspec) -> Result<Self, Verdict<()>> {
        if !sys::is_user(new, size_of::<itimerspec>()) {
            return Err(Done(Err(Errno::EFAULT)));
        }
        // SAFETY: any bits are an itimerspec.
        let Some(itimerspec { it_value, it_interval }) = (unsafe { user::load(new) }) else {
            return Err(Done(Err(Errno::EFAULT)));
        };
        let (Some(value), Some(interval)) = (duration_of(it_value), duration_of(it_interval))
        else {
            return Err(Kernel);
        };
        if flags & !(TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET) != 0 {
            // EINVAL.
            return Err(Kernel);
        }
        let is_absolute =
            flags & TFD_TIMER_ABSTIME != 0 && !mutated!("timer_takes_points_for_spans");
        Ok(Self { spec: TimerSpec { value, interval }, is_absolute })
    }

    /// Whether a timer of this clock that is set so depends on a clock that can be set.
    pub(super) fn is_kernels(self, clock: c_int) -> bool {
        clock != CLOCK_MONOTONIC
            && !mutated!("timer_of_any_clock")
            && (self.is_absolute || self.spec.interval > Duration::ZERO)
    }

    pub(super) fn set(self, timer: &Timer) -> Result<TimerSpec, Error> {
        let TimerSpec { value, interval } = self.spec;
        if self.is_absolute { timer.set_at(value, interval) } else { timer.set(self.spec) }
    }

    /// The state of a timer that is set so at `now`.
    pub(super) fn expiry(self, now: u64) -> Expiry {
        match self.is_absolute {
            true => Expiry::at(self.spec.value, self.spec.interval),
            false => Expiry::after(self.spec, now),
        }
    }
}

/// # Safety
/// The memory, if it is there, is the caller's to give.
pub(super) unsafe fn store_spec(pointer: *mut itimerspec, spec: itimerspec) -> bool {
    let words = [
        spec.it_interval.tv_sec,
        spec.it_interval.tv_nsec,
        spec.it_value.tv_sec,
        spec.it_value.tv_nsec,
    ];
    let pointer = pointer.cast::<u64>();
    sys::is_user(pointer, size_of::<itimerspec>())
        && words.iter().enumerate().all(|(i, word)| {
            // SAFETY: by the caller.
            unsafe { user::store_u64(pointer.wrapping_add(i), *word as u64) }
        })
}
