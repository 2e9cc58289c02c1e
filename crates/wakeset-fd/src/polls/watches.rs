//! The watches of one io_uring: what is asked of each, what completions have said, the line of those to look at, and the looks.

use super::uring::{NOBODY, Uring, look, map_watches, wakes_for_cause};
use crate::set::FdSet;
use crate::sync::{Ordering, mutant};
use crate::sys::{self, Errno};
use crate::user;
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};
use wakeset::{Event, Events, mutated};

/// Numbers that can be watched.
const NUMBERS: usize = if cfg!(loom) { 8 } else { 1 << 20 };
/// Watches that poll(2) is asked about together.
const TOGETHER: usize = 128;
/// How often the end of a cancelled poll is looked for.
const PATIENCE: u32 = 1000;
const PAGE: usize = 4096;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) ring: Option<Uring>,
    /// A word that a fork wipes, in a page of its own, and behind it a [`Watch`] for each number.
    memory: *mut u8,
    watches: usize,
    /// One above the highest number that has been watched.
    pub(super) end: c_int,
    /// Watches to look at, linked by number plus one.
    first: c_int,
    last: c_int,
    waiting: usize,
    /// Counts the waits for which both this and the kernel epoll had to be looked at.
    pub(super) turn: u32,
    /// The kernel no longer does what it is asked: the caller gives up.
    pub(super) broken: bool,
    /// Completions are believed, where they say no more than [`DATA`].
    pub(super) hints: bool,
}

/// One watch; all zero for none.
#[repr(C)]
pub(super) struct Watch {
    pub(super) data: u64,
    pub(super) events: u32,
    /// Of the poll: what comes of an earlier one is nobody's.
    generation: u32,
    /// The next to look at.
    next: c_int,
    /// [`WATCHED`] and so on.
    state: u32,
    /// What completions have said since it was last looked at.
    said: u32,
}

/// The number is watched here.
const WATCHED: u32 = 1;
/// The io_uring has a poll for it.
const ARMED: u32 = 2;
/// It is among those to look at.
const WAITING: u32 = 4;
/// What completions have said is not all there is to say.
const ASK: u32 = 8;
/// Nor will it ever be: its wake-ups cannot be believed, or it has come to an end, of which later ones say nothing.
const ALWAYS_ASK: u32 = 16;

/// What a completion is about.
fn user_data(fd: c_int, generation: u32) -> u64 {
    u64::from(generation) << 32 | (fd as u32 as u64 + 1)
}

/// What a watch can ask for here.
const ALLOWED: u32 = 0x27df | libc::EPOLLET as u32;
/// Of these what poll(2) is asked for.
const POLLED: u32 = 0x27df & !ALWAYS;
/// What a completion can be believed about.
const DATA: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
/// What it cannot: a socket's wake-ups for data and for room name these too, whatever has come.
const URGENT: u32 = (libc::EPOLLPRI | libc::EPOLLRDBAND | libc::EPOLLWRBAND) as u32;
/// Told unasked.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// The wake-ups that a poll for `events` has to hear of: those that Linux's epoll would, and no other, or an edge would be reported twice. io_uring does not
/// heed `POLLPRI`, which no socket says without `POLLIN` or `POLLERR`.
fn wake_ups_for(events: u32) -> u32 {
    if mutated!("polls_hear_of_all") {
        return ALLOWED & !(libc::EPOLLET as u32);
    }
    let urgent = if events & libc::EPOLLPRI as u32 != 0 { libc::EPOLLIN as u32 } else { 0 };
    events & POLLED | ALWAYS | urgent
}

/// Whether a watch here can ask for them.
pub(super) fn can_ask_for(events: Events) -> bool {
    events.bits() & !ALLOWED == 0
}

impl Watch {
    pub(super) fn is_in_line(&self) -> bool {
        self.state & WAITING != 0
    }
}

impl Inner {
    pub(super) const fn new() -> Self {
        Self {
            ring: None,
            memory: ptr::null_mut(),
            watches: 0,
            end: 0,
            first: 0,
            last: 0,
            waiting: 0,
            turn: 0,
            broken: false,
            hints: false,
        }
    }

