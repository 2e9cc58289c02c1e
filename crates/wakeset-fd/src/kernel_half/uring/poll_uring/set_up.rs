//! Making the io_uring of a set.

use super::{ENTRIES, PollUring};
use crate::kernel_half::uring::thread_rings::Thread;
use crate::sys;
use crate::sys::births::Birth;
use crate::table::hidden;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{cmsghdr, iovec, msghdr};
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp,
    IoringRegisterOp, IoringSetupFlags, io_uring_cqe, io_uring_params, io_uring_sqe,
};

/// A mapping of the io_uring's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) start: *mut u8,
    len: usize,
}

/// Where the kernel has put its words, from the start of its rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) submit_tail: u32,
    pub(super) submit_mask: u32,
    pub(super) flags: u32,
    pub(super) complete_head: u32,
    pub(super) complete_tail: u32,
    pub(super) complete_mask: u32,
    pub(super) completions: u32,
}

/// Sends a file over a socket.
fn send(socket: c_int, fd: c_int) -> Option<()> {
    /// With room for one number, as the kernel lays it out.
    #[repr(C)]
    struct Passed {
        head: cmsghdr,
        fd: c_int,
    }
    let head = cmsghdr {
        // SAFETY: a calculation.
        cmsg_len: unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as _,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    let mut passed = Passed { head, fd };
    let mut byte = 0_u8;
    let mut vector = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zero is an empty message.
    let mut message = unsafe { core::mem::zeroed::<msghdr>() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut passed).cast();
    message.msg_controllen = size_of::<Passed>() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    sys::raw!(sendmsg, socket, &raw const message, flags).ok().map(drop)
}

/// An io_uring in the making. What it has by then is given back if it comes to nothing.
struct Unfinished(PollUring);

impl Unfinished {
    fn finish(self) -> PollUring {
        let ring = self.0;
        core::mem::forget(self);
        ring
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.close();
        self.0.close_pipe();
    }
}

impl PollUring {
    /// A new io_uring for the calling thread and up to `limit` watches; `None` where the kernel
    /// gives none.
    pub(crate) fn open(limit: usize) -> Option<Self> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::CQSIZE
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::TASKRUN_FLAG;
        params.cq_entries = 4 * limit as u32;
        let birth = Birth::begin();
        let low = sys::raw!(io_uring_setup, ENTRIES, &raw mut params).ok()? as c_int;
        let fd = hidden::hide(low);
        let mut unfinished = Unfinished(Self {
            fd,
            thread: Thread::current(),
            limit,
            kept: 0,
            rings: Memory::NONE,
            entries: Memory::NONE,
            offsets: Offsets {
                submit_tail: params.sq_off.tail,
                submit_mask: params.sq_off.ring_mask,
                flags: params.sq_off.flags,
                complete_head: params.cq_off.head,
                complete_tail: params.cq_off.tail,
                complete_mask: params.cq_off.ring_mask,
                completions: params.cq_off.cqes,
            },
            gone: -1,
        });
        unfinished.0.prepare(&params, birth)?;
        Some(unfinished.finish())
    }

    /// All its descriptors have been made when this drops the birth.
    fn prepare(&mut self, params: &io_uring_params, birth: Birth) -> Option<()> {
        let needed = IoringFeatureFlags::SINGLE_MMAP
            | IoringFeatureFlags::NODROP
            | IoringFeatureFlags::POLL_32BITS;
        if !params.features.contains(needed) {
            return None;
        }
        self.map(params)?;
        self.hold_pipe()?;
        drop(birth);
        self.keep_completions()
    }

    fn map(&mut self, params: &io_uring_params) -> Option<()> {
        let completions =
            params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let array = params.sq_off.array as usize + params.sq_entries as usize * 4;
        self.rings = Memory::map(self.fd, IORING_OFF_SQ_RING, completions.max(array))?;
        self.rings.keep_from_children()?;
        let len = params.sq_entries as usize * size_of::<io_uring_sqe>();
        self.entries = Memory::map(self.fd, IORING_OFF_SQES, len)?;
        self.entries.keep_from_children()?;
        for i in 0..params.sq_entries {
            self.word(params.sq_off.array + 4 * i).store(i, Ordering::Relaxed);
        }
        Some(())
    }

    /// Has the io_uring hold one end of a pipe, so that the other end hangs up when the kernel has
    /// ended the io_uring and closed all files that it held.
    ///
    /// What an ended io_uring has held last the kernel closes in one go, in any order. So the
    /// io_uring holds a socket to which the end of the pipe has been sent and which nobody reads:
    /// when the socket is closed the end of the pipe is closed in the next go.
    fn hold_pipe(&mut self) -> Option<()> {
        let mut ends = [-1; 2];
        sys::raw!(pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC).ok()?;
        self.gone = hidden::hide(ends[0]);
        let held = self.hold_sent(ends[1]);
        let _ = sys::close(ends[1]);
        held
    }

    fn hold(&self, mut fd: c_int) -> Option<()> {
        self.register(IoringRegisterOp::RegisterFiles, (&raw mut fd).cast(), 1).ok().map(drop)
    }

    /// Has the io_uring hold a socket to which a file has been sent.
    fn hold_sent(&self, fd: c_int) -> Option<()> {
        let mut pair = [-1; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        sys::raw!(socketpair, libc::AF_UNIX, kind, 0, pair.as_mut_ptr()).ok()?;
        let held = send(pair[1], fd).and_then(|()| self.hold(pair[0]));
        for end in pair {
            let _ = sys::close(end);
        }
        held
    }

    /// Puts the completions into the ring that stay there.
    fn keep_completions(&mut self) -> Option<()> {
        let keep = self.limit as u32 + ENTRIES;
        while self.kept < keep {
            let n = ENTRIES.min(keep - self.kept);
            for _ in 0..n {
                self.put(io_uring_sqe { opcode: IoringOp::Nop, ..io_uring_sqe::default() });
            }
            let completed =
                |uring: &Self| uring.word(uring.offsets.complete_tail).load(Ordering::Acquire);
            let before = completed(self);
            if self.enter(n, n, IoringEnterFlags::GETEVENTS) != Ok(n as usize)
                || completed(self) != before.wrapping_add(n)
            {
                return None;
            }
            self.kept += n;
        }
        Some(())
    }
}

impl Memory {
    pub(super) const NONE: Self = Self { start: ptr::null_mut(), len: 0 };

    fn map(fd: c_int, offset: u64, len: usize) -> Option<Self> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        let start = sys::raw!(mmap, 0, len, access, kind, fd, offset).ok()? as *mut u8;
        Some(Self { start, len })
    }

    /// Leaves it out of forks: a child would hold the io_uring with it.
    fn keep_from_children(&self) -> Option<()> {
        sys::raw!(madvise, self.start, self.len, libc::MADV_DONTFORK).ok().map(drop)
    }

    pub(super) fn unmap(&mut self) {
        if !self.start.is_null() {
            let _ = sys::raw!(munmap, self.start, self.len);
            *self = Self::NONE;
        }
    }
}
