//! An io_uring that carries out epoll_ctl(2) commands, some dozens for one system call.
//!
//! It has no descriptor (`IORING_SETUP_REGISTERED_FD_ONLY`: it is known to the thread that made it and to nobody else), so it is no second
//! way to the program's; and its memory is left out of forks. Making one costs some 20 µs, so only large batches do. It needs Linux 6.6;
//! where there is none, or io_uring is not allowed, [`Ring::open`] says so and the caller makes single calls.
//!
//! **It stays with its thread**, for the next batch, until that ends. When one is closed, the kernel takes the thread's leave of it by a signal of its own, some
//! 20 ms later, and a sleep in epoll_wait(2) ends with EINTR although the program has had none.
//!
//! **Order.** The kernel tries commands in the order of submission, but one that meets a lock somebody else holds is put aside for a worker,
//! and those behind it go on. `Order` says whether that matters; chains keep the order and cost about what they save.

use crate::polls;
use crate::sys::{self, Errno};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use libc::epoll_event;
use rustix::io_uring::{
    IoringEnterFlags, IoringOp, IoringRegisterFlags, IoringRegisterOp, IoringSetupFlags, IoringSqeFlags,
    addr_or_splice_off_in_union, io_uring_cqe, io_uring_params, io_uring_ptr, io_uring_sqe, io_uring_user_data,
    len_union, off_or_addr2_union,
};
use wakeset::mutated;

/// Commands in one submission. The entries and the ring fit in a page each, which kernels before 6.13 demand; more at a time are
/// no faster.
pub(crate) const ENTRIES: usize = 64;
const PAGE: usize = 4096;
/// How often a submission that the kernel has no memory for is tried again.
const PATIENCE: u32 = 100;

/// Whether the kernel has what it takes: not asked yet, yes, never.
static AVAILABLE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NEVER: u8 = 2;

/// One command: its event need not be there for a removal.
pub(crate) struct Task {
    pub(crate) op: c_int,
    pub(crate) fd: c_int,
    pub(crate) event: *const epoll_event,
}

/// What the order of submission means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// No command's result depends on another's.
    Free,
    /// Each begins when the one before it is done.
    Strict,
    /// The same, and behind an error none is carried out: ECANCELED.
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

/// Threads that can have one at a time. Further ones make single calls.
const MOST: usize = 16;

/// A thread's place for its ring.
struct Place {
    /// The thread's name, 0 for nobody.
    owner: AtomicU32,
    tid: AtomicU32,
    /// A batch of its owner is under way; a signal handler makes another one without.
    busy: AtomicBool,
    /// The owner's.
    kept: UnsafeCell<Kept>,
}

// SAFETY: `kept` is touched by its owner only, and by who has taken the place of one that is no more.
unsafe impl Sync for Place {}

static PLACES: [Place; MOST] = [const {
    Place {
        owner: AtomicU32::new(0),
        tid: AtomicU32::new(0),
        busy: AtomicBool::new(false),
        kept: UnsafeCell::new(Kept::NONE),
    }
}; MOST];

impl Place {
    /// The one of this thread, which has none open now.
    fn of_this_thread() -> Option<&'static Self> {
        let me = polls::name_me();
        let own = PLACES.iter().find(|place| place.owner.load(Ordering::Relaxed) == me);
        let place = own.or_else(|| PLACES.iter().find(|place| place.claim(me)))?;
        (!place.busy.swap(true, Ordering::Relaxed)).then_some(place)
    }

    /// Takes it for the thread named `me` if it is nobody's, or that of a thread that is no more.
    fn claim(&self, me: u32) -> bool {
        /// Somebody is taking it.
        const CHANGING: u32 = u32::MAX;
        let owner = self.owner.load(Ordering::Acquire);
        let has_owner = owner == CHANGING || owner != 0 && sys::is_thread(self.tid.load(Ordering::Relaxed) as c_int);
        if has_owner || self.owner.compare_exchange(owner, CHANGING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.tid.store(sys::gettid() as u32, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
        // SAFETY: ours now.
        unsafe { &mut *self.kept.get() }.unmap();
        self.owner.store(me, Ordering::Release);
        true
    }
}

/// In a forked child: it has none of them, nor their memory.
pub(crate) fn forget_in_child() {
    for place in &PLACES {
        // SAFETY: a forked child has one thread, which is not in here.
        unsafe { *place.kept.get() = Kept::NONE };
        place.busy.store(false, Ordering::Relaxed);
        place.owner.store(0, Ordering::Relaxed);
    }
}

/// What a thread keeps.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Two pages: entries to submit, and the ring itself with the completions. Null for none.
    memory: *mut u8,
    /// What the thread knows it by, below 0 for none.
    index: c_int,
    offsets: Offsets,
    /// Counts submissions, so that nothing left over from an earlier one is taken for this one's.
    submission: u32,
}

