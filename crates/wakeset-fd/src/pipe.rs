//! Pipes and pairs of stream sockets by descriptor number: the way in which an event loop wakes itself.
//!
//! A pair lives here as long as both its ends are open, each under one number, and what is in it is what Linux would hold in the same
//! way ([`wakeset::Pipe`]). All else is the kernel's: a close or shutdown of an end moves both first, so end of file, hang-up, `EPIPE` and
//! `SIGPIPE` are Linux's own.
//!
//! Each end has a slot under its number. The pair is in the slot of the first end; who comes late, with an end of a pair that is no
//! more, has the number of that pair's life and is told so by its word.

use crate::count::count;
use crate::escape::{self, Gate};
use crate::fork;
use crate::section::{Moment, Section};
use crate::stats::Stat;
use crate::steps::{step, step_lock, step_waited};
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Slot, SlotHead, Using};
use crate::user;
use crate::verdict::Verdict::{self, Done, Kernel};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use libc::{AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET};
use wakeset::{
    Error, Events, LONGEST_MESSAGE, LONGEST_WRITE, Look, PIPE_CAPACITY, Piece, Pipe, Room, Source, WaitQueue, mutated,
};

/// The longest write that is done here. Up to about this length two copies cost less than a system call and the kernel's two; a pipe
/// that carries more at a time carries data, which is the kernel's business, and moves.
const LONGEST_HERE: usize = 512;

/// Where the truth about a pair is.
mod whereabouts {
    /// In its words.
    pub(super) const HERE: u32 = 0;
    /// On its way into the kernel object; a few system calls.
    pub(super) const MOVING: u32 = 1;
    /// The same, and somebody may sleep until it is there.
    pub(super) const WAITED_FOR: u32 = 2;
    /// In the kernel object.
    pub(super) const IN_KERNEL: u32 = 3;
}

/// One end.
///
/// A pipe's end 0 reads from pipe 0 of the pair, to which end 1 writes. A socket's end reads from the pipe of its index and writes to
/// the other one.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdPipe {
    head: SlotHead,
    /// [`SECOND`], [`SOCKET`], [`NONBLOCK`]. Written before `binding`, and read after it.
    mode: AtomicU32,
    /// Its number is about to be closed: nobody may use it any more.
    closing: AtomicBool,
    /// A move has sealed the pair by way of this end, and has to carry what is in it; the mover's.
    carries: AtomicBool,
    /// The pair: the address of the slot that holds it, and its life.
    binding: AtomicU64,
    queue: WaitQueue,
    /// In use if this is the first end.
    pair: Pair,
}

/// What both ends share.
#[derive(Debug)]
struct Pair {
    /// [`whereabouts`].
    place: AtomicU32,
    /// The addresses of both ends.
    ends: [AtomicUsize; 2],
    pipes: [Pipe; 2],
}

/// It is end 1.
const SECOND: u32 = 1;
const SOCKET: u32 = 2;
const NONBLOCK: u32 = 4;

/// Slots are 64-byte aligned and user addresses are below 2^48: 42 bits, and 22 for the life.
const LIFE_BITS: u32 = 22;

/// A pair, in one of its lives.
#[derive(Clone, Copy)]
struct Bound {
    pair: &'static Pair,
    life: u32,
    mode: u32,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdPipe {
    const KIND: usize = table::KIND_PIPE;

    fn head(&self) -> &SlotHead {
        &self.head
    }

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        crate::memory::leak(Self {
            head,
            mode: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            carries: AtomicBool::new(false),
            binding: AtomicU64::new(0),
            queue: WaitQueue::new(),
            pair: Pair {
                place: AtomicU32::new(whereabouts::IN_KERNEL),
                ends: [const { AtomicUsize::new(0) }; 2],
                pipes: [Pipe::new(), Pipe::new()],
            },
        })
    }

    // A number is closed once the pair has moved.
    fn lose_number(&self) {}

