//! An io_uring of [`kernel`](super::kernel).

use super::kernel::{self, KERNEL, Order};
use crate::section;
use core::ffi::c_int;

pub(crate) const NOBODY: u64 = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Uring {
    pub(crate) fd: c_int,
    pub(crate) owner: u32,
    pub(crate) tid: c_int,
    pub(crate) limit: usize,
    pub(crate) gone: c_int,
}

impl Uring {
    pub(crate) fn open(owner: u32, limit: usize) -> Option<Self> {
        Some(Self { fd: KERNEL.open_ring() as c_int, owner, tid: 1, limit, gone: 0 })
    }

    /// The kernel takes calls from its thread only.
    fn index(&self) -> usize {
        assert_eq!(self.owner, section::owner(), "an io_uring is another thread's");
        self.fd as usize
    }

    pub(crate) fn set_bell(&self, bell: Option<c_int>) -> bool {
        KERNEL.set_bell(self.index(), bell.is_some());
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
        KERNEL.end_ring(self.fd as usize);
    }
}

pub(crate) use kernel::{is_plain_socket, look, map_watches, wakes_for_cause};
