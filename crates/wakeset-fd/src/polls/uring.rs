//! The io_uring behind a set's polls, and what else [`polls`](super) asks the kernel about sockets. Under the model checker another stands
//! in its place.

use crate::bell;
use crate::sys::{self, Errno};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringCqeFlags, IoringEnterFlags, IoringFeatureFlags, IoringOp,
    IoringPollFlags, IoringRegisterOp, IoringSetupFlags, IoringSqFlags, addr_or_splice_off_in_union, io_uring_cqe,
    io_uring_params, io_uring_ptr, io_uring_sqe, io_uring_user_data, len_union, op_flags_union,
};

/// Entries to submit.
const ENTRIES: u32 = 64;
/// How often a call that the kernel has no memory for is tried again.
const PATIENCE: u32 = 1000;

/// Nothing that anybody asks about.
pub(super) const NOBODY: u64 = 0;

/// An io_uring; all but closing it is for the thread that made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uring {
    pub(super) fd: c_int,
    pub(super) owner: u32,
    pub(super) tid: c_int,
    pub(super) limit: usize,
    /// Completions that stay in the ring, already looked at. Asked to wait for as many, the kernel finds them there and waits for none; and it runs as much work in one
    /// go as it is asked to wait for completions.
    kept: u32,
    rings: Memory,
    entries: Memory,
    offsets: Offsets,
    /// Hangs up when the io_uring is gone, and with it all it held.
    pub(super) gone: c_int,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    start: *mut u8,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    submit_tail: u32,
    submit_mask: u32,
    flags: u32,
    complete_head: u32,
    complete_tail: u32,
    complete_mask: u32,
    completions: u32,
}