    fn finalize(&self) {}
}

impl FdPipe {
    pub(crate) fn fd(&self) -> c_int {
        self.head.fd()
    }

    pub(crate) fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Says that the number is about to be closed.
    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    #[inline(always)]
    fn bound(&self) -> Option<Bound> {
        let binding = self.binding.load(Ordering::Acquire);
        let address = (binding >> LIFE_BITS << 6) as usize;
        // SAFETY: what `bind` stored leads to a slot of this kind, which is never freed.
        let holder = unsafe { (address as *const Self).as_ref() }?;
        let life = binding as u32 & ((1 << LIFE_BITS) - 1);
        Some(Bound { pair: &holder.pair, life, mode: self.mode.load(Ordering::Acquire) })
    }

    /// Makes this an end of the pair in `holder`.
    fn bind(&self, holder: &'static Self, life: u32, mode: u32) {
        self.mode.store(mode, Ordering::SeqCst);
        self.closing.store(false, Ordering::SeqCst);
        self.carries.store(false, Ordering::SeqCst);
        self.queue.reopen();
        let address = ptr::from_ref(holder).expose_provenance() as u64;
        self.binding.store(address >> 6 << LIFE_BITS | u64::from(life), Ordering::SeqCst);
    }

    /// The other end of the pair, if that is in its life.
    pub(crate) fn other(&self) -> Option<&'static Self> {
        let bound = self.bound()?;
        bound.look(0)?;
        bound.end(1 - bound.index())
    }

    /// Whether the pair has left, or is leaving.
    pub(crate) fn has_left(&self) -> bool {
        self.bound().is_none_or(|bound| bound.look(0).is_none_or(|look| look.sealed))
    }
}

impl Bound {
    #[inline(always)]
    fn index(self) -> usize {
        (self.mode & SECOND) as usize
    }

    #[inline(always)]
    fn is_socket(self) -> bool {
        self.mode & SOCKET != 0
    }

    fn may_block(self) -> bool {
        self.mode & NONBLOCK == 0
    }

    /// The pipe that this end reads from.
    #[inline(always)]
    fn inward(self) -> Option<&'static Pipe> {
        (self.is_socket() || self.index() == 0).then(|| &self.pair.pipes[self.index()])
    }

    /// The pipe that this end writes to.
    #[inline(always)]
    fn outward(self) -> Option<&'static Pipe> {
        (self.is_socket() || self.index() == 1).then(|| &self.pair.pipes[1 - self.index()])
    }

    fn look(self, index: usize) -> Option<Look> {
        self.pair.pipes[index].look(self.life)
    }

    fn end(self, index: usize) -> Option<&'static FdPipe> {
        // SAFETY: 0 or what `adopt` stored, the address of a slot of this kind, which is never freed.
        unsafe { (self.pair.ends[index].load(Ordering::SeqCst) as *const FdPipe).as_ref() }
    }

    /// Tells the watches of the other end.
    #[inline(always)]
    fn tell_other(self, events: Events) {
        if let Some(other) = self.end(1 - self.index()) {
            other.queue.wake_published(events);
        }
    }

    /// What a write tells.
    #[inline(always)]
    fn written(self) {
        let both = Events::IN.union(Events::RDNORM);
        self.tell_other(if self.is_socket() { both.union(Events::PRI).union(Events::RDBAND) } else { both });
    }

    /// What a read tells that has made room.
    fn made_room(self) {
        self.tell_other(self.writable());
    }

    fn writable(self) -> Events {
        let both = Events::OUT.union(Events::WRNORM);
        if self.is_socket() { both.union(Events::WRBAND) } else { both }
    }

    /// Waits until the kernel object has the state, after an operation found it sealed.
    fn settle(self) {
        let (moving, waited_for) = (whereabouts::MOVING, whereabouts::WAITED_FOR);
        while matches!(self.pair.place.load(Ordering::SeqCst), whereabouts::MOVING | whereabouts::WAITED_FOR) {
            step_lock!(Waiting, &self.pair.place);
            let _ = self.pair.place.compare_exchange(moving, waited_for, Ordering::SeqCst, Ordering::SeqCst);
            sys::futex_wait(&self.pair.place, waited_for);
        }
        step_waited!();
    }

    fn write(self, bytes: &[u8]) -> Result<(), Error> {
        // Whose end is not for that is told by the kernel.
        let pipe = self.outward().ok_or(Error::Unfit)?;
        pipe.try_write(self.life, bytes)?;
        self.written();
        Ok(())
    }

    /// # Safety
    /// `buffer` is the caller's to give, for `len` bytes.
    #[inline(always)]
    unsafe fn read(self, buffer: *mut u8, len: usize) -> Result<usize, Error> {
        let pipe = self.inward().ok_or(Error::Unfit)?;
        let there = pipe.look(self.life).map_or(0, |look| look.len as usize);
        // Bytes for which there is no place stay: first make sure that there is one.
        let most = if there == 0 { len } else { len.min(there) };
        // SAFETY: the caller's contract.
        if there != 0 && !unsafe { user::touch(buffer, most) } {
            return Err(Error::Unfit);
        }
        let mut place = buffer;
        let taken = pipe.try_read(self.life, most, |part| {
            // SAFETY: the caller's contract; no more than `most` bytes come.
            let stored = unsafe { user::store_bytes(place, part) };
            place = place.wrapping_add(part.len());
            stored
        })?;
        if taken.made_room && !mutated!("pipe_room_is_not_told") {
            self.made_room();
        }
        Ok(taken.n)
    }
}

