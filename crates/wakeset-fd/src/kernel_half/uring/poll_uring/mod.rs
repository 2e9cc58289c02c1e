//! The io_uring that polls kernel descriptors for a set; see [`polls`](crate::set::polls).
//!
//! `set_up` makes it; this file is what its thread does with it: put entries, run the work, take
//! the completions.

mod set_up;

use super::thread_rings::{Thread, ThreadRing};
use crate::sys::{self, Errno};
use crate::table::hidden;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use libc::pollfd;
use rustix::io_uring::{
    IoringCqeFlags, IoringEnterFlags, IoringOp, IoringPollFlags, IoringRegisterOp, IoringSqFlags,
    addr_or_splice_off_in_union, io_uring_cqe, io_uring_ptr, io_uring_sqe, io_uring_user_data,
    len_union, op_flags_union,
};
use set_up::{Memory, Offsets};
use wakeset::{Deadline, Timeout};

/// Entries to submit.
const ENTRIES: u32 = 64;
/// How often a call that the kernel has no memory for is tried again.
const MOST_TRIES: u32 = 1000;

/// The user data of entries whose completions mean nothing.
pub(crate) const NOTHING: u64 = 0;

/// An io_uring. Only the thread that made it may use it; any thread may close it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollUring {
    pub(crate) fd: c_int,
    thread: Thread,
    /// How many watches it is made for.
    pub(crate) limit: usize,
    /// How many completions stay in the ring that have been taken already. Asked to wait for as
    /// many, the kernel finds them there and does not wait; and it runs as much work in one go as
    /// it is asked to wait for completions.
    kept: u32,
    rings: Memory,
    entries: Memory,
    offsets: Offsets,
    /// A pipe that hangs up when the io_uring is gone, and after it all that it held.
    pub(crate) gone: c_int,
}

impl ThreadRing for PollUring {
    fn thread(&self) -> Thread {
        self.thread
    }

    fn let_go(mut self) {
        self.close();
        self.wait_until_gone();
    }
}

