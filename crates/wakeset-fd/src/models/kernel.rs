//! The kernel, as far as a set with polls can tell: files that are readable or not, numbers, one epoll with a bell in it, io_urings, poll(2).
//!
//! A change of a file is as many steps as another processor can see: the file's state, then its wait queue, where an entry of the epoll goes to
//! the ready list and a poll to the work list of its io_uring; with the list's first entry, `TASKRUN` and then the bell. A run of the work clears the
//! bit before it takes the list.

use core::ffi::c_int;
use libc::pollfd;
use loom::sync::{Condvar, Mutex, MutexGuard};
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec::Vec;
use syscalls::Errno;

/// The bell's number, and its data.
pub(crate) const BELL: c_int = 1;
pub(crate) const BELL_DATA: u64 = 99;
/// Numbers that there are.
pub(crate) const NUMBERS: usize = 7;

const EDGE: u32 = libc::EPOLLET as u32;

loom::lazy_static! {
    pub(crate) static ref KERNEL: Kernel = Kernel::new();
}

#[derive(Debug)]
pub(crate) struct Kernel {
    state: Mutex<State>,
    /// Something is on the ready list.
    woken: Condvar,
}

#[derive(Debug)]
struct State {
    /// What each file has.
    files: Vec<u32>,
    /// How often each has been filled since it was drained.
    fills: Vec<usize>,
    /// The file under each number.
    numbers: [Option<usize>; NUMBERS],
    watches: Vec<Watch>,
    /// Of watches, by number and file.
    ready: VecDeque<(c_int, usize)>,
    rings: Vec<Ring>,
    /// Polls end after one completion.
    polls_end: bool,
    memory: Vec<Box<[u64]>>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    fd: c_int,
    file: usize,
    events: u32,
    data: u64,
}

#[derive(Debug, Default)]
struct Ring {
    submitted: Vec<Order>,
    polls: Vec<Poll>,
    /// Polls that have heard of something: what they are about, and what it was.
    work: Vec<(u64, u32)>,
    taskrun: bool,
    completions: Vec<(u64, i32, bool)>,
    rings_bell: bool,
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

impl State {
    fn file(&self, fd: c_int) -> Option<usize> {
        self.numbers.get(fd as usize).copied().flatten()
    }

    fn queue(&mut self, watch: Watch) {
        if !self.ready.contains(&(watch.fd, watch.file)) {
            self.ready.push_back((watch.fd, watch.file));
        }
    }

    fn is_held(&self, file: usize) -> bool {
        self.rings.iter().any(|ring| ring.polls.iter().any(|poll| poll.file == file))
    }