    pub(super) fn has_memory(&mut self) -> bool {
        if self.memory.is_null() {
            let Some(memory) = map_watches(PAGE + NUMBERS * size_of::<Watch>()) else { return false };
            self.memory = memory;
        }
        true
    }

    pub(super) fn set_alive(&self, alive: bool) {
        // SAFETY: the memory is there, with a word at its start.
        unsafe { &*self.memory.cast::<core::sync::atomic::AtomicU32>() }.store(u32::from(alive), Ordering::Relaxed);
    }

    /// Whether this is the process that made it.
    pub(super) fn is_alive(&self) -> bool {
        // SAFETY: as above.
        !self.memory.is_null()
            && unsafe { &*self.memory.cast::<core::sync::atomic::AtomicU32>() }.load(Ordering::Relaxed) != 0
    }

    /// Whether a number is watched here; `None` if it cannot be.
    pub(super) fn is_watched(&mut self, fd: c_int) -> Option<bool> {
        self.watch(fd).map(|watch| watch.state & WATCHED != 0)
    }

    /// Whether there is something to look at.
    pub(super) fn has_news(&self) -> bool {
        let ring = self.ring.filter(|_| self.is_alive());
        ring.is_some_and(|ring| {
            self.waiting != 0 && !mutant!("polls_line_is_no_news")
                || ring.has_completions()
                || ring.has_work() && !mutant!("polls_work_is_no_news")
        })
    }

    fn watch(&mut self, fd: c_int) -> Option<&mut Watch> {
        let number = fd as u32 as usize;
        // SAFETY: one for each number, in memory that only the lock's holder uses.
        (number < NUMBERS && !self.memory.is_null())
            .then(|| unsafe { &mut *self.memory.add(PAGE).cast::<Watch>().add(number) })
    }

    pub(super) fn for_each_watch(&mut self, mut f: impl FnMut(c_int, &Watch)) {
        for fd in 0..self.end {
            if let Some(watch) = self.watch(fd).filter(|watch| watch.state & WATCHED != 0) {
                f(fd, watch);
            }
        }
    }

    fn takes_hints(&self) -> bool {
        self.hints || mutated!("polls_believe_completions")
    }

    /// Lines a watch up to be asked about.
    fn line_up_to_ask(&mut self, fd: c_int) {
        if let Some(watch) = self.watch(fd) {
            watch.state |= ASK;
        }
        self.line_up(fd);
    }

    /// Lines a watch up to be looked at.
    fn line_up(&mut self, fd: c_int) {
        let Some(watch) = self.watch(fd).filter(|watch| watch.state & WAITING == 0) else { return };
        watch.state |= WAITING;
        watch.next = 0;
        match self.last {
            0 => self.first = fd + 1,
            last => {
                if let Some(before) = self.watch(last - 1) {
                    before.next = fd + 1;
                }
            }
        }
        self.last = fd + 1;
        self.waiting += 1;
    }

    fn next_in_line(&mut self) -> Option<c_int> {
        let fd = self.first - 1;
        let watch = self.watch(fd).filter(|_| fd >= 0)?;
        watch.state &= !WAITING;
        self.first = watch.next;
        if self.first == 0 {
            self.last = 0;
        }
        self.waiting -= 1;
        Some(fd)
    }

    /// Takes the completions.
    fn collect(&mut self) {
        let Some(ring) = self.ring else { return };
        ring.collect(|about, result, goes_on| {
            if about == NOBODY {
                return;
            }
            let fd = (about as u32).wrapping_sub(1) as c_int;
            let Some(watch) = self.watch(fd) else { return };
            if user_data(fd, watch.generation) != about {
                return;
            }
            if !goes_on {
                watch.state &= !ARMED;
            }
            let said = u32::try_from(result).unwrap_or(0);
            watch.said |= said;
            if said & !(DATA | URGENT) != 0 && !mutated!("hints_tell_no_end") {
                watch.state |= ALWAYS_ASK;
            }
            if said == 0 || watch.events & URGENT != 0 {
                watch.state |= ASK;
            }
            if watch.state & WATCHED != 0 {
                self.line_up(fd);
            }
        });
    }