impl Uring {
    pub(super) fn open(owner: u32, limit: usize) -> Option<Self> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::CQSIZE
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::TASKRUN_FLAG;
        params.cq_entries = 4 * limit as u32;
        let low = sys::raw!(io_uring_setup, ENTRIES, &raw mut params).ok()? as c_int;
        let fd = bell::hide(low);
        let mut ring = Self {
            fd,
            owner,
            tid: sys::gettid(),
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
        };
        if ring.prepare(&params).is_none() {
            ring.close();
            return None;
        }
        Some(ring)
    }

    fn prepare(&mut self, params: &io_uring_params) -> Option<()> {
        let needed = IoringFeatureFlags::SINGLE_MMAP | IoringFeatureFlags::NODROP | IoringFeatureFlags::POLL_32BITS;
        if !params.features.contains(needed) {
            return None;
        }
        let completions = params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let array = params.sq_off.array as usize + params.sq_entries as usize * 4;
        self.rings = Memory::map(self.fd, IORING_OFF_SQ_RING, completions.max(array))?;
        let len = params.sq_entries as usize * size_of::<io_uring_sqe>();
        self.entries = Memory::map(self.fd, IORING_OFF_SQES, len)?;
        for i in 0..params.sq_entries {
            self.word(params.sq_off.array + 4 * i).store(i, Ordering::Relaxed);
        }
        let mut ends = [-1; 2];
        sys::raw!(pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC).ok()?;
        self.gone = bell::hide(ends[0]);
        let registered = self.register(IoringRegisterOp::RegisterFiles, (&raw mut ends[1]).cast(), 1);
        let _ = sys::close(ends[1]);
        registered.ok()?;
        let keep = self.limit as u32 + ENTRIES;
        while self.kept < keep {
            let n = ENTRIES.min(keep - self.kept);
            for _ in 0..n {
                self.put(io_uring_sqe { opcode: IoringOp::Nop, ..io_uring_sqe::default() });
            }
            let tail = self.word(self.offsets.complete_tail).load(Ordering::Acquire);
            if self.enter(n, n, IoringEnterFlags::GETEVENTS) != Ok(n as usize) {
                return None;
            }
            if self.word(self.offsets.complete_tail).load(Ordering::Acquire) != tail.wrapping_add(n) {
                return None;
            }
            self.kept += n;
        }
        Some(())
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in its rings, which are mapped; both sides use the words atomically.
        unsafe { &*self.rings.start.add(offset as usize).cast::<AtomicU32>() }
    }

    fn register(&self, op: IoringRegisterOp, argument: *mut c_void, n: usize) -> Result<usize, Errno> {
        sys::raw!(io_uring_register, self.fd, op as u32, argument, n)
    }

    fn enter(&self, submit: u32, complete: u32, flags: IoringEnterFlags) -> Result<usize, Errno> {
        sys::raw!(io_uring_enter, self.fd, submit, complete, flags.bits(), 0, 0)
    }

    fn put(&self, entry: io_uring_sqe) {
        let tail = self.word(self.offsets.submit_tail).load(Ordering::Relaxed);
        let mask = self.word(self.offsets.submit_mask).load(Ordering::Relaxed);
        // SAFETY: there are `mask + 1` entries, and none is the kernel's: each submission is over before the next begins.
        unsafe { self.entries.start.cast::<io_uring_sqe>().add((tail & mask) as usize).write(entry) };
        // Release: the kernel reads the entry behind it.
        self.word(self.offsets.submit_tail).store(tail.wrapping_add(1), Ordering::Release);
    }

    /// From now on rings `bell` when its work list gets its first entry, or nothing; whether the kernel does so.
    pub(super) fn set_bell(&self, bell: Option<c_int>) -> bool {
        let done = match bell {
            Some(mut number) => self.register(IoringRegisterOp::RegisterEventfd, (&raw mut number).cast(), 1),
            None => self.register(IoringRegisterOp::UnregisterEventfd, ptr::null_mut(), 0),
        };
        done.is_ok()
    }

    /// Puts a multishot poll of `fd` for the wake-ups `events`.
    pub(super) fn put_poll(&self, fd: c_int, events: u32, about: u64) {
        self.put(io_uring_sqe {
            opcode: IoringOp::PollAdd,
            fd,
            len: len_union { poll_flags: IoringPollFlags::ADD_MULTI },
            op_flags: op_flags_union {
                poll32_events: if cfg!(target_endian = "big") { events.rotate_left(16) } else { events },
            },
            user_data: io_uring_user_data { u64_: about },
            ..io_uring_sqe::default()
        });
    }

    /// Puts an end to the poll that is `about` something.
    pub(super) fn put_end(&self, about: u64) {
        // Not IORING_OP_POLL_REMOVE, which lets go of nothing that has work under way.
        self.put(io_uring_sqe {
            opcode: IoringOp::AsyncCancel,
            fd: -1,
            addr_or_splice_off_in: addr_or_splice_off_in_union { addr: io_uring_ptr::new(about as *mut c_void) },
            ..io_uring_sqe::default()
        });
    }

    /// Submits what has been put, at most one entry, and runs all work. `false`: the kernel will not.
    pub(super) fn run(&self, submit: u32) -> bool {
        for _ in 0..PATIENCE {
            match self.enter(submit, self.kept, IoringEnterFlags::GETEVENTS) {
                // What is kept is there, so that is not waited for.
                Ok(submitted) if submitted as u32 == submit => return true,
                Ok(_) | Err(Errno::EAGAIN | Errno::EBUSY | Errno::EINTR) => sys::sched_yield(),
                Err(_) => return false,
            }
        }
        false
    }

    /// Whether a run may bring something.
    pub(super) fn has_work(&self) -> bool {
        // Acquire, as of the kernel's release at the end of what made it set the bit.
        let flags = self.word(self.offsets.flags).load(Ordering::SeqCst);
        flags & (IoringSqFlags::TASKRUN | IoringSqFlags::CQ_OVERFLOW).bits() != 0
    }

    pub(super) fn has_completions(&self) -> bool {
        let head = self.word(self.offsets.complete_head).load(Ordering::Relaxed);
        let tail = self.word(self.offsets.complete_tail).load(Ordering::SeqCst);
        tail != head.wrapping_add(self.kept)
    }

    /// Hands each new completion to `done`: what it is about, the result, whether the poll goes on.
    pub(super) fn collect(&self, mut done: impl FnMut(u64, i32, bool)) {
        let mask = self.word(self.offsets.complete_mask).load(Ordering::Relaxed);
        let head = self.word(self.offsets.complete_head).load(Ordering::Relaxed);
        // Acquire: the completions before it.
        let tail = self.word(self.offsets.complete_tail).load(Ordering::Acquire);
        let mut place = head.wrapping_add(self.kept);
        while place != tail {
            let offset = self.offsets.completions as usize + (place & mask) as usize * size_of::<io_uring_cqe>();
            // SAFETY: before the tail, so the kernel has written it.
            let (about, result, flags) = unsafe {
                let completion = self.rings.start.add(offset).cast::<io_uring_cqe>();
                ((*completion).user_data.u64_, (*completion).res, (*completion).flags)
            };
            place = place.wrapping_add(1);
            done(about, result, flags.contains(IoringCqeFlags::MORE));
        }
        self.word(self.offsets.complete_head).store(place.wrapping_sub(self.kept), Ordering::Release);
    }

    /// Lets go of it. The kernel ends what is left in it, from a thread of its own.
    pub(super) fn close(&mut self) {
        self.rings.unmap();
        self.entries.unmap();
        bell::disclose(self.fd);
        let _ = sys::close(self.fd);
    }

    /// Waits until the kernel has ended a closed one; for this the thread that it served must run, so not for ever.
    pub(super) fn wait_until_gone(&mut self) {
        let _ = sys::poll_within(self.gone, 0, Duration::from_secs(1));
        bell::disclose(self.gone);
        let _ = sys::close(self.gone);
    }
}

