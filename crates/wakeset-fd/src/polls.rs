//! Kernel descriptors watched by multishot polls of an io_uring instead of the set's kernel epoll, for sets that ask for it.
//!
//! What makes a socket ready puts the poll into the io_uring's work list; one call runs all that is there and leaves a completion for each
//! in mapped memory. A completion says that a watch may have something to report, as an entry of the kernel's ready list does, and no more: its bits are those of
//! one wake-up. What a wait reports is what poll(2) says of the number at that moment, asked for as many as it has room for in one call.
//! So a drained socket is not reported, levels are reported as long as they hold, and several changes are one event.
//!
//! | in mapped memory | means | a wait |
//! |---|---|---|
//! | completions | watches to look at | takes them, without a call |
//! | `IORING_SQ_TASKRUN` | the work list is not empty; set before the call that made the socket ready returns | runs it |
//! | neither | nothing is ready | makes no call |
//!
//! **One thread.** The work of such an io_uring (`IORING_SETUP_DEFER_TASKRUN`) is run by the thread that made it and by no other. Without that flag
//! the kernel hands it to the thread that armed the poll, by a signal of its own: that one's calls would fail with EINTR for no reason, and all others would hear of
//! an event when that one has been scheduled. So the io_uring serves the thread that asked for it. Whatever another does with the set (a wait, a change, a close of a
//! watched number, a fork) gives the polls up first, for good: [`give_up`] puts the watches into the kernel epoll. Adding one there polls it, so nothing that has not been
//! reported is lost; an edge may be reported once more, as in every move.
//!
//! **Files.** An armed poll holds its file open. [`before_close`] therefore ends it before the number is closed; a close(2) that does not come by here
//! ends neither the watch nor the connection.
//!
//! **Sleeping.** A wait sleeps in the kernel epoll as ever. The io_uring rings the set's bell when its work list gets its first entry, and a
//! wait looks at both tables above after it has counted itself as a sleeper and before it sleeps. The list is always run to its end: what
//! comes later is a first entry again.
//!
//! **Forks.** All is given up before; the io_uring is hidden like a bell, and its memory is not in the child. A child that nobody told us of
//! finds the word of life wiped.
//!
//! The lock is the set's own. Order: moves, then this one, which is innermost but for the kernel's.

use crate::bell;
use crate::escape;
use crate::section::{self, Section, SectionLock};
use crate::set::FdSet;
use crate::sys::{self, Errno};
use crate::user;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringCqeFlags, IoringEnterFlags, IoringFeatureFlags, IoringOp,
    IoringPollFlags, IoringRegisterOp, IoringSetupFlags, IoringSqFlags, addr_or_splice_off_in_union, io_uring_cqe,
    io_uring_params, io_uring_ptr, io_uring_sqe, io_uring_user_data, len_union, op_flags_union,
};
use wakeset::{Event, Events, Source};

/// Sets that can have polls at a time. Further ones are served by their kernel epoll.
const MOST_SETS: usize = 64;
/// Io_urings that can wait for their thread's next set. A further one is closed.
const MOST_PARKED: usize = 16;
/// Numbers that can be watched.
const NUMBERS: usize = 1 << 20;
/// Watches that a set can have in its io_uring: no fewer, no more.
const LIMITS: (usize, usize) = (64, 4096);
/// Entries to submit.
const ENTRIES: u32 = 64;
/// Watches that poll(2) is asked about together.
const TOGETHER: usize = 128;
/// How often the end of a cancelled poll is looked for.
const PATIENCE: u32 = 1000;
const PAGE: usize = 4096;

/// Sets with polls, so that a program without them pays for one load.
static SETS: [AtomicPtr<FdSet>; MOST_SETS] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST_SETS];
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// The last thread that was given a name here. Unlike a thread's number none is used twice.
static LAST_OWNER: AtomicU32 = AtomicU32::new(0);

