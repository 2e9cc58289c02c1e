//! What is known of one description and of one watch.

use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLRDNORM};

pub(super) const EXCLUSIVE: u32 = EPOLLEXCLUSIVE as u32;
pub(super) const ET: u32 = EPOLLET as u32;
pub(super) const ONESHOT: u32 = EPOLLONESHOT as u32;
pub(super) const IN: u32 = EPOLLIN as u32;
pub(super) const RDNORM: u32 = EPOLLRDNORM as u32;

/// Stands for no description.
pub(super) const NONE: u8 = u8::MAX;

/// What a description is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An eventfd.
    Counter,
    /// A timerfd: a counter whose value is 1 or 0.
    Timer,
    /// An epoll set.
    Set,
    /// An end of a pipe or socket pair that begins in user space.
    Stream,
    /// An object that Wakeset leaves to the kernel.
    Other,
}

/// A watch of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// The number half of its key.
    pub number: i32,
    /// The description half of its key.
    pub description: u8,
    pub events: u32,
}

impl Watch {
    pub fn is_on(&self, description: usize) -> bool {
        usize::from(self.description) == description
    }

    pub fn is_edge(&self) -> bool {
        self.events & ET != 0
    }
}

/// What is known of a description.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub kind: Kind,
    /// Descriptors.
    pub refs: u8,
    /// It has several numbers in process, or had. The last of them is closed as one of several.
    pub several: bool,
    /// It has migrated into the kernel.
    pub migrated: bool,
    pub nonblocking: bool,
    pub semaphore: bool,
    /// Of an eventfd or timerfd: its value. Of a stream: an upper bound on the bytes in use.
    pub value: u64,
    /// Of a stream: its other end, while that is open.
    pub other: u8,
    /// It is one of a pair of sockets.
    pub socket: bool,
    /// It is the end of a pipe that is written to.
    pub writes: bool,
    /// Of a set: it has, or had, a watch in the kernel.
    pub has_kernel: bool,
    /// Of a set: its kernel half may hold edges that have not been reported.
    pub kernel_edges: bool,
    /// Of a set: the order of its events is not defined.
    pub scrambled: bool,
    /// Of a set: the slots of its event ring, on the sides that have rings; 0 for none.
    pub ring: u8,
    /// Of a set: an io_uring watches its sockets, or did.
    pub polls: bool,
    /// Of a set: an io_uring watches the sockets of a set below it, or did.
    pub around_polls: bool,
    pub watches: Vec<Watch>,
}

impl Description {
    pub const fn none() -> Self {
        Self {
            kind: Kind::Other,
            refs: 0,
            several: false,
            migrated: false,
            nonblocking: true,
            semaphore: false,
            value: 0,
            other: NONE,
            socket: false,
            writes: false,
            has_kernel: false,
            kernel_edges: false,
            scrambled: false,
            ring: 0,
            polls: false,
            around_polls: false,
            watches: Vec::new(),
        }
    }

    pub fn is_in_process(&self) -> bool {
        self.kind != Kind::Other && !self.migrated
    }
}