impl Source for FdPipe {
    fn poll(&self) -> Events {
        let Some(bound) = self.bound() else { return Events::empty() };
        let looks = |pipe: Option<&'static Pipe>| match pipe {
            None => Some(None),
            Some(pipe) => pipe.look(bound.life).map(Some),
        };
        let (Some(inward), Some(outward)) = (looks(bound.inward()), looks(bound.outward())) else {
            return Events::empty();
        };
        let sealed = [inward, outward].into_iter().flatten().all(|look| look.sealed);
        if sealed && bound.pair.place.load(Ordering::SeqCst) == whereabouts::IN_KERNEL {
            const ASKED: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
            let now = sys::poll_now(self.fd(), ASKED | libc::POLLRDHUP);
            return Events::from_bits_retain(u32::from(now as u16));
        }
        // While its watches are being moved, the words say what was in it.
        let mut events = Events::empty();
        events.set(Events::IN | Events::RDNORM, inward.is_some_and(|look| look.len != 0));
        let has_room = |look: Look| look.writable || mutated!("pipe_is_always_writable");
        events.set(bound.writable(), outward.is_some_and(has_room));
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// Makes two descriptors an in-process pair, if there is memory and no fork since `gate`, which is from before they were made.
fn adopt(fds: [c_int; 2], mode: u32, room: Room, gate: Gate) {
    let _section = Section::enter();
    if !fds.iter().all(|fd| table::has_room_for_bytes(*fd)) {
        return;
    }
    let Some(first) = table::slot_for::<FdPipe>(fds[0]) else { return };
    let Some(second) = table::slot_for::<FdPipe>(fds[1]) else {
        table::end_use(first);
        return;
    };
    let pair = &first.pair;
    let life = pair.pipes[0].next_life();
    for (place, end) in pair.ends.iter().zip([first, second]) {
        place.store(ptr::from_ref(end).expose_provenance(), Ordering::SeqCst);
    }
    first.bind(first, life, mode);
    second.bind(first, life, mode | SECOND);
    pair.place.store(whereabouts::HERE, Ordering::SeqCst);
    pair.pipes[0].unseal(life, room);
    pair.pipes[1].unseal(life, room);
    table::put_pipe(fds[0], first);
    table::put_pipe(fds[1], second);
    count(Stat::PipesMade, 1);
    escape::recheck_gate(fds[0], gate);
    // Who moved one end, between the two, has not seen the other.
    if first.has_left() {
        escape::fd(fds[0], Stat::MovedFork);
        escape::fd(fds[1], Stat::MovedFork);
    }
}

/// Gives two new descriptors to the program, or closes them.
///
/// # Safety
/// `place` is the caller's to give, for two numbers.
unsafe fn hand_out(fds: [c_int; 2], place: *mut c_int) -> Result<(), Errno> {
    let bytes = u64::from(fds[0] as u32) | u64::from(fds[1] as u32) << 32;
    // SAFETY: the caller's contract.
    if unsafe { user::store_bytes(place.cast(), &bytes.to_ne_bytes()) } {
        return Ok(());
    }
    for fd in fds {
        let _ = sys::close(fd);
    }
    Err(Errno::EFAULT)
}

/// Before descriptors are made: `None` if they are to be the kernel's.
fn may_be_ours() -> Option<Gate> {
    let may_be_ours = fork::may_make_objects();
    Some(escape::look_at_gate()).filter(|gate| may_be_ours && gate.is_open)
}

/// pipe2(2).
///
/// # Errors
/// As pipe2(2).
///
/// # Safety
/// `fds` has room for two numbers, or the kernel will say EFAULT.
pub unsafe fn pipe2(fds: *mut c_int, flags: c_int) -> Result<(), Errno> {
    let modelled = flags & !(libc::O_CLOEXEC | libc::O_NONBLOCK) == 0 && sys::is_plausible(fds, 8);
    let Some(gate) = may_be_ours().filter(|_| modelled) else {
        return sys::raw!(pipe2, fds, flags).map(drop);
    };
    let mut made = [0; 2];
    sys::raw!(pipe2, made.as_mut_ptr(), flags)?;
    // SAFETY: the caller's contract.
    unsafe { hand_out(made, fds) }?;
    // A user with many pipes gets small ones.
    if sys::fcntl(made[0], libc::F_GETPIPE_SZ, 0) == Ok(PIPE_CAPACITY as c_int) {
        let mode = if flags & libc::O_NONBLOCK != 0 { NONBLOCK } else { 0 };
        adopt(made, mode, Room::Pages, gate);
    }
    Ok(())
}

/// socketpair(2).
///
/// # Errors
/// As socketpair(2).
///
/// # Safety
/// `fds` has room for two numbers, or the kernel will say EFAULT.
pub unsafe fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> Result<(), Errno> {
    let streams = domain == AF_UNIX && kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK) == SOCK_STREAM;
    let modelled = streams && sys::is_plausible(fds, 8);
    let Some(gate) = may_be_ours().filter(|_| modelled) else {
        return sys::raw!(socketpair, domain, kind, protocol, fds).map(drop);
    };
    let mut made = [0; 2];
    sys::raw!(socketpair, domain, kind, protocol, made.as_mut_ptr())?;
    let room = room_of(made);
    // SAFETY: the caller's contract.
    unsafe { hand_out(made, fds) }?;
    if let Some(room) = room {
        let mode = if kind & SOCK_NONBLOCK != 0 { NONBLOCK } else { 0 };
        adopt(made, SOCKET | mode, room, gate);
    }
    Ok(())
}