impl Kept {
    const NONE: Self = Self { memory: ptr::null_mut(), index: -1, offsets: Offsets::NONE, submission: 0 };

    /// Its thread is no more, and with it the ring.
    fn unmap(&mut self) {
        if !self.memory.is_null() {
            let _ = sys::raw!(munmap, self.memory, 2 * PAGE);
            *self = Self::NONE;
        }
    }
}

/// The thread's ring, for the length of a batch.
#[derive(Debug)]
pub(crate) struct Ring {
    place: &'static Place,
    kept: Kept,
}

impl core::fmt::Debug for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Place").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    submit_tail: u32,
    submit_mask: u32,
    complete_head: u32,
    complete_tail: u32,
    complete_mask: u32,
    completions: u32,
}

impl Offsets {
    const NONE: Self =
        Self { submit_tail: 0, submit_mask: 0, complete_head: 0, complete_tail: 0, complete_mask: 0, completions: 0 };
}

impl Ring {
    /// The thread's ring, if it has one or the kernel gives it one now.
    pub(crate) fn open() -> Option<Self> {
        // A vfork(2) child is not the thread that its memory says it is.
        if AVAILABLE.load(Ordering::Relaxed) == NEVER || !crate::fork::may_make_objects() {
            return None;
        }
        let place = Place::of_this_thread()?;
        // SAFETY: this thread's, and not in use.
        let mut kept = unsafe { *place.kept.get() };
        if kept.index < 0 {
            kept = Self::make(place)?;
            // SAFETY: as above.
            unsafe { *place.kept.get() = kept };
        }
        Some(Self { place, kept })
    }

