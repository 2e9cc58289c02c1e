//! The queue of watches to check. Watches are linked by their numbers, so it takes no memory.

use super::Watches;
use super::watch::{CHECK, QUEUED};
use core::ffi::c_int;

/// The ends of the queue, by number plus one, 0 for none.
#[derive(Debug)]
pub(super) struct Queue {
    first: c_int,
    last: c_int,
    len: usize,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { first: 0, last: 0, len: 0 };

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Watches {
    /// Puts a watch at the end of the queue, to be checked whatever its completions say.
    pub(super) fn enqueue_to_check(&mut self, fd: c_int) {
        if let Some(watch) = self.watch(fd) {
            watch.state |= CHECK;
        }
        self.enqueue(fd);
    }

    /// Puts a watch at the end of the queue, unless it is in it.
    pub(super) fn enqueue(&mut self, fd: c_int) {
        let Some(watch) = self.watch(fd).filter(|watch| !watch.is_queued()) else { return };
        watch.state |= QUEUED;
        watch.next = 0;
        match self.queue.last {
            0 => self.queue.first = fd + 1,
            last => {
                if let Some(before) = self.watch(last - 1) {
                    before.next = fd + 1;
                }
            }
        }
        self.queue.last = fd + 1;
        self.queue.len += 1;
    }

    /// Takes the first watch out of the queue.
    pub(super) fn dequeue(&mut self) -> Option<c_int> {
        let fd = self.queue.first - 1;
        let watch = self.watch(fd).filter(|_| fd >= 0)?;
        watch.state &= !QUEUED;
        self.queue.first = watch.next;
        if self.queue.first == 0 {
            self.queue.last = 0;
        }
        self.queue.len -= 1;
        Some(fd)
    }

    /// Takes one watch out of the queue; the others keep their order.
    pub(super) fn take_out_of_queue(&mut self, fd: c_int) {
        for _ in 0..self.queue.len {
            if let Some(other) = self.dequeue().filter(|other| *other != fd) {
                self.enqueue(other);
            }
        }
    }
}