/// What a message of up to [`LONGEST_MESSAGE`] bytes counts for in this kernel: 0 is not known, the largest number not to be had.
static COST: AtomicU32 = AtomicU32::new(0);
const NO_COST: u32 = u32::MAX;

/// SIOCOUTQ: what the messages that a socket has sent, and that have not been read, count for.
const SIOCOUTQ: c_int = 0x5411;

/// How many messages fit into a new socket pair; `None` if that cannot be told.
fn room_of(fds: [c_int; 2]) -> Option<Room> {
    let cost = match COST.load(Ordering::Relaxed) {
        0 => {
            let cost = measure(fds).filter(|cost| *cost != 0).unwrap_or(NO_COST);
            COST.store(cost, Ordering::Relaxed);
            cost
        }
        cost => cost,
    };
    if cost == NO_COST {
        return None;
    }
    let (mut limit, mut len) = (0_u32, size_of::<u32>() as libc::socklen_t);
    sys::raw!(getsockopt, fds[0], SOL_SOCKET, libc::SO_SNDBUF, &raw mut limit, &raw mut len).ok()?;
    // Linux lets a message in while those in it count for less than the limit. It calls the socket writable while they, and one
    // that it counts for the socket itself, are at most a quarter; and tells that from inside the release of a message, when one
    // more is counted.
    let quarter = limit / 4;
    Some(Room::Messages {
        most: limit.div_ceil(cost),
        writable: quarter.checked_sub(1)? / cost,
        telling: quarter.checked_sub(2)? / cost,
    })
}