impl Memory {
    const NONE: Self = Self { start: ptr::null_mut(), len: 0 };

    fn map(fd: c_int, offset: u64, len: usize) -> Option<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        let start = sys::raw!(mmap, 0, len, access, kind, fd, offset).ok()? as *mut u8;
        let memory = Self { start, len };
        // A child would hold the io_uring.
        sys::raw!(madvise, start, len, libc::MADV_DONTFORK).is_ok().then_some(memory)
    }

    fn unmap(&mut self) {
        if !self.start.is_null() {
            let _ = sys::raw!(munmap, self.start, self.len);
            *self = Self::NONE;
        }
    }
}

/// Whether it is a socket that does not listen.
pub(super) fn is_plain_socket(fd: c_int) -> bool {
    socket_option(fd, libc::SO_ACCEPTCONN) == Some(0)
}

/// Whether its wake-ups say what has come to be: known of streams. A datagram that its receiver has no room for wakes its own sender, for room, so who tried again at each
/// such hint would never stop.
pub(super) fn wakes_for_cause(fd: c_int) -> bool {
    let known = matches!(socket_option(fd, libc::SO_DOMAIN), Some(libc::AF_UNIX | libc::AF_INET | libc::AF_INET6));
    known && socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// One of getsockopt(2)'s, if it is a socket.
fn socket_option(fd: c_int, option: c_int) -> Option<c_int> {
    let (mut value, mut len) = (0_i32, size_of::<c_int>() as u32);
    sys::raw!(getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut len).ok()?;
    Some(value)
}

/// poll(2) of all at this moment; whether it says anything. Not if the process may have no descriptors (RLIMIT_NOFILE), as a sandbox demands of one that has
/// all it needs.
pub(super) fn look(entries: &mut [libc::pollfd]) -> bool {
    let ask = |entries: &mut [libc::pollfd]| {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let none = ptr::null::<u8>();
        let said = sys::raw!(ppoll, entries.as_mut_ptr(), entries.len(), &raw const now, none, sys::SIGSET_BYTES);
        // EINTR: none of them has anything, and a signal is on its way.
        matches!(said, Ok(_) | Err(Errno::EINTR))
    };
    // No memory for so many at once, or more than the limit allows.
    entries.is_empty() || ask(entries) || entries.chunks_mut(1).all(ask)
}

/// Memory, all zero, that a fork wipes.
pub(super) fn map_watches(len: usize) -> Option<*mut u8> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    let start = sys::raw!(mmap, 0, len, access, kind, -1_isize, 0).ok()?;
    if sys::raw!(madvise, start, len, libc::MADV_WIPEONFORK).is_err() {
        let _ = sys::raw!(munmap, start, len);
        return None;
    }
    Some(start as *mut u8)
}
