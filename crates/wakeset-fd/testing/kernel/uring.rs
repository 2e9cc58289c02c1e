//! The io_urings of the played kernel: each has polls, a work list and completions.

use super::Kernel;
use core::ffi::c_int;
use std::vec::Vec;

#[derive(Debug, Default)]
pub(super) struct Uring {
    submitted: Vec<Order>,
    polls: Vec<Poll>,
    /// The polls that have been woken: the user data of each, and what woke it.
    work: Vec<(u64, u32)>,
    taskrun: bool,
    completions: Vec<(u64, i32, bool)>,
    rings_doorbell: bool,
}

/// An entry to submit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Poll { fd: c_int, events: u32, about: u64 },
    End { about: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Poll {
    file: usize,
    events: u32,
    about: u64,
}

impl Uring {
    pub(super) fn holds(&self, file: usize) -> bool {
        self.polls.iter().any(|poll| poll.file == file)
    }

    /// Puts the polls of a file that ask for `bits` on the work list. Returns whether the list has
    /// got its first entry.
    pub(super) fn wake_polls_of(&mut self, file: usize, bits: u32) -> bool {
        let was_empty = self.work.is_empty();
        for poll in self.polls.iter().filter(|poll| poll.file == file && poll.events & bits != 0) {
            if !self.work.iter().any(|(about, _)| *about == poll.about) {
                self.work.push((poll.about, bits));
            }
        }
        was_empty && !self.work.is_empty()
    }

    pub(super) fn announce_work(&mut self) {
        self.taskrun = true;
    }

    pub(super) fn rings_doorbell(&self) -> bool {
        self.rings_doorbell
    }

    /// Carries out a poll of a file that has `bits` of what the poll asks for.
    fn begin_poll(&mut self, poll: Poll, bits: u32, goes_on: bool) {
        if bits != 0 {
            self.completions.push((poll.about, bits as i32, goes_on));
        }
        if bits == 0 || goes_on {
            self.polls.push(poll);
        }
    }

    fn end_poll(&mut self, about: u64) {
        if self.polls.iter().any(|poll| poll.about == about) {
            self.polls.retain(|poll| poll.about != about);
            self.completions.push((about, -libc::ECANCELED, false));
        }
        self.completions.push((crate::kernel_half::uring::poll_uring::NOTHING, 0, false));
    }

    fn run_work(&mut self, goes_on: bool) {
        for (about, bits) in core::mem::take(&mut self.work) {
            if self.polls.iter().any(|poll| poll.about == about) {
                self.completions.push((about, bits as i32, goes_on));
                if !goes_on {
                    self.polls.retain(|poll| poll.about != about);
                }
            }
        }
    }
}

impl Kernel {
    /// From now on a poll ends with its first completion, as where the kernel has no memory for it
    /// to go on.
    pub(crate) fn end_polls_by_itself(&self) {
        self.state().polls_end = true;
    }

    /// A new io_uring: its index.
    pub(crate) fn open_uring(&self) -> usize {
        let mut state = self.state();
        state.urings.push(Uring::default());
        state.urings.len() - 1
    }

    pub(crate) fn set_doorbell(&self, uring: usize, rings: bool) {
        self.state().urings[uring].rings_doorbell = rings;
    }

    pub(crate) fn put(&self, uring: usize, order: Order) {
        self.state().urings[uring].submitted.push(order);
    }

    /// Carries out what was submitted, and runs the work list.
    pub(crate) fn run(&self, uring: usize) {
        let mut state = self.state();
        let goes_on = !state.polls_end;
        let orders = core::mem::take(&mut state.urings[uring].submitted);
        for order in orders {
            match order {
                Order::Poll { fd, events, about } => match state.file(fd) {
                    None => {
                        state.urings[uring].completions.push((about, -libc::EBADF, false));
                    }
                    Some(file) => {
                        let bits = state.files[file] & events;
                        state.urings[uring].begin_poll(Poll { file, events, about }, bits, goes_on);
                    }
                },
                Order::End { about } => state.urings[uring].end_poll(about),
            }
        }
        state.urings[uring].taskrun = false;
        drop(state);
        self.state().urings[uring].run_work(goes_on);
    }

    pub(crate) fn has_work(&self, uring: usize) -> bool {
        self.state().urings[uring].taskrun
    }

    pub(crate) fn has_completions(&self, uring: usize) -> bool {
        !self.state().urings[uring].completions.is_empty()
    }

    pub(crate) fn take_completions(&self, uring: usize) -> Vec<(u64, i32, bool)> {
        core::mem::take(&mut self.state().urings[uring].completions)
    }

    /// Closes an io_uring, and ends what was in it.
    pub(crate) fn end_uring(&self, uring: usize) {
        self.state().urings[uring] = Uring::default();
    }
}