/// Asks the kernel, by way of a pair that nobody uses yet. All lengths must count for the same.
fn measure(fds: [c_int; 2]) -> Option<u32> {
    let nowhere = ptr::null::<c_void>();
    let mut bytes = [0_u8; LONGEST_MESSAGE];
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    let sent = || {
        let mut sent = 0_u32;
        sys::raw!(ioctl, fds[0], SIOCOUTQ, &raw mut sent).ok().map(|_| sent)
    };
    let mut costs = [1, LONGEST_MESSAGE].into_iter().map(|len| {
        sys::raw!(sendto, fds[0], bytes.as_ptr(), len, flags, nowhere, 0).ok()?;
        sent()
    });
    let (one, both) = (costs.next()?, costs.next()?);
    for len in [1, LONGEST_MESSAGE] {
        sys::raw!(recvfrom, fds[1], bytes.as_mut_ptr(), len, MSG_DONTWAIT, nowhere, nowhere).ok()?;
    }
    let (one, both) = (one?, both?);
    (both == 2 * one && sent() == Some(0)).then_some(one)
}

/// The part of write(2) that needs nothing but a look-up and one compare-and-swap: whether it was done.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn write_fast(fd: c_int, buffer: *const u8, len: usize) -> bool {
    let Some(end) = table::pipe(fd) else { return false };
    let (1, true, Some(bound)) = (len, sys::is_plausible(buffer, len), end.bound()) else { return false };
    // SAFETY: the caller gives the memory.
    let (Some(byte), Some(pipe)) = (unsafe { user::load_u8(buffer) }, bound.outward()) else { return false };
    let moment = Moment::enter();
    let done = pipe.try_write_byte(bound.life, byte).is_ok();
    if done {
        bound.written();
    }
    drop(moment);
    if crate::count::is_on() && done {
        count(Stat::SyscallsAvoided, 1);
    }
    done
}

/// The part of read(2) that needs nothing but a look-up: how many bytes it has read, 0 if it was not done.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn read_fast(fd: c_int, buffer: *mut u8, len: usize) -> usize {
    let Some(end) = table::pipe(fd) else { return 0 };
    let (1.., true, Some(bound)) = (len, sys::is_plausible(buffer, len), end.bound()) else { return 0 };
    let moment = Moment::enter();
    // SAFETY: the caller gives the memory.
    let n = unsafe { bound.read(buffer, len) }.unwrap_or(0);
    drop(moment);
    if crate::count::is_on() && n != 0 {
        count(Stat::SyscallsAvoided, 1);
    }
    n
}

/// What to do for an end of a pair; `Err`: the verdict without it.
fn look_up(fd: c_int) -> Result<&'static FdPipe, Verdict<usize>> {
    match table::get(fd) {
        Entry::Pipe(end) => Ok(end),
        Entry::Bell => Err(Done(Err(Errno::EBADF))),
        _ => Err(Kernel),
    }
}

