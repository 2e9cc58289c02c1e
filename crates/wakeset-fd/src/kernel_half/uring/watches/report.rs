//! From the queue to the events of a wait.
//!
//! A wait takes watches from the queue in portions, asks poll(2) about each portion in one call,
//! and reports what holds. So a drained socket is not reported, a level is reported as long as it
//! holds, and several changes are one event. With hints an edge is reported as the completions name
//! it, and poll(2) is not asked about it.

use super::Watches;
use super::watch::{ALWAYS, ALWAYS_CHECK, ARMED, CHECK, DATA, POLLED};
use crate::sys::sync::mutant;
use crate::sys::{self, user};
use core::ffi::c_int;
use libc::{epoll_event, pollfd};
use wakeset::mutated;

/// Watches that poll(2) is asked about together.
const PORTION: usize = 128;

/// What came of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// How many events there are.
    pub(crate) n: usize,
    /// Whether poll(2) says what is ready. Where it does not, the kernel epoll has to report.
    pub(crate) poll_answers: bool,
}

/// Watches taken from the queue together.
struct Portion {
    /// What poll(2) is asked; its numbers are below 0 where the completions are believed.
    asked: [pollfd; PORTION],
    /// The number of each watch, and the events that its completions are believed about.
    known: [(c_int, u32); PORTION],
    n: usize,
    /// Whether poll(2) has to be asked.
    is_open: bool,
}

impl Portion {
    const EMPTY: Self = Self {
        asked: [pollfd { fd: -1, events: 0, revents: 0 }; PORTION],
        known: [(-1, 0); PORTION],
        n: 0,
        is_open: false,
    };

    fn push(&mut self, fd: c_int, polled: u32, believed: u32) {
        // poll(2) passes over numbers below 0.
        let number = if believed == 0 { fd } else { -1 };
        self.asked[self.n] = pollfd { fd: number, events: polled as i16, revents: 0 };
        self.known[self.n] = (fd, believed);
        self.is_open |= believed == 0;
        self.n += 1;
    }

    /// Asks poll(2); `false` if it does not answer.
    fn check(&mut self) -> bool {
        !self.is_open || sys::poll_all_now(&mut self.asked[..self.n])
    }
}

impl Watches {
    /// Writes up to `maxevents` events to `events`. `fault` is called when that memory is not
    /// mapped; the events that it was for stay in the queue.
    pub(crate) fn report(
        &mut self,
        events: *mut epoll_event,
        maxevents: usize,
        fault: impl FnOnce(),
    ) -> Report {
        let Some(uring) = self.uring else { return Report { n: 0, poll_answers: true } };
        self.collect();
        if uring.has_work()
            && !(mutated!("polls_take_without_work") || mutant!("polls_take_without_run"))
        {
            // Whatever is in the queue: an event whose wake-up is still to be heard of would be
            // reported twice.
            self.run(0);
        }
        let mut n = 0;
        // Levels that hold go to the end of the queue, and are not checked twice.
        let mut left = self.queue.len();
        let mut portion = Portion::EMPTY;
        while n < maxevents && left > 0 {
            self.gather(&mut portion, maxevents - n, &mut left);
            if !portion.check() {
                return Report { n, poll_answers: false };
            }
            let (stored, all) = self.deliver(&portion, events.wrapping_add(n));
            n += stored;
            if !all {
                fault();
                break;
            }
        }
        Report { n, poll_answers: true }
    }

    /// Takes a portion of up to `most` watches from the first `left` of the queue.
    fn gather(&mut self, portion: &mut Portion, most: usize, left: &mut usize) {
        (portion.n, portion.is_open) = (0, false);
        while portion.n < PORTION.min(most) && *left > 0 {
            *left -= 1;
            let Some(fd) = self.dequeue() else { break };
            let hints = self.takes_hints();
            let Some(watch) = self.watch(fd) else { continue };
            let is_edge = watch.events & libc::EPOLLET as u32 != 0 || mutated!("hints_make_levels");
            let is_believed =
                hints && is_edge && watch.state & (CHECK | ALWAYS_CHECK | ARMED) == ARMED;
            let believed = if is_believed { watch.hinted & watch.events & DATA } else { 0 };
            watch.hinted = 0;
            watch.state &= !CHECK;
            if !watch.is_armed() && !mutant!("polls_ended_stay_ended") {
                // The poll ended by itself. It is armed first and the file checked then. The watch
                // may be in the queue again, as the last.
                if !self.arm(fd) {
                    self.broken = true;
                }
            }
            let Some(watch) = self.watch(fd) else { continue };
            portion.push(fd, watch.events & POLLED, believed);
        }
    }

    /// Writes the events of a portion. Returns how many there are, and whether there was memory for
    /// all.
    fn deliver(&mut self, portion: &Portion, events: *mut epoll_event) -> (usize, bool) {
        let mut stored = 0;
        let known = &portion.known[..portion.n];
        for (i, (&(fd, believed), asked)) in known.iter().zip(&portion.asked).enumerate() {
            let Some(watch) = self.watch(fd) else { continue };
            let now =
                (u32::from(asked.revents as u16) | believed) & (watch.events & POLLED | ALWAYS);
            if now == 0 {
                continue;
            }
            let event = epoll_event { events: now, u64: watch.data };
            let is_level = watch.events & libc::EPOLLET as u32 == 0;
            // SAFETY: the caller gives the memory.
            if !unsafe { user::store_event(events.wrapping_add(stored), event) } {
                // The program has not seen these.
                for (fd, _) in &known[i + usize::from(mutated!("polls_lose_at_a_fault"))..] {
                    self.enqueue_to_check(*fd);
                }
                return (stored, false);
            }
            stored += 1;
            if is_level
                && !(mutated!("polls_forget_levels") || mutant!("polls_level_is_taken_once"))
            {
                self.enqueue(fd);
            }
        }
        (stored, true)
    }
}