    /// Takes up to `room` events off the ready list.
    fn take(&mut self, room: usize) -> Vec<(u32, u64)> {
        let mut taken = Vec::new();
        for _ in 0..self.ready.len() {
            if taken.len() == room {
                break;
            }
            let Some(key) = self.ready.pop_front() else { break };
            let Some(watch) = self.watches.iter().find(|watch| (watch.fd, watch.file) == key).copied() else {
                continue;
            };
            let bits = self.files[watch.file] & watch.events;
            if bits != 0 {
                taken.push((bits, watch.data));
                if watch.events & EDGE == 0 {
                    self.ready.push_back(key);
                }
            }
        }
        taken
    }
}

impl Kernel {
    /// One file, the bell's, which is always readable to its edge-triggered watch.
    fn new() -> Self {
        let mut numbers = [None; NUMBERS];
        numbers[BELL as usize] = Some(0);
        let bell = Watch { fd: BELL, file: 0, events: libc::EPOLLIN as u32 | EDGE, data: BELL_DATA };
        let state = State {
            files: Vec::from([libc::EPOLLIN as u32]),
            fills: Vec::from([0]),
            numbers,
            watches: Vec::from([bell]),
            ready: VecDeque::new(),
            rings: Vec::new(),
            polls_end: false,
            memory: Vec::new(),
        };
        Self { state: Mutex::new(state), woken: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// From now on a poll ends with its first completion, as where there is no memory to go on.
    pub(crate) fn end_polls_by_itself(&self) {
        self.state().polls_end = true;
    }

    /// A new file under a number.
    pub(crate) fn open(&self, fd: c_int) -> usize {
        let mut state = self.state();
        state.files.push(0);
        state.fills.push(0);
        let file = state.files.len() - 1;
        assert_eq!(state.numbers[fd as usize].replace(file), None);
        file
    }

    /// The number's file is gone with it, and with that its watch.
    pub(crate) fn close(&self, fd: c_int) {
        let mut state = self.state();
        let file = state.numbers[fd as usize].take().unwrap();
        assert!(!state.is_held(file), "a poll holds a file that was closed");
        state.watches.retain(|watch| watch.file != file);
    }

    /// The file becomes readable, or has more to read.
    pub(crate) fn fill(&self, file: usize) {
        let bits = libc::EPOLLIN as u32;
        let mut state = self.state();
        state.files[file] |= bits;
        state.fills[file] += 1;
        drop(state);
        let mut state = self.state();
        for i in 0..state.watches.len() {
            let watch = state.watches[i];
            if watch.file == file && watch.events & bits != 0 {
                state.queue(watch);
                self.woken.notify_all();
            }
        }
        let rings = state.rings.len();
        let mut first = Vec::new();
        for i in 0..rings {
            let ring = &mut state.rings[i];
            for poll in ring.polls.iter().filter(|poll| poll.file == file && poll.events & bits != 0) {
                if ring.work.is_empty() {
                    first.push(i);
                }
                if !ring.work.iter().any(|(about, _)| *about == poll.about) {
                    ring.work.push((poll.about, bits));
                }
            }
        }
        drop(state);
        for i in first {
            self.state().rings[i].taskrun = true;
            let mut state = self.state();
            if state.rings[i].rings_bell {
                let bell = state.watches[0];
                state.queue(bell);
                self.woken.notify_all();
            }
        }
    }

    /// All there is to read is read; how often it had been filled.
    pub(crate) fn drain(&self, file: usize) -> usize {
        let mut state = self.state();
        state.files[file] = 0;
        core::mem::take(&mut state.fills[file])
    }

    pub(crate) fn add(&self, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
        let mut state = self.state();
        let file = state.file(fd).ok_or(Errno::EBADF)?;
        if state.watches.iter().any(|watch| (watch.fd, watch.file) == (fd, file)) {
            return Err(Errno::EEXIST);
        }
        let watch = Watch { fd, file, events, data };
        state.watches.push(watch);
        if state.files[file] & events != 0 {
            state.queue(watch);
            self.woken.notify_all();
        }
        Ok(())
    }

    pub(crate) fn remove(&self, fd: c_int) -> Result<(), Errno> {
        let mut state = self.state();
        let file = state.file(fd).ok_or(Errno::EBADF)?;
        let before = state.watches.len();
        state.watches.retain(|watch| (watch.fd, watch.file) != (fd, file));
        if state.watches.len() < before { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// epoll_wait(2): bits and data.
    pub(crate) fn wait(&self, room: usize, sleeps: bool) -> Vec<(u32, u64)> {
        let mut state = self.state();
        loop {
            let taken = state.take(room);
            if !taken.is_empty() || !sleeps {
                return taken;
            }
            state = self.woken.wait(state).unwrap();
        }
    }

    pub(crate) fn open_ring(&self) -> usize {
        let mut state = self.state();
        state.rings.push(Ring::default());
        state.rings.len() - 1
    }

    pub(crate) fn set_bell(&self, ring: usize, rings: bool) {
        self.state().rings[ring].rings_bell = rings;
    }

    pub(crate) fn put(&self, ring: usize, order: Order) {
        self.state().rings[ring].submitted.push(order);
    }

    /// Carries out what was submitted, and runs the work list.
    pub(crate) fn run(&self, i: usize) {
        let mut state = self.state();
        let goes_on = !state.polls_end;
        let orders = core::mem::take(&mut state.rings[i].submitted);
        for order in orders {
            match order {
                Order::Poll { fd, events, about } => {
                    let Some(file) = state.file(fd) else {
                        state.rings[i].completions.push((about, -libc::EBADF, false));
                        continue;
                    };
                    let bits = state.files[file] & events;
                    let ring = &mut state.rings[i];
                    if bits != 0 {
                        ring.completions.push((about, bits as i32, goes_on));
                    }
                    if bits == 0 || goes_on {
                        ring.polls.push(Poll { file, events, about });
                    }
                }
                Order::End { about } => {
                    let ring = &mut state.rings[i];
                    if ring.polls.iter().any(|poll| poll.about == about) {
                        ring.polls.retain(|poll| poll.about != about);
                        ring.completions.push((about, -libc::ECANCELED, false));
                    }
                    ring.completions.push((super::uring::NOBODY, 0, false));
                }
            }
        }
        state.rings[i].taskrun = false;
        drop(state);
        let mut state = self.state();
        let ring = &mut state.rings[i];
        for (about, bits) in core::mem::take(&mut ring.work) {
            if ring.polls.iter().any(|poll| poll.about == about) {
                ring.completions.push((about, bits as i32, goes_on));
                if !goes_on {
                    ring.polls.retain(|poll| poll.about != about);
                }
            }
        }
    }

    pub(crate) fn has_work(&self, ring: usize) -> bool {
        self.state().rings[ring].taskrun
    }

    pub(crate) fn has_completions(&self, ring: usize) -> bool {
        !self.state().rings[ring].completions.is_empty()
    }

    pub(crate) fn take_completions(&self, ring: usize) -> Vec<(u64, i32, bool)> {
        core::mem::take(&mut self.state().rings[ring].completions)
    }

    /// It is closed, and the kernel has ended what was in it.
    pub(crate) fn end_ring(&self, ring: usize) {
        self.state().rings[ring] = Ring::default();
    }
}

pub(crate) fn is_plain_socket(fd: c_int) -> bool {
    fd != KERNEL_FILE
}

pub(crate) fn wakes_for_cause(_: c_int) -> bool {
    true
}

/// A number whose file is no socket, so that the epoll has to watch it.
pub(crate) const KERNEL_FILE: c_int = 2;

/// poll(2).
pub(crate) fn look(entries: &mut [pollfd]) -> bool {
    let state = KERNEL.state();
    for entry in entries {
        let now = state.file(entry.fd).map_or(0, |file| state.files[file]);
        entry.revents = now as i16 & entry.events;
    }
    true
}

/// Memory, all zero, until the schedule's end.
pub(crate) fn map_watches(len: usize) -> Option<*mut u8> {
    let mut state = KERNEL.state();
    state.memory.push(std::vec![0; len.div_ceil(8)].into_boxed_slice());
    state.memory.last_mut().map(|memory| memory.as_mut_ptr().cast())
}