/// write(2), and send(2) without flags but those here, as far as they concern in-process objects.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub unsafe fn write(fd: c_int, buffer: *const u8, len: usize, wait: bool) -> Verdict<usize> {
    loop {
        let end = match look_up(fd) {
            Ok(end) => end,
            Err(verdict) => return verdict,
        };
        let Some(bound) = end.bound() else { return Kernel };
        if len == 0 || bound.outward().is_none() {
            // Nothing to do, or an error.
            return Kernel;
        }
        // SAFETY: the caller gives the memory.
        match unsafe { write_from(bound, buffer, len) } {
            Ok(()) => {
                count(Stat::SyscallsAvoided, 1);
                return Done(Ok(len));
            }
            Err(Error::WouldBlock) if !(wait && bound.may_block()) || mutated!("pipe_never_waits_for_room") => {
                return Done(Err(Errno::EAGAIN));
            }
            Err(Error::Sealed) => {
                bound.settle();
                if end.has_left() {
                    return Kernel;
                }
            }
            // It does not fit here, or is not there, or has to wait for a reader: the kernel knows what that means.
            Err(error) => {
                let odd = error == Error::Invalid;
                escape::fd(fd, if odd { Stat::MovedOddArgument } else { Stat::MovedLimit });
                return Kernel;
            }
        }
    }
}

/// Writes what is at `buffer`. [`Error::Invalid`]: it is not there.
///
/// # Safety
/// As [`write()`].
unsafe fn write_from(bound: Bound, buffer: *const u8, len: usize) -> Result<(), Error> {
    const SHORT: usize = 64;
    match len {
        // SAFETY: the same contract.
        1..=SHORT => unsafe { write_by_way_of::<SHORT>(bound, buffer, len) },
        // SAFETY: the same contract.
        _ if len <= LONGEST_HERE => unsafe { write_by_way_of::<LONGEST_HERE>(bound, buffer, len) },
        _ => Err(Error::Unfit),
    }
}

/// By way of a copy that is on the stack no longer than this call lasts: a move needs room there too.
///
/// # Safety
/// As [`write()`].
#[inline(never)]
unsafe fn write_by_way_of<const N: usize>(bound: Bound, buffer: *const u8, len: usize) -> Result<(), Error> {
    let mut bytes = [0_u8; N];
    let bytes = bytes.get_mut(..len).ok_or(Error::Unfit)?;
    // SAFETY: the same contract.
    if !sys::is_plausible(buffer, len) || !unsafe { user::load_bytes(buffer, bytes) } {
        return Err(Error::Invalid);
    }
    let _section = Section::enter();
    bound.write(bytes)
}

/// read(2), and recv(2) without flags but those here, as far as they concern in-process objects.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub unsafe fn read(fd: c_int, buffer: *mut u8, len: usize, wait: bool) -> Verdict<usize> {
    loop {
        let end = match look_up(fd) {
            Ok(end) => end,
            Err(verdict) => return verdict,
        };
        let Some(bound) = end.bound() else { return Kernel };
        let Some(pipe) = bound.inward().filter(|_| len != 0) else { return Kernel };
        if !sys::is_plausible(buffer, len) {
            escape::fd(fd, Stat::MovedOddArgument);
            return Kernel;
        }
        let attempt = || {
            let _section = Section::enter();
            // SAFETY: the caller gives the memory.
            unsafe { bound.read(buffer, len) }
        };
        let mut result = attempt();
        if result == Err(Error::WouldBlock) && wait && bound.may_block() {
            let Some(using) = Using::begin(fd, end) else { continue };
            result = pipe.block_reader(attempt);
            while result == Err(Error::Sealed) && using.is_closing() {
                // Closed under its feet. In Linux the call still has the file, and sleeps until somebody writes; here nobody comes.
                if sys::pause().is_err() {
                    result = Err(Error::Interrupted);
                }
            }
        }
        match result {
            Ok(n) => {
                count(Stat::SyscallsAvoided, 1);
                return Done(Ok(n));
            }
            Err(Error::Sealed) => {
                bound.settle();
                if end.has_left() {
                    return Kernel;
                }
            }
            Err(Error::Unfit) => {
                escape::fd(fd, Stat::MovedOddArgument);
                return Kernel;
            }
            Err(error) => return Done(Err(Errno::new(error.errno()))),
        }
    }
}

