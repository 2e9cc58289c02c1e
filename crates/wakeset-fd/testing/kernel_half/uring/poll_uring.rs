//! An io_uring of the played [`kernel`](crate::rooms::kernel).

use super::thread_rings::{Thread, ThreadRing};
use crate::rooms::kernel::{KERNEL, Order};
use core::ffi::c_int;

pub(crate) const NOTHING: u64 = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PollUring {
    pub(crate) fd: c_int,
    thread: Thread,
    pub(crate) limit: usize,
    pub(crate) gone: c_int,
}

impl ThreadRing for PollUring {
    fn thread(&self) -> Thread {
        self.thread
    }

    fn let_go(mut self) {
        self.wait_until_gone();
    }
}

impl PollUring {
    pub(crate) fn open(limit: usize) -> Option<Self> {
        Some(Self { fd: KERNEL.open_uring() as c_int, thread: Thread::current(), limit, gone: 0 })
    }

    /// The kernel takes calls from its thread only.
    fn index(&self) -> usize {
        assert!(self.thread.is_current(), "an io_uring is another thread's");
        self.fd as usize
    }

    pub(crate) fn set_doorbell(&self, bell: Option<c_int>) -> bool {
        KERNEL.set_doorbell(self.index(), bell.is_some());
        true
    }

    pub(crate) fn put_poll(&self, fd: c_int, events: u32, about: u64) {
        KERNEL.put(self.index(), Order::Poll { fd, events, about });
    }

    pub(crate) fn put_end(&self, about: u64) {
        KERNEL.put(self.index(), Order::End { about });
    }

    pub(crate) fn run(&self, _submit: u32) -> bool {
        KERNEL.run(self.index());
        true
    }

    /// Anybody may look, as at the memory.
    pub(crate) fn has_work(&self) -> bool {
        KERNEL.has_work(self.fd as usize)
    }

    pub(crate) fn has_completions(&self) -> bool {
        KERNEL.has_completions(self.fd as usize)
    }

    pub(crate) fn collect(&self, mut done: impl FnMut(u64, i32, bool)) {
        for (about, result, goes_on) in KERNEL.take_completions(self.fd as usize) {
            done(about, result, goes_on);
        }
    }

    pub(crate) fn close(&mut self) {}

    pub(crate) fn wait_until_gone(&mut self) {
        KERNEL.end_uring(self.fd as usize);
    }
}