    fn run(&mut self, submit: u32) {
        match self.ring {
            Some(ring) if ring.run(submit) => {}
            _ => self.broken = true,
        }
        self.collect();
    }

    /// Arms a poll; whether the kernel has taken it.
    fn arm(&mut self, fd: c_int) -> bool {
        let Some(ring) = self.ring.filter(|_| !self.broken) else { return false };
        let Some(watch) = self.watch(fd) else { return false };
        watch.generation = watch.generation.wrapping_add(1);
        watch.state |= ARMED;
        let events = wake_ups_for(watch.events);
        ring.put_poll(fd, events, user_data(fd, watch.generation));
        self.run(1);
        self.watch(fd).is_some_and(|watch| watch.state & ARMED != 0)
    }

    /// Ends a poll, so that it no longer holds the file and nothing more comes of it. `false`: the kernel will not.
    fn disarm(&mut self, fd: c_int) -> bool {
        let Some(ring) = self.ring else { return false };
        let Some(watch) = self.watch(fd).filter(|watch| watch.state & ARMED != 0) else { return true };
        let about = user_data(fd, watch.generation);
        for _ in 0..PATIENCE {
            ring.put_end(about);
            self.run(1);
            if self.broken || self.watch(fd).is_none_or(|watch| watch.state & ARMED == 0) {
                break;
            }
            sys::sched_yield();
        }
        let ended = self.watch(fd).is_none_or(|watch| watch.state & ARMED == 0);
        self.broken |= !ended;
        ended
    }