    fn make(place: &'static Place) -> Option<Kept> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let Ok(memory) = sys::raw!(mmap, 0, 2 * PAGE, access, kind, -1_isize, 0) else {
            place.busy.store(false, Ordering::Relaxed);
            return None;
        };
        // Dropped on every way out, which gives the place back.
        let mut ring = Self { place, kept: Kept { memory: memory as *mut u8, ..Kept::NONE } };
        match ring.set_up() {
            Some(()) => {
                let kept = ring.kept;
                core::mem::forget(ring);
                Some(kept)
            }
            None => {
                ring.kept.unmap();
                None
            }
        }
    }

    fn set_up(&mut self) -> Option<()> {
        let memory = self.kept.memory;
        sys::raw!(madvise, memory, 2 * PAGE, libc::MADV_DONTFORK).ok()?;
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SUBMIT_ALL
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::NO_MMAP
            | IoringSetupFlags::REGISTERED_FD_ONLY
            | IoringSetupFlags::NO_SQARRAY;
        params.sq_off.user_addr = io_uring_ptr::new(memory.cast::<c_void>());
        params.cq_off.user_addr = io_uring_ptr::new(memory.wrapping_add(PAGE).cast::<c_void>());
        match sys::raw!(io_uring_setup, ENTRIES, &raw mut params) {
            Ok(index) => self.kept.index = index as c_int,
            Err(error) => {
                // Not there, not allowed, too old: that will not change. All else may.
                if matches!(error, Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EINVAL) {
                    AVAILABLE.store(NEVER, Ordering::Relaxed);
                }
                return None;
            }
        }
        self.kept.offsets = Offsets {
            submit_tail: params.sq_off.tail,
            submit_mask: params.sq_off.ring_mask,
            complete_head: params.cq_off.head,
            complete_tail: params.cq_off.tail,
            complete_mask: params.cq_off.ring_mask,
            completions: params.cq_off.cqes,
        };
        if AVAILABLE.load(Ordering::Relaxed) == UNKNOWN {
            let known = self.knows(IoringOp::EpollCtl);
            AVAILABLE.store(if known { YES } else { NEVER }, Ordering::Relaxed);
            if !known {
                self.close();
                return None;
            }
        }
        Some(())
    }

    /// Ends a ring that is of no use.
    fn close(&self) {
        /// `struct io_uring_rsrc_update`.
        #[repr(C)]
        struct Update {
            offset: u32,
            reserved: u32,
            data: u64,
        }
        let mut update = Update { offset: self.kept.index as u32, reserved: 0, data: 0 };
        let _ = self.register(IoringRegisterOp::UnregisterRingFds, (&raw mut update).cast(), 1);
    }

    fn register(&self, op: IoringRegisterOp, argument: *mut c_void, n: usize) -> Result<usize, Errno> {
        let op = op as u32 | IoringRegisterFlags::USE_REGISTERED_RING.bits();
        sys::raw!(io_uring_register, self.kept.index, op, argument, n)
    }

    fn knows(&self, op: IoringOp) -> bool {
        const MOST: usize = 64;
        /// `struct io_uring_probe` with its operations: number, reserved, flags, reserved.
        #[repr(C)]
        struct Probe {
            header: [u32; 4],
            ops: [(u8, u8, u16, u32); MOST],
        }
        const SUPPORTED: u16 = 1;
        let mut probe = Probe { header: [0; 4], ops: [(0, 0, 0, 0); MOST] };
        let asked = self.register(IoringRegisterOp::RegisterProbe, (&raw mut probe).cast(), MOST);
        asked.is_ok() && probe.ops.get(op as usize).is_some_and(|(_, _, flags, _)| flags & SUPPORTED != 0)
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in the second page, which lives as long as the ring; both sides use it atomically.
        unsafe { &*self.kept.memory.add(PAGE + offset as usize).cast::<AtomicU32>() }
    }

    fn enter(&self, submit: u32, complete: u32) -> Result<usize, Errno> {
        let flags = IoringEnterFlags::GETEVENTS | IoringEnterFlags::REGISTERED_RING;
        sys::raw!(io_uring_enter, self.kept.index, submit, complete, flags.bits(), 0, 0)
    }

    /// Carries out commands on `set` and waits for all of them, whatever became of each; `done(which, result)` is told. How many of
    /// `tasks` it came to: all, unless the kernel refuses to go on, or with [`Order::StopAtError`] an error stopped it.
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
                self.put(tail.wrapping_add(i as u32), set, task, order, i + 1 == portion.len(), begun + i);
            }
            let end = tail.wrapping_add(portion.len() as u32);
            // Release: the kernel reads the entries behind it.
            self.word(self.kept.offsets.submit_tail).store(end, Ordering::Release);
            let submitted = self.submit(portion.len() as u32);
            let mut failed = false;
            self.collect(submitted, |which, result| {
                failed |= result.is_err();
                done(which, result);
            });
            begun += submitted as usize;
            if (submitted as usize) < portion.len() {
                // The kernel looks at them only when entered, so they can be taken back.
                self.word(self.kept.offsets.submit_tail).store(tail.wrapping_add(submitted), Ordering::Release);
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

    fn put(&mut self, place: u32, set: c_int, task: &Task, order: Order, last: bool, which: usize) {
        let mask = self.word(self.kept.offsets.submit_mask).load(Ordering::Relaxed);
        let address = io_uring_ptr::new(task.event.cast_mut().cast());
        let entry = io_uring_sqe {
            opcode: IoringOp::EpollCtl,
            // A chain ends with the portion.
            flags: if last { IoringSqeFlags::empty() } else { order.flags() },
            fd: set,
            off_or_addr2: off_or_addr2_union { off: u64::from(task.fd as u32) },
            addr_or_splice_off_in: addr_or_splice_off_in_union { addr: address },
            len: len_union { len: task.op as u32 },
            user_data: io_uring_user_data { u64_: which as u64 | u64::from(self.kept.submission) << 32 },
            ..io_uring_sqe::default()
        };
        // SAFETY: the first page holds `ENTRIES` entries, which are the kernel's only between `submit` and its return.
        unsafe { self.kept.memory.cast::<io_uring_sqe>().add((place & mask) as usize).write(entry) };
    }

    /// How many of the last `n` entries the kernel took; waits for their completion unless it took fewer.
    fn submit(&self, n: u32) -> u32 {
        for _ in 0..PATIENCE {
            match self.enter(n, if mutated!("batch_returns_early") { 0 } else { n }) {
                Ok(0) | Err(Errno::EAGAIN | Errno::EBUSY | Errno::EINTR) => sys::sched_yield(),
                Ok(submitted) => return (submitted as u32).min(n),
                Err(_) => return 0,
            }
        }
        0
    }

    fn collect(&self, n: u32, mut done: impl FnMut(usize, Result<(), Errno>)) {
        let mask = self.word(self.kept.offsets.complete_mask).load(Ordering::Relaxed);
        let mut head = self.word(self.kept.offsets.complete_head).load(Ordering::Relaxed);
        let mut left = n;
        while left > 0 {
            // Acquire: the completions before it.
            if head == self.word(self.kept.offsets.complete_tail).load(Ordering::Acquire) {
                self.word(self.kept.offsets.complete_head).store(head, Ordering::Release);
                if mutated!("batch_returns_early") {
                    return;
                }
                // One that was put aside is still to come; whatever ends the wait, it does.
                let _ = self.enter(0, left);
                continue;
            }
            let place =
                PAGE + self.kept.offsets.completions as usize + (head & mask) as usize * size_of::<io_uring_cqe>();
            // SAFETY: in the second page, behind the tail, so the kernel has written it.
            let (which, result) = unsafe {
                let completion = self.kept.memory.add(place).cast::<io_uring_cqe>();
                ((*completion).user_data.u64_, (*completion).res)
            };
            let which =
                if mutated!("batch_answers_by_arrival") { which & !0xffff_ffff | u64::from(n - left) } else { which };
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

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this thread's.
        unsafe { (*self.place.kept.get()).submission = self.kept.submission };
        self.place.busy.store(false, Ordering::Relaxed);
    }
}
