//! A timer that expires while the program runs.
//!
//! What comes before the expiry and what comes after it has to be the same on both sides. So the
//! clock is looked at after each call that comes before; a program that was too slow is run again.

use super::Interpreter;
use super::sink::Sink;
use super::wait::Wait;
use crate::program::{At, Op, Timeout, WaitCall};
use crate::world::World;
use libc::{c_int, itimerspec, timespec};
use std::time::Duration;

/// How far away the time is.
const NEAR: u64 = 500_000;
/// How long a wait for it takes if nothing comes, in microseconds: beyond that time, with a margin
/// for what is late.
const WAIT: u16 = 3000;

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// The time that timers of programs go by, in nanoseconds.
fn now() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is memory for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * NANOS + now.tv_nsec as u64
}

impl<W: World> Interpreter<W> {
    /// The flags and the setting of a timer that expires soon; `None` if there is one already.
    pub(super) fn near_setting(&mut self) -> Option<(c_int, itimerspec)> {
        if self.model.has_near_timer() {
            return None;
        }
        self.near_at = now() + NEAR;
        let time = |nanos: u64| timespec {
            tv_sec: (nanos / NANOS) as i64,
            tv_nsec: (nanos % NANOS) as i64,
        };
        let spec = itimerspec { it_interval: time(0), it_value: time(self.near_at) };
        Some((libc::TFD_TIMER_ABSTIME, spec))
    }

    /// Whether the timer that is to expire soon has not, if there is one.
    pub(super) fn is_in_time(&self) -> bool {
        now() < self.near_at
    }

    /// Waits until that timer has expired. `None` if there is none.
    pub(super) fn expiry(&mut self, op: &Op, set: u8, sink: &mut impl Sink) -> Option<()> {
        if !self.model.has_near_timer() {
            return None;
        }
        let wait =
            |timeout| Wait { set, maxevents: 64, timeout, call: WaitCall::Wait, at: At::Good };
        // Only a wait that sleeps is certain to be over after the expiry.
        let nothing = self.wait(op, wait(Timeout::Zero), sink) == 0;
        self.in_time &= self.is_in_time();
        if nothing && self.in_time {
            self.wait(op, wait(Timeout::Micros(WAIT)), sink);
        }
        while self.is_in_time() {
            std::thread::sleep(Duration::from_nanos(self.near_at.saturating_sub(now()).max(1)));
        }
        if let Some(number) = self.model.near_timer_expired() {
            self.world.until_expired(number);
        }
        Some(())
    }
}