/// send(2) as far as it concerns in-process objects.
///
/// # Safety
/// As [`write()`].
pub unsafe fn send(fd: c_int, buffer: *const u8, len: usize, flags: c_int) -> Verdict<usize> {
    match socket(fd, flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0) {
        // SAFETY: the same contract.
        true => unsafe { write(fd, buffer, len, flags & MSG_DONTWAIT == 0) },
        false => Kernel,
    }
}

/// recv(2) as far as it concerns in-process objects.
///
/// # Safety
/// As [`read()`].
pub unsafe fn recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int) -> Verdict<usize> {
    match socket(fd, flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0 && len != 0) {
        // SAFETY: the same contract.
        true => unsafe { read(fd, buffer, len, flags & MSG_DONTWAIT == 0) },
        false => Kernel,
    }
}

/// Whether a number is a socket of ours, or a bell. A socket for which something is asked that is not `modelled` moves into the kernel.
fn socket(fd: c_int, modelled: bool) -> bool {
    match table::get(fd) {
        Entry::Pipe(end) if end.bound().is_some_and(Bound::is_socket) => {
            if !modelled {
                escape::fd(fd, Stat::MovedOddArgument);
            }
            modelled
        }
        // ENOTSOCK, whatever is in it.
        Entry::Pipe(_) => false,
        entry => matches!(entry, Entry::Bell),
    }
}

/// ioctl(`FIONREAD`) on an end: how many bytes are in it. `None`: the kernel knows.
pub fn bytes_in(fd: c_int) -> Option<c_int> {
    let Entry::Pipe(end) = table::get(fd) else { return None };
    let bound = end.bound()?;
    // A pipe says it at both ends.
    let inward = if mutated!("socket_counts_what_it_sent") { 1 - bound.index() } else { bound.index() };
    let look = bound.look(if bound.is_socket() { inward } else { 0 })?;
    if look.sealed {
        bound.settle();
        return None;
    }
    Some(look.len as c_int)
}

/// Takes note of a change of `O_NONBLOCK` that the kernel object has made.
pub(crate) fn note_nonblocking(end: &FdPipe, nonblocking: bool) {
    if nonblocking {
        end.mode.fetch_or(NONBLOCK, Ordering::SeqCst);
    } else {
        end.mode.fetch_and(!NONBLOCK, Ordering::SeqCst);
    }
}

/// Whether a number is an end of a pair that lives here.
#[inline]
pub fn is_end(fd: c_int) -> bool {
    table::pipe(fd).is_some()
}

/// The steps of a move, for `escape`.
impl FdPipe {
    /// Takes everything out of the pair, once for both ends, and puts it into the kernel's. The caller holds the moves lock.
    pub(crate) fn seal_and_carry(&self) {
        let Some(bound) = self.bound() else { return };
        let place = &bound.pair.place;
        let (here, moving) = (whereabouts::HERE, whereabouts::MOVING);
        if bound.look(0).is_none() || place.compare_exchange(here, moving, Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            return;
        }
        step_lock!(Locked, place);
        self.carries.store(true, Ordering::SeqCst);
        for (index, pipe) in bound.pair.pipes.iter().enumerate() {
            let (Some(reader), Some(writer)) = (bound.end(index), bound.end(1 - index)) else { continue };
            let start = bound.look(index).map_or(0, |look| look.place);
            // SAFETY: a move holds that lock, and the one before this is gone.
            let mut carrier = unsafe { Carrier::new(bound, reader.fd(), writer.fd(), start as usize) };
            pipe.seal(bound.life, |piece| carrier.carry(piece));
            if !mutated!("pipe_carries_whole_pages") {
                carrier.flush();
            }
        }
    }