/// The part of a set that is in an io_uring.
#[derive(Debug)]
pub(crate) struct Polls {
    /// Whether there is one. Changed with the lock held.
    active: AtomicBool,
    /// For how many watches there is to be one as soon as there is a watch for it; 0 for none.
    wanted: AtomicUsize,
    /// The thread that it serves.
    owner: AtomicU32,
    lock: SectionLock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched with the lock held, in `with`.
unsafe impl Sync for Polls {}
// SAFETY: its pointers lead to memory of its own.
unsafe impl Send for Polls {}

#[derive(Debug)]
struct Inner {
    ring: Option<Uring>,
    /// A word that a fork wipes, in a page of its own, and behind it a [`Watch`] for each number.
    memory: *mut u8,
    watches: usize,
    /// One above the highest number that has been watched.
    end: c_int,
    /// Watches to look at, linked by number plus one.
    first: c_int,
    last: c_int,
    waiting: usize,
    /// Counts the waits for which both this and the kernel epoll had to be looked at.
    turn: u32,
    /// The kernel no longer does what it is asked: the caller gives up.
    broken: bool,
}

/// One watch; all zero for none.
#[repr(C)]
struct Watch {
    data: u64,
    events: u32,
    /// Of the poll: what comes of an earlier one is nobody's.
    generation: u32,
    /// The next to look at.
    next: c_int,
    /// [`WATCHED`] and so on.
    state: u32,
}

/// The number is watched here.
const WATCHED: u32 = 1;
/// The io_uring has a poll for it.
const ARMED: u32 = 2;
/// It is among those to look at.
const WAITING: u32 = 4;

/// An io_uring; all but closing it is for the thread that made it.
#[derive(Clone, Copy, Debug)]
struct Uring {
    fd: c_int,
    owner: u32,
    tid: c_int,
    limit: usize,
    /// Completions that stay in the ring, already looked at. Asked to wait for as many, the kernel finds them there and waits for none; and it runs as much work in one
    /// go as it is asked to wait for completions.
    kept: u32,
    rings: Memory,
    entries: Memory,
    offsets: Offsets,
    /// Hangs up when the io_uring is gone, and with it all it held.
    gone: c_int,
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

/// What a completion is about.
fn user_data(fd: c_int, generation: u32) -> u64 {
    u64::from(generation) << 32 | (fd as u32 as u64 + 1)
}

/// Nothing that anybody asks about.
const NOBODY: u64 = 0;

impl Uring {
    fn open(owner: u32, limit: usize) -> Option<Self> {
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

    /// Submits what has been put, at most one entry, and runs all work. `false`: the kernel will not.
    fn run(&self, submit: u32) -> bool {
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
    fn has_work(&self) -> bool {
        // Acquire, as of the kernel's release at the end of what made it set the bit.
        let flags = self.word(self.offsets.flags).load(Ordering::SeqCst);
        flags & (IoringSqFlags::TASKRUN | IoringSqFlags::CQ_OVERFLOW).bits() != 0
    }

    fn has_completions(&self) -> bool {
        let head = self.word(self.offsets.complete_head).load(Ordering::Relaxed);
        let tail = self.word(self.offsets.complete_tail).load(Ordering::SeqCst);
        tail != head.wrapping_add(self.kept)
    }

    /// Hands each new completion to `done`: what it is about, the result, whether the poll goes on.
    fn collect(&self, mut done: impl FnMut(u64, i32, bool)) {
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
    fn close(&mut self) {
        self.rings.unmap();
        self.entries.unmap();
        bell::disclose(self.fd);
        let _ = sys::close(self.fd);
    }

    /// Waits until the kernel has ended a closed one; for this the thread that it served must run, so not for ever.
    fn wait_until_gone(&mut self) {
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

/// Io_urings without polls, kept for the next set of their thread. Closing one would end a sleep of that thread, some time later, with EINTR: the kernel
/// takes the thread's leave of it.
struct Parked {
    lock: SectionLock,
    rings: UnsafeCell<[Option<Uring>; MOST_PARKED]>,
}

// SAFETY: the rings are only touched with the lock held.
unsafe impl Sync for Parked {}

static PARKED: Parked = Parked { lock: SectionLock::new(), rings: UnsafeCell::new([None; MOST_PARKED]) };

impl Parked {
    fn with<T>(&self, f: impl FnOnce(&mut [Option<Uring>; MOST_PARKED]) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let result = f(unsafe { &mut *self.rings.get() });
        self.lock.unlock();
        result
    }

    /// One of this thread's, for up to `limit` watches. Those of threads that are no more are closed.
    fn take(&self, owner: u32, limit: usize) -> Option<Uring> {
        self.with(|rings| {
            for parked in rings.iter_mut() {
                if let Some(ring) = parked.as_mut().filter(|ring| ring.owner != owner && !sys::is_thread(ring.tid)) {
                    ring.close();
                    ring.wait_until_gone();
                    *parked = None;
                }
            }
            let fits = |ring: &Uring| ring.owner == owner && ring.limit == limit;
            rings.iter_mut().find(|parked| parked.as_ref().is_some_and(fits))?.take()
        })
    }

    fn put(&self, ring: Uring) {
        let full = self.with(|rings| match rings.iter_mut().find(|parked| parked.is_none()) {
            Some(parked) => {
                *parked = Some(ring);
                None
            }
            None => Some(ring),
        });
        if let Some(mut ring) = full {
            ring.close();
            ring.wait_until_gone();
        }
    }
}

/// The name of this thread, unless it has none yet.
fn me() -> u32 {
    section::owner()
}

/// The name of this thread, given now if need be.
pub(crate) fn name_me() -> u32 {
    if me() == 0 {
        section::set_owner(LAST_OWNER.fetch_add(1, Ordering::Relaxed) + 1);
    }
    me()
}

/// What a watch can ask for here.
const ALLOWED: u32 = 0x27df | libc::EPOLLET as u32;
/// Of these what poll(2) is asked for.
const POLLED: u32 = 0x27df & !ALWAYS;
/// Told unasked.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// The wake-ups that a poll for `events` has to hear of: those that Linux's epoll would, and no other, or an edge would be reported twice. io_uring does not
/// heed `POLLPRI`, which no socket says without `POLLIN` or `POLLERR`.
fn wake_ups_for(events: u32) -> u32 {
    let urgent = if events & libc::EPOLLPRI as u32 != 0 { libc::EPOLLIN as u32 } else { 0 };
    events & POLLED | ALWAYS | urgent
}

/// Whether it is a socket that does not listen.
fn is_plain_socket(fd: c_int) -> bool {
    let (mut listens, mut len) = (0_i32, size_of::<c_int>() as u32);
    let asked = sys::raw!(getsockopt, fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, &raw mut listens, &raw mut len);
    asked.is_ok() && listens == 0
}

impl Polls {
    pub(crate) const fn new() -> Self {
        let inner = Inner {
            ring: None,
            memory: ptr::null_mut(),
            watches: 0,
            end: 0,
            first: 0,
            last: 0,
            waiting: 0,
            turn: 0,
            broken: false,
        };
        Self {
            active: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
            owner: AtomicU32::new(0),
            lock: SectionLock::new(),
            inner: UnsafeCell::new(inner),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let result = f(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        result
    }

    /// Whether the set has watches here, or may have.
    #[inline]
    pub(crate) fn are_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    fn are_mine(&self) -> bool {
        self.owner.load(Ordering::SeqCst) == me() && me() != 0
    }
}

/// From now on the set is to have polls for this thread, if it can.
pub(crate) fn ask_for(set: &FdSet, entries: usize) {
    if !set.polls.are_active() {
        set.polls.owner.store(name_me(), Ordering::SeqCst);
        let limit = entries.next_power_of_two().clamp(LIMITS.0, LIMITS.1);
        set.polls.wanted.store(limit, Ordering::SeqCst);
    }
}

/// For a new set.
pub(crate) fn begin_without(set: &FdSet) {
    set.polls.wanted.store(0, Ordering::SeqCst);
}

/// Gives the set polls, if it is to have them and can.
fn begin(set: &FdSet) {
    let polls = &set.polls;
    // Once.
    let limit = polls.wanted.swap(0, Ordering::SeqCst);
    let _moving = escape::hold_moves();
    let unfit = set.in_kernel.load(Ordering::SeqCst)
        || set.closed.load(Ordering::SeqCst)
        || set.is_fixed()
        || set.handed_out.load(Ordering::SeqCst)
        || set.set.wait_queue().has_watches();
    if limit == 0 || unfit || polls.are_active() || bell::install_held(set) != Ok(true) {
        return;
    }
    let bell = set.bell.load(Ordering::SeqCst);
    if bell < 0 {
        return;
    }
    let owner = me();
    let Some(place) = SETS.iter().find(|place| place.load(Ordering::SeqCst).is_null()) else { return };
    polls.with(|inner| {
        if !inner.has_memory() {
            return;
        }
        let Some(mut ring) = PARKED.take(owner, limit).or_else(|| Uring::open(owner, limit)) else { return };
        let mut number = bell;
        if ring.register(IoringRegisterOp::RegisterEventfd, (&raw mut number).cast(), 1).is_err() {
            ring.close();
            ring.wait_until_gone();
            return;
        }
        inner.ring = Some(ring);
        inner.broken = false;
        inner.set_alive(true);
        polls.active.store(true, Ordering::SeqCst);
        place.store(ptr::from_ref(set).cast_mut(), Ordering::SeqCst);
        ACTIVE.fetch_add(1, Ordering::SeqCst);
    });
    if polls.are_active() && !set.has_kernel.load(Ordering::SeqCst) {
        set.note_kernel_watch();
        set.only_polls.store(true, Ordering::SeqCst);
    }
}

/// Puts what is watched here into the kernel epoll, for good.
pub(crate) fn give_up(set: &FdSet) {
    if set.polls.are_active() {
        let _section = Section::enter();
        let _moving = escape::hold_moves();
        give_up_held(set);
    }
}

/// [`give_up`] for a caller that holds the moves lock.
pub(crate) fn give_up_held(set: &FdSet) {
    if set.polls.are_active() {
        end(set, true);
    }
}

/// Ends the polls of a set whose number is about to be closed.
pub(crate) fn forget(set: &FdSet) {
    if set.polls.are_active() {
        end(set, false);
    }
}

fn end(set: &FdSet, goes_on: bool) {
    let polls = &set.polls;
    polls.with(|inner| {
        if !polls.are_active() {
            return;
        }
        if !inner.is_alive() {
            // A child that nobody told us of: all this is its parent's.
            polls.active.store(false, Ordering::SeqCst);
            return;
        }
        if goes_on {
            set.kernel_edges.store(true, Ordering::SeqCst);
            set.only_polls.store(false, Ordering::SeqCst);
            inner.for_each_watch(|fd, watch| {
                let event = epoll_event { events: watch.events, u64: watch.data };
                if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event) {
                    // EBADF: its number was closed, and not by us.
                    if error != Errno::EBADF {
                        escape::complain(set.fd(), fd, error);
                    }
                }
            });
        }
        let mine = polls.are_mine();
        let cancelled = mine && !inner.broken && inner.cancel_all();
        if let Some(mut ring) = inner.ring.take() {
            if cancelled && ring.register(IoringRegisterOp::UnregisterEventfd, ptr::null_mut(), 0).is_ok() {
                PARKED.put(ring);
            } else {
                ring.close();
                ring.wait_until_gone();
            }
        }
        inner.forget_all();
        for place in &SETS {
            if place
                .compare_exchange(ptr::from_ref(set).cast_mut(), ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
            {
                ACTIVE.fetch_sub(1, Ordering::SeqCst);
            }
        }
        polls.active.store(false, Ordering::SeqCst);
    });
}

/// Whether there are any in the process.
#[inline]
pub(crate) fn any() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// Whether the polls of a set serve this thread.
pub(crate) fn are_for_me(set: &FdSet) -> bool {
    set.polls.are_mine()
}

/// One above the highest number that may be watched.
pub(crate) fn numbers_end() -> c_int {
    let ends = SETS.iter().map(|place| {
        // SAFETY: slots are never freed.
        unsafe { place.load(Ordering::SeqCst).as_ref() }.map_or(0, |set| set.polls.with(|inner| inner.end))
    });
    if any() { ends.max().unwrap_or(0) } else { 0 }
}

/// Before a number is closed, or becomes another file's: ends the polls that hold its file.
#[inline]
pub(crate) fn before_close(fd: c_int) {
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        end_watches_of(fd);
    }
}

#[cold]
fn end_watches_of(fd: c_int) {
    let _section = Section::enter();
    for place in &SETS {
        // SAFETY: slots are never freed.
        let Some(set) = (unsafe { place.load(Ordering::SeqCst).as_ref() }) else { continue };
        let polls = &set.polls;
        let ended = polls.with(|inner| {
            if !polls.are_active()
                || !inner.is_alive()
                || inner.watch(fd).is_none_or(|watch| watch.state & WATCHED == 0)
            {
                return true;
            }
            polls.are_mine() && inner.remove(fd)
        });
        if !ended {
            give_up(set);
            // It is the kernel's to forget it.
        }
    }
}

/// A hidden number of ours has become another, or -1.
pub(crate) fn renumber(fd: c_int, new: c_int) {
    let change = |ring: &mut Uring| {
        for number in [&mut ring.fd, &mut ring.gone] {
            if *number == fd {
                *number = new;
            }
        }
    };
    PARKED.with(|rings| rings.iter_mut().flatten().for_each(change));
    for place in &SETS {
        // SAFETY: slots are never freed.
        if let Some(set) = unsafe { place.load(Ordering::SeqCst).as_ref() } {
            set.polls.with(|inner| {
                if let Some(ring) = inner.ring.as_mut() {
                    change(ring);
                    inner.broken |= ring.fd < 0;
                }
            });
        }
    }
}

/// In a forked child, which has none of it: its numbers are closed with the bells.
pub(crate) fn forget_in_child() {
    SETS.iter().for_each(|place| place.store(ptr::null_mut(), Ordering::SeqCst));
    ACTIVE.store(0, Ordering::SeqCst);
    // SAFETY: a forked child has one thread, which is not in here. Another of its parent's may have been.
    unsafe {
        PARKED.lock.free_in_child();
        *PARKED.rings.get() = [None; MOST_PARKED];
    }
}

/// epoll_ctl(2) on a descriptor of the kernel's; `None` if the kernel epoll has to do it.
pub(crate) fn epoll_ctl(set: &FdSet, op: c_int, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
    let polls = &set.polls;
    let wants = polls.wanted.load(Ordering::SeqCst) != 0;
    if !(polls.are_active() || wants && op == EPOLL_CTL_ADD) {
        return None;
    }
    if !polls.are_mine() {
        give_up(set);
        return None;
    }
    let suits = op == EPOLL_CTL_ADD && asked.events.bits() & !ALLOWED == 0 && is_plain_socket(fd);
    if wants && suits {
        begin(set);
    }
    let result = polls.with(|inner| {
        if !polls.are_active() || !inner.is_alive() {
            return None;
        }
        let watched = inner.watch(fd)?.state & WATCHED != 0;
        match op {
            EPOLL_CTL_ADD if watched => {
                // In this order, as epoll_ctl(2).
                let exclusive = asked.events.contains(Events::EXCLUSIVE);
                let invalid = exclusive && !Events::EXCLUSIVE_OK.contains(asked.events);
                Some(Err(if invalid { Errno::EINVAL } else { Errno::EEXIST }))
            }
            EPOLL_CTL_ADD if suits => inner.add(set, fd, asked),
            EPOLL_CTL_MOD if watched => inner.modify(set, fd, asked),
            EPOLL_CTL_DEL if watched => {
                inner.remove(fd);
                Some(Ok(()))
            }
            _ => None,
        }
    });
    if polls.with(|inner| inner.broken) {
        give_up(set);
    }
    result
}

/// Whether a wait of this thread would find something to look at.
pub(crate) fn have_news(set: &FdSet) -> bool {
    let polls = &set.polls;
    polls.are_active()
        && polls.with(|inner| {
            let ring = inner.ring.filter(|_| inner.is_alive());
            ring.is_some_and(|ring| inner.waiting != 0 || ring.has_completions() || ring.has_work())
        })
}

/// Which of this and the kernel epoll a wait looks at first.
pub(crate) fn take_turn(set: &FdSet) -> bool {
    set.polls.with(|inner| {
        inner.turn = inner.turn.wrapping_add(1);
        inner.turn % 2 == 0
    })
}

/// Takes up to `room` events to `place` and behind it; how many. `fault` is told when there is no memory for one.
pub(crate) fn take(set: &FdSet, place: *mut epoll_event, room: usize, fault: impl FnOnce()) -> usize {
    let polls = &set.polls;
    if !polls.are_active() || room == 0 {
        return 0;
    }
    if !polls.are_mine() {
        give_up(set);
        return 0;
    }
    let (n, goes_on) = polls.with(|inner| {
        if !polls.are_active() || !inner.is_alive() {
            return (0, true);
        }
        let (n, sees) = inner.take(place, room, fault);
        (n, sees && !inner.broken)
    });
    if !goes_on {
        give_up(set);
    }
    n
}

impl Inner {
    fn has_memory(&mut self) -> bool {
        if self.memory.is_null() {
            let len = PAGE + NUMBERS * size_of::<Watch>();
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
            let Ok(start) = sys::raw!(mmap, 0, len, access, kind, -1_isize, 0) else { return false };
            if sys::raw!(madvise, start, len, libc::MADV_WIPEONFORK).is_err() {
                let _ = sys::raw!(munmap, start, len);
                return false;
            }
            self.memory = start as *mut u8;
        }
        true
    }

    fn set_alive(&self, alive: bool) {
        // SAFETY: the memory is there, with a word at its start.
        unsafe { &*self.memory.cast::<AtomicU32>() }.store(u32::from(alive), Ordering::Relaxed);
    }

    /// Whether this is the process that made it.
    fn is_alive(&self) -> bool {
        // SAFETY: as above.
        !self.memory.is_null() && unsafe { &*self.memory.cast::<AtomicU32>() }.load(Ordering::Relaxed) != 0
    }

    fn watch(&mut self, fd: c_int) -> Option<&mut Watch> {
        let number = fd as u32 as usize;
        // SAFETY: one for each number, in memory that only the lock's holder uses.
        (number < NUMBERS && !self.memory.is_null())
            .then(|| unsafe { &mut *self.memory.add(PAGE).cast::<Watch>().add(number) })
    }

    fn for_each_watch(&mut self, mut f: impl FnMut(c_int, &Watch)) {
        for fd in 0..self.end {
            if let Some(watch) = self.watch(fd).filter(|watch| watch.state & WATCHED != 0) {
                f(fd, watch);
            }
        }
    }

    /// Lines a watch up to be looked at.
    fn line_up(&mut self, fd: c_int) {
        let Some(watch) = self.watch(fd).filter(|watch| watch.state & WAITING == 0) else { return };
        watch.state |= WAITING;
        watch.next = 0;
        match self.last {
            0 => self.first = fd + 1,
            last => {
                if let Some(before) = self.watch(last - 1) {
                    before.next = fd + 1;
                }
            }
        }
        self.last = fd + 1;
        self.waiting += 1;
    }

    fn next_in_line(&mut self) -> Option<c_int> {
        let fd = self.first - 1;
        let watch = self.watch(fd).filter(|_| fd >= 0)?;
        watch.state &= !WAITING;
        self.first = watch.next;
        if self.first == 0 {
            self.last = 0;
        }
        self.waiting -= 1;
        Some(fd)
    }

    /// Takes the completions.
    fn collect(&mut self) {
        let Some(ring) = self.ring else { return };
        ring.collect(|about, _result, goes_on| {
            if about == NOBODY {
                return;
            }
            let fd = (about as u32).wrapping_sub(1) as c_int;
            let Some(watch) = self.watch(fd) else { return };
            if user_data(fd, watch.generation) != about {
                return;
            }
            if !goes_on {
                watch.state &= !ARMED;
            }
            if watch.state & WATCHED != 0 {
                self.line_up(fd);
            }
        });
    }

    fn run(&mut self, submit: u32) {
        match self.ring {
            Some(ring) if ring.run(submit) => {}
            _ => self.broken = true,
        }
        self.collect();
    }

    /// Arms a poll; whether the kernel has taken it.
    fn arm(&mut self, fd: c_int) -> bool {
        let Some(ring) = self.ring.filter(|_| !self.broken) else { return false };
        let Some(watch) = self.watch(fd) else { return false };
        watch.generation = watch.generation.wrapping_add(1);
        watch.state |= ARMED;
        let events = wake_ups_for(watch.events);
        ring.put(io_uring_sqe {
            opcode: IoringOp::PollAdd,
            fd,
            len: len_union { poll_flags: IoringPollFlags::ADD_MULTI },
            op_flags: op_flags_union {
                poll32_events: if cfg!(target_endian = "big") { events.rotate_left(16) } else { events },
            },
            user_data: io_uring_user_data { u64_: user_data(fd, watch.generation) },
            ..io_uring_sqe::default()
        });
        self.run(1);
        self.watch(fd).is_some_and(|watch| watch.state & ARMED != 0)
    }

    /// Ends a poll, so that it no longer holds the file and nothing more comes of it. `false`: the kernel will not.
    fn disarm(&mut self, fd: c_int) -> bool {
        let Some(ring) = self.ring else { return false };
        let Some(watch) = self.watch(fd).filter(|watch| watch.state & ARMED != 0) else { return true };
        let about = user_data(fd, watch.generation);
        for _ in 0..PATIENCE {
            // Not IORING_OP_POLL_REMOVE, which lets go of nothing that has work under way.
            ring.put(io_uring_sqe {
                opcode: IoringOp::AsyncCancel,
                fd: -1,
                addr_or_splice_off_in: addr_or_splice_off_in_union { addr: io_uring_ptr::new(about as *mut c_void) },
                ..io_uring_sqe::default()
            });
            self.run(1);
            if self.broken || self.watch(fd).is_none_or(|watch| watch.state & ARMED == 0) {
                break;
            }
            sys::sched_yield();
        }
        let ended = self.watch(fd).is_none_or(|watch| watch.state & ARMED == 0);
        self.broken |= !ended;
        ended
    }

    fn add(&mut self, set: &FdSet, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
        let limit = self.ring?.limit;
        if self.watches == limit {
            return None;
        }
        if !set.only_polls.load(Ordering::SeqCst) {
            let event = epoll_event { events: asked.events.bits(), u64: asked.data };
            if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event) {
                return Some(Err(error));
            }
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, fd, ptr::null());
        }
        let watch = self.watch(fd)?;
        watch.events = asked.events.bits();
        watch.data = asked.data;
        watch.state |= WATCHED;
        self.watches += 1;
        self.end = self.end.max(fd + 1);
        if !self.arm(fd) {
            self.remove(fd);
            return None;
        }
        self.line_up(fd);
        Some(Ok(()))
    }

    fn modify(&mut self, set: &FdSet, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
        let events = asked.events.bits();
        if asked.events.contains(Events::EXCLUSIVE) {
            return Some(Err(Errno::EINVAL));
        }
        let watch = self.watch(fd)?;
        let polls_the_same = wake_ups_for(watch.events) == wake_ups_for(events);
        if events & !ALLOWED == 0 {
            watch.events = events;
            watch.data = asked.data;
            if polls_the_same || self.disarm(fd) && self.arm(fd) {
                self.line_up(fd);
                return Some(Ok(()));
            }
        }
        // From now on the kernel epoll's.
        let event = epoll_event { events, u64: asked.data };
        set.kernel_edges.store(true, Ordering::SeqCst);
        set.only_polls.store(false, Ordering::SeqCst);
        let added = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event);
        if added.is_ok() {
            self.remove(fd);
        }
        Some(added)
    }

    /// Forgets a watch; `false`: its poll could not be ended.
    fn remove(&mut self, fd: c_int) -> bool {
        let ended = self.disarm(fd);
        if self.watch(fd).is_some_and(|watch| watch.state & WAITING != 0) {
            self.take_out_of_line(fd);
        }
        if let Some(watch) = self.watch(fd) {
            watch.generation = watch.generation.wrapping_add(1);
            watch.state = 0;
            self.watches -= 1;
        }
        ended
    }

    fn take_out_of_line(&mut self, fd: c_int) {
        // In place: the order of the others stays.
        let n = self.waiting;
        for _ in 0..n {
            if let Some(other) = self.next_in_line().filter(|other| *other != fd) {
                self.line_up(other);
            }
        }
    }

    fn cancel_all(&mut self) -> bool {
        let mut ended = true;
        for fd in 0..self.end {
            ended = ended && self.disarm(fd);
        }
        ended && !self.broken
    }

    /// When there is no io_uring any more.
    fn forget_all(&mut self) {
        for fd in 0..self.end {
            if let Some(watch) = self.watch(fd) {
                // Generations go on: the io_uring may be used again, and has nothing to say of these.
                watch.generation = watch.generation.wrapping_add(1);
                (watch.state, watch.next) = (0, 0);
            }
        }
        (self.watches, self.end, self.first, self.last, self.waiting) = (0, 0, 0, 0, 0);
        self.broken = false;
    }

    /// As [`take`]; and whether poll(2) says what is ready. Where it does not the kernel epoll has to.
    fn take(&mut self, place: *mut epoll_event, room: usize, fault: impl FnOnce()) -> (usize, bool) {
        let Some(ring) = self.ring else { return (0, true) };
        self.collect();
        if ring.has_work() {
            // Whatever is in line: an event whose wake-up is still to be heard of would be reported twice.
            self.run(0);
        }
        let mut taken = 0;
        // Levels that hold go to the end of the line, and are not looked at twice.
        let mut left = self.waiting;
        let mut asked = [libc::pollfd { fd: -1, events: 0, revents: 0 }; TOGETHER];
        while taken < room && left > 0 {
            let mut n = 0;
            while n < TOGETHER.min(room - taken) && left > 0 {
                left -= 1;
                let Some(fd) = self.next_in_line() else { break };
                let Some(watch) = self.watch(fd) else { continue };
                if watch.state & ARMED == 0 {
                    // It ended by itself. Armed first, looked at then.
                    if !self.arm(fd) {
                        self.broken = true;
                    }
                    // It may have lined up again, as the last.
                }
                let Some(watch) = self.watch(fd) else { continue };
                asked[n] = libc::pollfd { fd, events: (watch.events & POLLED) as i16, revents: 0 };
                n += 1;
            }
            if !look(&mut asked[..n]) {
                return (taken, false);
            }
            for i in 0..n {
                let entry = asked[i];
                let Some(watch) = self.watch(entry.fd) else { continue };
                let now = u32::from(entry.revents as u16) & (watch.events & POLLED | ALWAYS);
                if now == 0 {
                    continue;
                }
                let event = epoll_event { events: now, u64: watch.data };
                let is_level = watch.events & libc::EPOLLET as u32 == 0;
                // SAFETY: the caller gives the memory.
                if !unsafe { user::store_event(place.wrapping_add(taken), event) } {
                    // Nobody has seen these.
                    for entry in &asked[i..n] {
                        self.line_up(entry.fd);
                    }
                    fault();
                    return (taken, true);
                }
                taken += 1;
                if is_level {
                    self.line_up(entry.fd);
                }
            }
        }
        (taken, true)
    }
}

/// poll(2) of all at this moment; whether it says anything. Not if the process may have no descriptors (RLIMIT_NOFILE), as a sandbox demands of one that has
/// all it needs.
fn look(entries: &mut [libc::pollfd]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork;
    use std::sync::Barrier;
    extern crate std;

    /// A child in which the lock was still another thread's hung at its first set with polls.
    #[test]
    fn a_fork_while_another_thread_parks_leaves_the_child_a_free_lock() {
        let (held, forked) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                PARKED.with(|_| {
                    held.wait();
                    forked.wait();
                });
            });
            held.wait();
            let forking = fork::prepare();
            // SAFETY: the child makes system calls, and looks at a lock.
            let child = unsafe { libc::fork() };
            if child == 0 {
                forking.in_child();
                let free = PARKED.lock.try_lock();
                // SAFETY: ends this process.
                unsafe { libc::_exit(c_int::from(!free)) };
            }
            forking.in_parent();
            forked.wait();
            assert!(child > 0);
            let mut status = -1;
            // SAFETY: a place for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the lock is taken");
        });
    }
}