impl PollUring {
    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in its rings, which are mapped; both sides use the words
        // atomically.
        unsafe { &*self.rings.start.add(offset as usize).cast::<AtomicU32>() }
    }

    fn register(
        &self,
        op: IoringRegisterOp,
        argument: *mut c_void,
        n: usize,
    ) -> Result<usize, Errno> {
        sys::raw!(io_uring_register, self.fd, op as u32, argument, n)
    }

    fn enter(&self, submit: u32, complete: u32, flags: IoringEnterFlags) -> Result<usize, Errno> {
        sys::raw!(io_uring_enter, self.fd, submit, complete, flags.bits(), 0, 0)
    }

    fn put(&self, entry: io_uring_sqe) {
        let tail = self.word(self.offsets.submit_tail).load(Ordering::Relaxed);
        let mask = self.word(self.offsets.submit_mask).load(Ordering::Relaxed);
        // SAFETY: there are `mask + 1` entries, and none is the kernel's: each submission is over
        // before the next begins.
        unsafe {
            self.entries.start.cast::<io_uring_sqe>().add((tail & mask) as usize).write(entry)
        };
        // Release: the kernel reads the entries before the tail.
        self.word(self.offsets.submit_tail).store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Has the kernel ring `doorbell`, or none, whenever the work list gets its first entry.
    /// Returns whether the kernel does so.
    pub(crate) fn set_doorbell(&self, doorbell: Option<c_int>) -> bool {
        let done = match doorbell {
            Some(mut number) => {
                self.register(IoringRegisterOp::RegisterEventfd, (&raw mut number).cast(), 1)
            }
            None => self.register(IoringRegisterOp::UnregisterEventfd, ptr::null_mut(), 0),
        };
        done.is_ok()
    }

    /// Puts an entry for a multishot poll of `fd` for the wake-ups `events`. `about` is its user
    /// data.
    pub(crate) fn put_poll(&self, fd: c_int, events: u32, about: u64) {
        self.put(io_uring_sqe {
            opcode: IoringOp::PollAdd,
            fd,
            len: len_union { poll_flags: IoringPollFlags::ADD_MULTI },
            op_flags: op_flags_union {
                poll32_events: if cfg!(target_endian = "big") {
                    events.rotate_left(16)
                } else {
                    events
                },
            },
            user_data: io_uring_user_data { u64_: about },
            ..io_uring_sqe::default()
        });
    }

    /// Puts an entry that ends the poll with the user data `about`.
    pub(crate) fn put_end(&self, about: u64) {
        // Not IORING_OP_POLL_REMOVE, which does not end a poll that has work under way.
        self.put(io_uring_sqe {
            opcode: IoringOp::AsyncCancel,
            fd: -1,
            addr_or_splice_off_in: addr_or_splice_off_in_union {
                addr: io_uring_ptr::new(about as *mut c_void),
            },
            ..io_uring_sqe::default()
        });
    }

    /// Submits what has been put, at most one entry, and runs all work. `false` if the kernel
    /// refuses.
    pub(crate) fn run(&self, submit: u32) -> bool {
        for _ in 0..MOST_TRIES {
            match self.enter(submit, self.kept, IoringEnterFlags::GETEVENTS) {
                // The kept completions are there, so this does not wait.
                Ok(submitted) if submitted as u32 == submit => return true,
                Ok(_) | Err(Errno::EAGAIN | Errno::EBUSY | Errno::EINTR) => sys::sched_yield(),
                Err(_) => return false,
            }
        }
        false
    }

    /// Returns whether a run may bring completions.
    pub(crate) fn has_work(&self) -> bool {
        // Acquire at least: pairs with the kernel's release at the end of what made it set the bit.
        let flags = self.word(self.offsets.flags).load(Ordering::SeqCst);
        flags & (IoringSqFlags::TASKRUN | IoringSqFlags::CQ_OVERFLOW).bits() != 0
    }

    /// Returns whether there are completions that have not been taken.
    pub(crate) fn has_completions(&self) -> bool {
        let head = self.word(self.offsets.complete_head).load(Ordering::Relaxed);
        let tail = self.word(self.offsets.complete_tail).load(Ordering::SeqCst);
        tail != head.wrapping_add(self.kept)
    }

    /// Takes the new completions and calls `done` with the user data of each, its result, and
    /// whether the poll goes on.
    pub(crate) fn collect(&self, mut done: impl FnMut(u64, i32, bool)) {
        let mask = self.word(self.offsets.complete_mask).load(Ordering::Relaxed);
        let head = self.word(self.offsets.complete_head).load(Ordering::Relaxed);
        // Acquire: the completions before the tail.
        let tail = self.word(self.offsets.complete_tail).load(Ordering::Acquire);
        let mut next = head.wrapping_add(self.kept);
        while next != tail {
            let offset = self.offsets.completions as usize
                + (next & mask) as usize * size_of::<io_uring_cqe>();
            // SAFETY: before the tail, so the kernel has written it.
            let (about, result, flags) = unsafe {
                let completion = self.rings.start.add(offset).cast::<io_uring_cqe>();
                ((*completion).user_data.u64_, (*completion).res, (*completion).flags)
            };
            next = next.wrapping_add(1);
            done(about, result, flags.contains(IoringCqeFlags::MORE));
        }
        self.word(self.offsets.complete_head)
            .store(next.wrapping_sub(self.kept), Ordering::Release);
    }

    /// Closes it. The kernel ends what is left in it, from a thread of its own.
    pub(crate) fn close(&mut self) {
        self.rings.unmap();
        self.entries.unmap();
        hidden::close(self.fd);
    }

    /// Waits until the kernel has ended a closed io_uring. For that the thread that it served has
    /// to run, so this waits no longer than a second. A handler of a signal does not end it.
    pub(crate) fn wait_until_gone(&mut self) {
        let end = Deadline::of(Timeout::After(Duration::from_secs(1)));
        let left = || end.map_or(Duration::ZERO, Deadline::remaining);
        let mut entry = pollfd { fd: self.gone, events: 0, revents: 0 };
        let mut wait = || sys::poll_entries(&raw mut entry, 1, left()) == Err(Errno::EINTR);
        while wait() && !left().is_zero() {}
        self.close_pipe();
    }

    fn close_pipe(&mut self) {
        if self.gone >= 0 {
            hidden::close(self.gone);
            self.gone = -1;
        }
    }
}