    /// Wakes who is blocked in the pair.
    pub(crate) fn wake_sealed(&self) {
        if let (true, Some(bound)) = (self.carries.load(Ordering::SeqCst), self.bound()) {
            bound.pair.pipes.iter().for_each(Pipe::wake_sealed);
        }
    }

    /// The kernel object has the state; whether it was this end that carried it.
    pub(crate) fn settle_in_kernel(&self) -> bool {
        let carries = self.carries.swap(false, Ordering::SeqCst);
        if let (true, Some(bound)) = (carries, self.bound()) {
            if bound.pair.place.swap(whereabouts::IN_KERNEL, Ordering::SeqCst) == whereabouts::WAITED_FOR {
                sys::futex_wake(&bound.pair.place, u32::MAX >> 1);
            }
            step_lock!(Unlocked, &bound.pair.place);
        }
        carries
    }
}

/// Puts the bytes of a pipe into the kernel's, so that that counts them in the same way: pages begin where they began, messages are
/// as many, and a message of which a part has been read counts for the whole.
///
/// The page to be written is not on the stack, which may be a small one. The moves lock guards it.
struct Carrier {
    socket: bool,
    reader: c_int,
    writer: c_int,
    /// How much of the page there is.
    filled: usize,
    /// Of these, as many at the start are to be read at once.
    start: usize,
}

/// [`Carrier`]'s page.
struct Page(UnsafeCell<[u8; LONGEST_WRITE]>);
// SAFETY: whoever has a carrier holds the moves lock.
unsafe impl Sync for Page {}
static PAGE: Page = Page(UnsafeCell::new([0; LONGEST_WRITE]));

impl Carrier {
    /// # Safety
    /// The caller holds the moves lock as long as it has the carrier, and has no other.
    unsafe fn new(bound: Bound, reader: c_int, writer: c_int, start: usize) -> Self {
        let start = if bound.is_socket() || mutated!("pipe_carries_from_the_start") { 0 } else { start };
        Self { socket: bound.is_socket(), reader, writer, filled: start, start }
    }

    fn carry(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Run(byte, n) => {
                for _ in 0..n {
                    self.put(&[byte], 0);
                }
            }
            Piece::Bytes { bytes, read } => self.put(bytes, read),
        }
    }

    /// Some bytes of a pipe; a message of a socket, in front of which `read` bytes stood.
    fn put(&mut self, bytes: &[u8], read: usize) {
        if self.socket {
            (self.filled, self.start) = (read, read);
        }
        for byte in bytes {
            // SAFETY: by the contract of `new`, and gone before the page is used otherwise.
            if let Some(place) = unsafe { &mut *PAGE.0.get() }.get_mut(self.filled) {
                *place = *byte;
                self.filled += 1;
            }
            if self.filled == LONGEST_WRITE {
                self.flush();
            }
        }
        if self.socket && !mutated!("socket_carries_one_message") {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let (filled, start) = (core::mem::take(&mut self.filled), core::mem::take(&mut self.start));
        if filled == start {
            return;
        }
        step!(pipe_before_carry);
        let nowhere = ptr::null::<c_void>();
        let page = PAGE.0.get().cast::<u8>();
        let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        let sent = match self.socket {
            true => sys::raw!(sendto, self.writer, page, filled, flags, nowhere, 0),
            false => sys::write(self.writer, page, filled),
        };
        if sent != Ok(filled) {
            escape::complain_of_bytes(self.writer, sent.err());
        }
        if start != 0 {
            let _ = match self.socket {
                true => sys::raw!(recvfrom, self.reader, page, start, MSG_DONTWAIT, nowhere, nowhere),
                false => sys::read(self.reader, page, start),
            };
        }
    }
}
