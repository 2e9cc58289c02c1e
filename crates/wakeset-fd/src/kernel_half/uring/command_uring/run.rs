//! Carrying out commands: entries go in, completions come out.

use super::{CommandUring, ENTRIES, PAGE};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::epoll_event;
use rustix::io_uring::{
    IoringEnterFlags, IoringOp, IoringSqeFlags, addr_or_splice_off_in_union, io_uring_cqe,
    io_uring_ptr, io_uring_sqe, io_uring_user_data, len_union, off_or_addr2_union,
};
use wakeset::mutated;

/// How often a submission that the kernel has no memory for is tried again.
const MOST_TRIES: u32 = 100;

/// One command. A removal needs no event.
pub(crate) struct Task {
    pub(crate) op: c_int,
    pub(crate) fd: c_int,
    pub(crate) event: *const epoll_event,
}

/// What the order of submission means.
///
/// The kernel tries commands in that order, but it puts one aside for a worker that meets a lock
/// another thread holds, and goes on with those after it. Chains keep the order and cost about what
/// the io_uring saves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// No command's result depends on that of another.
    Free,
    /// Each command begins when the one before it is done.
    Strict,
    /// As `Strict`, and after an error no command is carried out: ECANCELED.
    StopAtError,
}

impl Order {
    fn flags(self) -> IoringSqeFlags {
        match self {
            Self::Free => IoringSqeFlags::empty(),
            Self::Strict => IoringSqeFlags::IO_HARDLINK,
            Self::StopAtError => IoringSqeFlags::IO_LINK,
        }
    }
}

impl CommandUring {
    /// Carries out commands on `set` and waits for all of them, whatever became of each;
    /// `done(which, result)` is called for each. Returns how many of `tasks` were carried out: all,
    /// unless the kernel refuses to go on, or with [`Order::StopAtError`] an error stopped it.
    ///
    /// # Safety
    /// The tasks' events are valid, or not needed.
    pub(crate) unsafe fn run(
        &mut self,
        set: c_int,
        order: Order,
        tasks: &[Task],
        mut done: impl FnMut(usize, Result<(), Errno>),
    ) -> usize {
        let mut begun = 0;
        while begun < tasks.len() {
            let portion = &tasks[begun..tasks.len().min(begun + ENTRIES)];
            let tail = self.word(self.kept.offsets.submit_tail).load(Ordering::Relaxed);
            self.kept.submission = self.kept.submission.wrapping_add(1);
            for (i, task) in portion.iter().enumerate() {
                // A chain ends with the portion.
                let is_last = i + 1 == portion.len();
                let flags = if is_last { IoringSqeFlags::empty() } else { order.flags() };
                self.put(tail.wrapping_add(i as u32), self.entry(set, task, flags, begun + i));
            }
            let end = tail.wrapping_add(portion.len() as u32);
            // Release: the kernel reads the entries before the tail.
            self.word(self.kept.offsets.submit_tail).store(end, Ordering::Release);
            let submitted = self.submit(portion.len() as u32);
            let mut failed = false;
            self.collect(submitted, |which, result| {
                failed |= result.is_err();
                done(which, result);
            });
            begun += submitted as usize;
            if (submitted as usize) < portion.len() {
                // The kernel reads the entries only when entered, so they can be taken back.
                self.word(self.kept.offsets.submit_tail)
                    .store(tail.wrapping_add(submitted), Ordering::Release);
                if submitted == 0 {
                    break;
                }
            }
            if failed && order == Order::StopAtError {
                break;
            }
        }
        begun
    }

    fn entry(&self, set: c_int, task: &Task, flags: IoringSqeFlags, which: usize) -> io_uring_sqe {
        let address = io_uring_ptr::new(task.event.cast_mut().cast());
        let submission = u64::from(self.kept.submission) << 32;
        io_uring_sqe {
            opcode: IoringOp::EpollCtl,
            flags,
            fd: set,
            off_or_addr2: off_or_addr2_union { off: u64::from(task.fd as u32) },
            addr_or_splice_off_in: addr_or_splice_off_in_union { addr: address },
            len: len_union { len: task.op as u32 },
            user_data: io_uring_user_data { u64_: which as u64 | submission },
            ..io_uring_sqe::default()
        }
    }

    fn put(&mut self, position: u32, entry: io_uring_sqe) {
        let mask = self.word(self.kept.offsets.submit_mask).load(Ordering::Relaxed);
        // SAFETY: the first page holds `ENTRIES` entries, which are the kernel's only between
        // `submit` and its return.
        unsafe {
            self.kept.memory.cast::<io_uring_sqe>().add((position & mask) as usize).write(entry)
        };
    }

    fn enter(&self, submit: u32, complete: u32) -> Result<usize, Errno> {
        let flags = IoringEnterFlags::GETEVENTS | IoringEnterFlags::REGISTERED_RING;
        sys::raw!(io_uring_enter, self.kept.index, submit, complete, flags.bits(), 0, 0)
    }

    /// Submits the last `n` entries and returns how many of them the kernel took. Unless it took
    /// fewer, it waits for their completion.
    fn submit(&self, n: u32) -> u32 {
        for _ in 0..MOST_TRIES {
            match self.enter(n, if mutated!("batch_returns_early") { 0 } else { n }) {
                Ok(0) | Err(Errno::EAGAIN | Errno::EBUSY | Errno::EINTR) => sys::sched_yield(),
                Ok(submitted) => return (submitted as u32).min(n),
                Err(_) => return 0,
            }
        }
        0
    }

    /// Takes the completions of the last `n` entries, and waits for those that are still to come.
    fn collect(&self, n: u32, mut done: impl FnMut(usize, Result<(), Errno>)) {
        let mask = self.word(self.kept.offsets.complete_mask).load(Ordering::Relaxed);
        let mut head = self.word(self.kept.offsets.complete_head).load(Ordering::Relaxed);
        let mut left = n;
        while left > 0 {
            // Acquire: the completions before the tail.
            if head == self.word(self.kept.offsets.complete_tail).load(Ordering::Acquire) {
                self.word(self.kept.offsets.complete_head).store(head, Ordering::Release);
                if mutated!("batch_returns_early") {
                    return;
                }
                // A command that was put aside is still to complete; whatever ends the wait, it
                // does.
                let _ = self.enter(0, left);
                continue;
            }
            let offset = PAGE
                + self.kept.offsets.completions as usize
                + (head & mask) as usize * size_of::<io_uring_cqe>();
            // SAFETY: in the second page, before the tail, so the kernel has written it.
            let (which, result) = unsafe {
                let completion = self.kept.memory.add(offset).cast::<io_uring_cqe>();
                ((*completion).user_data.u64_, (*completion).res)
            };
            let which = if mutated!("batch_answers_by_arrival") {
                which & !0xffff_ffff | u64::from(n - left)
            } else {
                which
            };
            head = head.wrapping_add(1);
            if (which >> 32) as u32 != self.kept.submission {
                continue;
            }
            left -= 1;
            done(which as u32 as usize, if result < 0 { Err(Errno::new(-result)) } else { Ok(()) });
        }
        self.word(self.kept.offsets.complete_head).store(head, Ordering::Release);
    }
}