    pub(super) fn add(&mut self, set: &FdSet, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
        let limit = self.ring?.limit;
        if self.watches == limit {
            return None;
        }
        if !set.only_polls.load(Ordering::SeqCst) {
            let event = epoll_event { events: asked.events.bits(), u64: asked.data };
            if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event) {
                return Some(Err(error));
            }
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, fd, ptr::null());
        }
        let can_hint = self.takes_hints() && (wakes_for_cause(fd) || mutated!("hints_of_datagrams"));
        let watch = self.watch(fd)?;
        watch.events = asked.events.bits();
        watch.data = asked.data;
        watch.state |= WATCHED | if can_hint { 0 } else { ALWAYS_ASK };
        self.watches += 1;
        self.end = self.end.max(fd + 1);
        if !self.arm(fd) {
            self.remove(fd);
            return None;
        }
        self.line_up_to_ask(fd);
        Some(Ok(()))
    }

    pub(super) fn modify(&mut self, set: &FdSet, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
        let events = asked.events.bits();
        if asked.events.contains(Events::EXCLUSIVE) {
            return Some(Err(Errno::EINVAL));
        }
        let watch = self.watch(fd)?;
        let polls_the_same =
            wake_ups_for(watch.events) == wake_ups_for(events) || mutated!("polls_change_without_arming");
        if events & !ALLOWED == 0 {
            watch.events = events;
            watch.data = asked.data;
            if polls_the_same || self.disarm(fd) && self.arm(fd) {
                if !(mutated!("polls_change_without_look") || mutant!("polls_changed_is_not_looked_at")) {
                    self.line_up_to_ask(fd);
                }
                return Some(Ok(()));
            }
        }
        // From now on the kernel epoll's.
        let event = epoll_event { events, u64: asked.data };
        set.kernel_edges.store(true, Ordering::SeqCst);
        set.only_polls.store(false, Ordering::SeqCst);
        let added = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event);
        if added.is_ok() {
            self.remove(fd);
        }
        Some(added)
    }

    /// Forgets a watch; `false`: its poll could not be ended.
    pub(super) fn remove(&mut self, fd: c_int) -> bool {
        let ended = mutant!("polls_removed_stay_armed") || self.disarm(fd);
        let stays = mutated!("polls_removed_in_line") || mutant!("polls_removed_stay_in_line");
        if self.watch(fd).is_some_and(|watch| watch.state & WAITING != 0) && !stays {
            self.take_out_of_line(fd);
        }
        if let Some(watch) = self.watch(fd) {
            watch.generation = watch.generation.wrapping_add(1);
            (watch.state, watch.said) = (0, 0);
            self.watches -= 1;
        }
        ended
    }

    fn take_out_of_line(&mut self, fd: c_int) {
        // In place: the order of the others stays.
        let n = self.waiting;
        for _ in 0..n {
            if let Some(other) = self.next_in_line().filter(|other| *other != fd) {
                self.line_up(other);
            }
        }
    }

    pub(super) fn cancel_all(&mut self) -> bool {
        let mut ended = true;
        for fd in 0..self.end {
            ended = ended && self.disarm(fd);
        }
        ended && !self.broken
    }

    /// When there is no io_uring any more.
    pub(super) fn forget_all(&mut self) {
        for fd in 0..self.end {
            if let Some(watch) = self.watch(fd) {
                // Generations go on: the io_uring may be used again, and has nothing to say of these.
                watch.generation = watch.generation.wrapping_add(1);
                (watch.state, watch.next, watch.said) = (0, 0, 0);
            }
        }
        (self.watches, self.end, self.first, self.last, self.waiting) = (0, 0, 0, 0, 0);
        self.broken = false;
    }

    /// As [`take`]; and whether poll(2) says what is ready. Where it does not the kernel epoll has to.
    pub(super) fn take(&mut self, place: *mut epoll_event, room: usize, fault: impl FnOnce()) -> (usize, bool) {
        let Some(ring) = self.ring else { return (0, true) };
        self.collect();
        if ring.has_work() && !(mutated!("polls_take_without_work") || mutant!("polls_take_without_run")) {
            // Whatever is in line: an event whose wake-up is still to be heard of would be reported twice.
            self.run(0);
        }
        let mut taken = 0;
        // Levels that hold go to the end of the line, and are not looked at twice.
        let mut left = self.waiting;
        let mut asked = [libc::pollfd { fd: -1, events: 0, revents: 0 }; TOGETHER];
        // The number of each, and what is known of it.
        let mut known = [(-1, 0_u32); TOGETHER];
        while taken < room && left > 0 {
            let (mut n, mut open) = (0, false);
            while n < TOGETHER.min(room - taken) && left > 0 {
                left -= 1;
                let Some(fd) = self.next_in_line() else { break };
                let hints = self.takes_hints();
                let Some(watch) = self.watch(fd) else { continue };
                let is_edge = watch.events & libc::EPOLLET as u32 != 0 || mutated!("hints_make_levels");
                let believed = hints && is_edge && watch.state & (ASK | ALWAYS_ASK | ARMED) == ARMED;
                let said = if believed { watch.said & watch.events & DATA } else { 0 };
                watch.said = 0;
                watch.state &= !ASK;
                if watch.state & ARMED == 0 && !mutant!("polls_ended_stay_ended") {
                    // It ended by itself. Armed first, looked at then.
                    if !self.arm(fd) {
                        self.broken = true;
                    }
                    // It may have lined up again, as the last.
                }
                let Some(watch) = self.watch(fd) else { continue };
                // poll(2) passes over numbers below 0.
                let number = if said == 0 { fd } else { -1 };
                asked[n] = libc::pollfd { fd: number, events: (watch.events & POLLED) as i16, revents: 0 };
                known[n] = (fd, said);
                open |= said == 0;
                n += 1;
            }
            if open && !look(&mut asked[..n]) {
                return (taken, false);
            }
            for i in 0..n {
                let (fd, said) = known[i];
                let Some(watch) = self.watch(fd) else { continue };
                let now = (u32::from(asked[i].revents as u16) | said) & (watch.events & POLLED | ALWAYS);
                if now == 0 {
                    continue;
                }
                let event = epoll_event { events: now, u64: watch.data };
                let is_level = watch.events & libc::EPOLLET as u32 == 0;
                // SAFETY: the caller gives the memory.
                if !unsafe { user::store_event(place.wrapping_add(taken), event) } {
                    // Nobody has seen these.
                    for (fd, _) in &known[i + usize::from(mutated!("polls_lose_at_a_fault"))..n] {
                        self.line_up_to_ask(*fd);
                    }
                    fault();
                    return (taken, true);
                }
                taken += 1;
                if is_level && !(mutated!("polls_forget_levels") || mutant!("polls_level_is_taken_once")) {
                    self.line_up(fd);
                }
            }
        }
        (taken, true)
    }
}
