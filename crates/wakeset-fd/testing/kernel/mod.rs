//! The kernel, as far as a set with polls can tell: files that are readable or not, numbers, one
//! epoll with a doorbell in it, poll(2), and io_urings ([`uring`]).
//!
//! A change of a file takes as many steps as another processor can see. First the file's state
//! changes. Then the file's wait queue is walked: an entry of the epoll goes to the ready list, a
//! poll goes to the work list of its io_uring. With the first entry of that list the io_uring sets
//! `TASKRUN` and then rings the doorbell. A run of the work clears the bit before it takes the
//! list.

mod uring;

pub(crate) use uring::Order;

use core::ffi::c_int;
use libc::pollfd;
use loom::sync::{Condvar, Mutex, MutexGuard};
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec::Vec;
use syscalls::Errno;
use uring::Uring;

/// The number of the doorbell.
pub(crate) const BELL: c_int = 1;
/// The number of the alarm.
pub(crate) const ALARM: c_int = 4;
/// A number whose file is no socket, so that the epoll has to watch it.
pub(crate) const KERNEL_FILE: c_int = 2;
/// Numbers that there are.
pub(crate) const NUMBERS: usize = 7;

const EDGE: u32 = libc::EPOLLET as u32;

loom::lazy_static! {
    pub(crate) static ref KERNEL: Kernel = Kernel::new();
}

#[derive(Debug)]
pub(crate) struct Kernel {
    state: Mutex<State>,
    /// Notified when something goes to the ready list.
    woken: Condvar,
    /// Notified when a file changes that threads may sleep on in ppoll(2).
    polled: Condvar,
}

#[derive(Debug)]
struct State {
    /// The events that each file has.
    files: Vec<u32>,
    /// How often each file has been filled since it was drained.
    fills: Vec<usize>,
    /// The file under each number.
    numbers: [Option<usize>; NUMBERS],
    watches: Vec<Watch>,
    /// The watches that are ready, by number and file.
    ready: VecDeque<(c_int, usize)>,
    urings: Vec<Uring>,
    /// How many threads sleep in ppoll(2).
    pollers: usize,
    /// Whether the alarm's timer runs.
    runs: bool,
    /// A poll ends after one completion.
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

impl State {
    fn file(&self, fd: c_int) -> Option<usize> {
        self.numbers.get(fd as usize).copied().flatten()
    }

    /// Counts up the doorbell's eventfd, and queues its watch.
    fn ring(&mut self) {
        let Some(bell) = self.file(BELL) else { return };
        self.files[bell] |= libc::EPOLLIN as u32;
        if let Some(watch) = self.watches.iter().find(|watch| watch.file == bell).copied() {
            self.queue(watch);
        }
    }

    fn look(&self, entries: &mut [pollfd]) -> bool {
        for entry in &mut *entries {
            let now = self.file(entry.fd).map_or(0, |file| self.files[file]);
            entry.revents = now as i16 & entry.events;
        }
        entries.iter().any(|entry| entry.revents != 0)
    }

    fn queue(&mut self, watch: Watch) {
        if !self.ready.contains(&(watch.fd, watch.file)) {
            self.ready.push_back((watch.fd, watch.file));
        }
    }

