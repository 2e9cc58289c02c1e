//! A watch's poll in the io_uring: arming it, ending it, and what its completions say.

use super::super::poll_uring::NOTHING;
use super::Watches;
use super::watch::{ALWAYS_CHECK, ARMED, CHECK, DATA, URGENT, number_in, user_data, wake_ups_for};
use crate::sys;
use core::ffi::c_int;
use wakeset::mutated;

/// How often the end of a cancelled poll is checked for.
const MOST_TRIES: u32 = 1000;

impl Watches {
    /// Takes the completions, and puts the watches that they are for into the queue.
    pub(super) fn collect(&mut self) {
        let Some(uring) = self.uring else { return };
        uring.collect(|about, result, goes_on| {
            if about == NOTHING {
                return;
            }
            let fd = number_in(about);
            let Some(watch) = self.watch(fd) else { return };
            if user_data(fd, watch.generation) != about {
                return;
            }
            if !goes_on {
                watch.state &= !ARMED;
            }
            let named = u32::try_from(result).unwrap_or(0);
            watch.hinted |= named;
            if named & !(DATA | URGENT) != 0 && !mutated!("hints_tell_no_end") {
                watch.state |= ALWAYS_CHECK;
            }
            if named == 0 || watch.events & URGENT != 0 {
                watch.state |= CHECK;
            }
            if watch.is_watched() {
                self.enqueue(fd);
            }
        });
    }

    /// Submits what has been put, runs the io_uring's work and takes the completions.
    pub(super) fn run(&mut self, submit: u32) {
        match self.uring {
            Some(uring) if uring.run(submit) => {}
            _ => self.broken = true,
        }
        self.collect();
    }

    /// Arms a poll. Returns whether the kernel has taken it.
    pub(super) fn arm(&mut self, fd: c_int) -> bool {
        let Some(uring) = self.uring.filter(|_| !self.broken) else { return false };
        let Some(watch) = self.watch(fd) else { return false };
        watch.generation = watch.generation.wrapping_add(1);
        watch.state |= ARMED;
        let events = wake_ups_for(watch.events);
        uring.put_poll(fd, events, user_data(fd, watch.generation));
        self.run(1);
        self.watch(fd).is_some_and(|watch| watch.is_armed())
    }

    /// Ends a poll, so that it no longer holds the file and nothing more comes of it. `false` if
    /// the kernel does not end it.
    pub(super) fn disarm(&mut self, fd: c_int) -> bool {
        let Some(uring) = self.uring else { return false };
        let Some(watch) = self.watch(fd).filter(|watch| watch.is_armed()) else { return true };
        let about = user_data(fd, watch.generation);
        for _ in 0..MOST_TRIES {
            uring.put_end(about);
            self.run(1);
            if self.broken || self.watch(fd).is_none_or(|watch| !watch.is_armed()) {
                break;
            }
            sys::sched_yield();
        }
        let ended = self.watch(fd).is_none_or(|watch| !watch.is_armed());
        self.broken |= !ended;
        ended
    }

    /// Ends all polls. Returns whether the io_uring can be used again.
    pub(crate) fn disarm_all(&mut self) -> bool {
        let mut ended = true;
        for fd in 0..self.end {
            ended = ended && self.disarm(fd);
        }
        ended && !self.broken
    }
}
