//! A set, and the calls of a program on it.

use super::kernel::{BELL, KERNEL};
use super::turns::{LastLook, Turns};
use crate::polls::{self, Polls};
use crate::sync::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use crate::sys::{self, Errno};
use crate::wait::{Limit, Mask, Wait};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, epoll_event};
use std::vec::Vec;
use wakeset::{Engine, Event, EventPoll, Events, Timeout};

#[derive(Debug)]
pub(crate) struct FdSet {
    pub(crate) set: EventPoll,
    pub(crate) in_kernel: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) has_kernel: AtomicBool,
    pub(crate) kernel_edges: AtomicBool,
    /// Nothing moves here.
    pub(crate) moved_watches: core::sync::atomic::AtomicU32,
    pub(crate) unsettled: core::sync::atomic::AtomicU32,
    pub(crate) bell: AtomicI32,
    pub(crate) turns: Turns,
    pub(crate) polls: Polls,
    pub(crate) only_polls: AtomicBool,
    pub(crate) turn: AtomicU32,
    pub(crate) handed_out: AtomicBool,
}

impl FdSet {
    pub(crate) fn new() -> Self {
        Self {
            set: EventPoll::new(&Engine::new()).unwrap(),
            in_kernel: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            has_kernel: AtomicBool::new(false),
            kernel_edges: AtomicBool::new(false),
            moved_watches: core::sync::atomic::AtomicU32::new(0),
            unsettled: core::sync::atomic::AtomicU32::new(0),
            bell: AtomicI32::new(BELL),
            turns: Turns { looked: LastLook },
            polls: Polls::new(),
            only_polls: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            handed_out: AtomicBool::new(false),
        }
    }

    pub(crate) fn fd(&self) -> c_int {
        0
    }

    pub(crate) fn note_kernel_watch(&self) {
        self.only_polls.store(false, Ordering::SeqCst);
        if !self.has_kernel.swap(true, Ordering::SeqCst) {
            self.set.kick_all();
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        false
    }

    pub(crate) fn is_pure(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
            || !self.has_kernel.load(Ordering::SeqCst) && !self.in_kernel.load(Ordering::SeqCst)
    }

    /// epoll_ctl(2) as set.rs has it for a descriptor of the kernel's.
    pub(crate) fn ctl(&self, op: c_int, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
        let asked = Event::new(Events::from_bits_retain(events), data);
        if let Some(result) = polls::epoll_ctl(self, op, fd, asked) {
            return result;
        }
        if op == EPOLL_CTL_ADD {
            self.note_kernel_watch();
        }
        let event = epoll_event { events, u64: data };
        sys::epoll_ctl(self.fd(), op, fd, &raw const event)?;
        if self.polls.are_active() && !polls::are_for_me(self) {
            polls::give_up(self);
        }
        Ok(())
    }

    /// epoll_wait(2) for up to `room` events: their data.
    pub(crate) fn wait(&self, room: usize, timeout: Timeout) -> Vec<u64> {
        let mut events = std::vec![epoll_event { events: 0, u64: 0 }; room];
        let wait = Wait {
            set: self,
            hand: None,
            events: events.as_mut_ptr(),
            room: room as c_int,
            limit: Limit::Milliseconds(if timeout == Timeout::Now { 0 } else { -1 }),
            timeout,
            mask: Mask { set: ptr::null(), bytes: sys::SIGSET_BYTES },
            handled: None,
            faulted: Cell::new(false),
            rung: Cell::new(false),
        };
        let n = wait.run().unwrap() as usize;
        self.set.mind_deadline();
        events.truncate(n);
        events.iter().map(|event| event.u64).collect()
    }
}

/// close(2) of a number.
pub(crate) fn close(fd: c_int) {
    polls::before_close(fd);
    KERNEL.close(fd);
}