    /// Takes up to `maxevents` events off the ready list.
    fn take(&mut self, maxevents: usize) -> Vec<(u32, u64)> {
        let mut taken = Vec::new();
        for _ in 0..self.ready.len() {
            if taken.len() == maxevents {
                break;
            }
            let Some(key) = self.ready.pop_front() else { break };
            let Some(watch) =
                self.watches.iter().find(|watch| (watch.fd, watch.file) == key).copied()
            else {
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
    /// A kernel without files.
    fn new() -> Self {
        let state = State {
            files: Vec::new(),
            fills: Vec::new(),
            numbers: [None; NUMBERS],
            watches: Vec::new(),
            ready: VecDeque::new(),
            urings: Vec::new(),
            pollers: 0,
            runs: false,
            polls_end: false,
            memory: Vec::new(),
        };
        Self { state: Mutex::new(state), woken: Condvar::new(), polled: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Puts a new file under a number.
    pub(crate) fn open(&self, fd: c_int) -> usize {
        let mut state = self.state();
        state.files.push(0);
        state.fills.push(0);
        let file = state.files.len() - 1;
        assert_eq!(state.numbers[fd as usize].replace(file), None);
        file
    }

    /// Closes a number. Its file ends with it, and with the file its watch.
    pub(crate) fn close(&self, fd: c_int) {
        let mut state = self.state();
        let file = state.numbers[fd as usize].take().unwrap();
        let is_held = state.urings.iter().any(|uring| uring.holds(file));
        assert!(!is_held, "a poll holds a file that was closed");
        state.watches.retain(|watch| watch.file != file);
    }

    /// Makes a file readable, or gives it more to read.
    pub(crate) fn fill(&self, file: usize) {
        let bits = libc::EPOLLIN as u32;
        let mut state = self.state();
        state.files[file] |= bits;
        state.fills[file] += 1;
        drop(state);
        let mut state = self.state();
        self.tell_pollers(&state);
        for i in 0..state.watches.len() {
            let watch = state.watches[i];
            if watch.file == file && watch.events & bits != 0 {
                state.queue(watch);
                self.woken.notify_all();
            }
        }
        let with_first_work: Vec<usize> = (0..state.urings.len())
            .filter(|i| state.urings[*i].wake_polls_of(file, bits))
            .collect();
        drop(state);
        for i in with_first_work {
            self.state().urings[i].announce_work();
            let mut state = self.state();
            if state.urings[i].rings_doorbell() {
                state.ring();
                self.woken.notify_all();
            }
        }
    }

    /// Writes to the doorbell's eventfd: count and ready list change under one lock.
    pub(crate) fn ring(&self) {
        let mut state = self.state();
        state.ring();
        self.tell_pollers(&state);
        drop(state);
        self.woken.notify_all();
    }

    /// Reads the doorbell's eventfd.
    pub(crate) fn silence(&self) {
        let mut state = self.state();
        if let Some(bell) = state.file(BELL) {
            state.files[bell] = 0;
        }
    }

    /// timerfd_settime(2) of the alarm.
    pub(crate) fn set_alarm(&self, runs: bool) {
        let mut state = self.state();
        state.runs = runs;
        if let Some(timer) = state.file(ALARM) {
            state.files[timer] = 0;
        }
    }

    /// read(2) of the alarm.
    pub(crate) fn silence_alarm(&self) {
        let mut state = self.state();
        if let Some(timer) = state.file(ALARM) {
            state.files[timer] = 0;
        }
    }

    /// A period of the alarm is over, if it runs.
    pub(crate) fn let_alarm_expire(&self) {
        let state = self.state();
        let timer = state.file(ALARM).filter(|_| state.runs);
        drop(state);
        if let Some(timer) = timer {
            self.fill(timer);
        }
    }

    /// Whether the alarm will wake those that sleep in the epoll.
    pub(crate) fn alarm_is_armed(&self) -> bool {
        self.watches(ALARM) && self.state().runs
    }

    /// Whether the epoll watches what is under this number.
    pub(crate) fn watches(&self, fd: c_int) -> bool {
        self.state().watches.iter().any(|watch| watch.fd == fd)
    }

    fn tell_pollers(&self, state: &State) {
        if state.pollers > 0 {
            self.polled.notify_all();
        }
    }

    /// Reads all there is to read in a file, and returns how often it had been filled.
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

    /// epoll_wait(2): the bits and the data of each event.
    pub(crate) fn wait(&self, maxevents: usize, sleeps: bool) -> Vec<(u32, u64)> {
        let mut state = self.state();
        loop {
            let taken = state.take(maxevents);
            if !taken.is_empty() || !sleeps {
                return taken;
            }
            state = self.woken.wait(state).unwrap();
        }
    }

    /// poll(2), without a wait.
    pub(crate) fn poll(&self, entries: &mut [pollfd]) {
        self.state().look(entries);
    }

    /// ppoll(2), without a limit.
    pub(crate) fn sleep_on(&self, entries: &mut [pollfd]) {
        let mut state = self.state();
        while !state.look(entries) {
            state.pollers += 1;
            state = self.polled.wait(state).unwrap();
            state.pollers -= 1;
        }
    }

    /// Memory, all zero, until the schedule's end.
    pub(crate) fn map(&self, len: usize) -> *mut u8 {
        let mut state = self.state();
        state.memory.push(std::vec![0; len.div_ceil(8)].into_boxed_slice());
        state.memory.last_mut().unwrap().as_mut_ptr().cast()
    }
}
