//! The watches of one io_uring: what the program asked of each, what completions have said, and the
//! queue of those to check.
//!
//! A completion says that a watch may have something to report, as an entry of the kernel's ready
//! list does, and no more. It puts the watch into the queue. A wait takes watches from the queue
//! and asks poll(2) what holds at that moment ([`report`]).
//!
//! | file | what |
//! |---|---|
//! | `watch` | one watch, and the events it can be for |
//! | this one | the table of watches by number; add, modify and remove |
//! | `polls` | a watch's poll in the io_uring, and the completions |
//! | `queue` | the queue |
//! | `report` | from the queue to the events of a wait |
//!
//! The caller holds a lock, and only the thread that the io_uring serves may call what enters it.

mod polls;
mod queue;
mod report;
mod watch;

pub(crate) use report::Report;
pub(crate) use watch::{Watch, can_ask_for};

use super::poll_uring::PollUring;
use super::sizes::POLLED_FDS;
use super::sockets::wakes_for_cause;
use crate::sys::sync::{Ordering, mutant};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::AtomicU32;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};
use queue::Queue;
use wakeset::{Event, Events, mutated};
use watch::{ALWAYS_CHECK, WATCHED, wake_ups_for};

const PAGE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) uring: Option<PollUring>,
    /// A page whose first word a fork wipes, then a [`Watch`] for each number.
    memory: *mut u8,
    n: usize,
    /// One above the highest number that has been watched.
    pub(crate) end: c_int,
    queue: Queue,
    /// The kernel no longer does what it is asked to: the caller gives the polls up.
    pub(crate) broken: bool,
    /// Completions are believed, where they name nothing but data and room for data.
    pub(crate) hints: bool,
}

impl Watches {
    pub(crate) const fn new() -> Self {
        Self {
            uring: None,
            memory: ptr::null_mut(),
            n: 0,
            end: 0,
            queue: Queue::EMPTY,
            broken: false,
            hints: false,
        }
    }

    /// Returns whether there is memory for watches, which is mapped now if need be.
    pub(crate) fn has_memory(&mut self) -> bool {
        if self.memory.is_null() {
            let len = PAGE + POLLED_FDS * size_of::<Watch>();
            let Some(memory) = sys::map_wiped_on_fork(len) else { return false };
            self.memory = memory;
        }
        true
    }

    fn alive(&self) -> Option<&AtomicU32> {
        // SAFETY: null, or memory with a word at its start, which stays mapped.
        unsafe { self.memory.cast::<AtomicU32>().as_ref() }
    }

    pub(crate) fn set_alive(&self) {
        if let Some(alive) = self.alive() {
            alive.store(1, Ordering::Relaxed);
        }
    }

    /// Returns whether this is the process that made it, and not a forked child.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive().is_some_and(|alive| alive.load(Ordering::Relaxed) != 0)
    }

    /// Returns whether a number is watched here; `None` if it cannot be.
    pub(crate) fn is_watched(&mut self, fd: c_int) -> Option<bool> {
        self.watch(fd).map(|watch| watch.is_watched())
    }

    /// Returns whether there is something to check.
    pub(crate) fn have_news(&self) -> bool {
        let uring = self.uring.filter(|_| self.is_alive());
        uring.is_some_and(|uring| {
            !self.queue.is_empty() && !mutant!("polls_line_is_no_news")
                || uring.has_completions()
                || uring.has_work() && !mutant!("polls_work_is_no_news")
        })
    }

    fn watch(&mut self, fd: c_int) -> Option<&mut Watch> {
        let number = fd as u32 as usize;
        // SAFETY: one for each number, in memory that only the lock's holder uses.
        (number < POLLED_FDS && !self.memory.is_null())
            .then(|| unsafe { &mut *self.memory.add(PAGE).cast::<Watch>().add(number) })
    }

    pub(crate) fn for_each(&mut self, mut f: impl FnMut(c_int, &Watch)) {
        for fd in 0..self.end {
            if let Some(watch) = self.watch(fd).filter(|watch| watch.is_watched()) {
                f(fd, watch);
            }
        }
    }

    fn takes_hints(&self) -> bool {
        self.hints || mutated!("polls_believe_completions")
    }

    /// Watches a number as EPOLL_CTL_ADD does; `None` if the kernel epoll has to. Where the kernel
    /// epoll has watches too its number is `also_in`, and decides whether the number can be added.
    pub(crate) fn add(
        &mut self,
        fd: c_int,
        asked: Event,
        also_in: Option<c_int>,
    ) -> Option<Result<(), Errno>> {
        let limit = self.uring?.limit;
        if self.n == limit {
            return None;
        }
        if let Some(epoll) = also_in {
            let event = epoll_event { events: asked.events.bits(), u64: asked.data };
            if let Err(error) = sys::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &raw const event) {
                return Some(Err(error));
            }
            let _ = sys::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, ptr::null());
        }
        let can_hint =
            self.takes_hints() && (wakes_for_cause(fd) || mutated!("hints_of_datagrams"));
        let watch = self.watch(fd)?;
        watch.events = asked.events.bits();
        watch.data = asked.data;
        watch.state |= WATCHED | if can_hint { 0 } else { ALWAYS_CHECK };
        self.n += 1;
        self.end = self.end.max(fd + 1);
        if !self.arm(fd) {
            self.remove(fd);
            return None;
        }
        self.enqueue_to_check(fd);
        Some(Ok(()))
    }

    /// Changes a watch as EPOLL_CTL_MOD does; `None` if the kernel epoll has to take it over.
    pub(crate) fn modify(&mut self, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
        let events = asked.events.bits();
        if asked.events.contains(Events::EXCLUSIVE) {
            return Some(Err(Errno::EINVAL));
        }
        if !can_ask_for(asked.events) {
            return None;
        }
        let watch = self.watch(fd)?;
        let polls_the_same = wake_ups_for(watch.events) == wake_ups_for(events)
            || mutated!("polls_change_without_arming");
        watch.events = events;
        watch.data = asked.data;
        let polls_this = polls_the_same || self.disarm(fd) && self.arm(fd);
        if !polls_this {
            return None;
        }
        if !(mutated!("polls_change_without_look") || mutant!("polls_changed_is_not_looked_at")) {
            self.enqueue_to_check(fd);
        }
        Some(Ok(()))
    }

    /// Forgets a watch; `false` if its poll could not be ended.
    pub(crate) fn remove(&mut self, fd: c_int) -> bool {
        let ended = mutant!("polls_removed_stay_armed") || self.disarm(fd);
        let stays = mutated!("polls_removed_in_line") || mutant!("polls_removed_stay_in_line");
        if self.watch(fd).is_some_and(|watch| watch.is_queued()) && !stays {
            self.take_out_of_queue(fd);
        }
        if let Some(watch) = self.watch(fd) {
            watch.generation = watch.generation.wrapping_add(1);
            (watch.state, watch.hinted) = (0, 0);
            self.n -= 1;
        }
        ended
    }

    /// Forgets all watches, when there is no io_uring any more.
    pub(crate) fn forget_all(&mut self) {
        for fd in 0..self.end {
            if let Some(watch) = self.watch(fd) {
                // Generations go on: the io_uring may be used again, and has nothing to say of
                // these.
                watch.generation = watch.generation.wrapping_add(1);
                (watch.state, watch.next, watch.hinted) = (0, 0, 0);
            }
        }
        (self.n, self.end, self.queue) = (0, 0, Queue::EMPTY);
        self.broken = false;
    }
}
